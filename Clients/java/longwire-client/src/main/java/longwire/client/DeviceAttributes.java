package longwire.client;

import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.TimeZone;

/**
 * The attributes of a device, by which the app's server selects devices at the gateway.
 *
 * <p>A text has at most 64 bytes of UTF-8, a locale 35. A longer one is not sent, and the gateway drops one with control
 * characters. An empty text stands for an unknown attribute. Objects of this class are immutable.
 */
public final class DeviceAttributes implements Cloneable {
    /** The system of a device. */
    public enum Platform {
        /** Not known. */
        UNKNOWN(0),
        /** Android. */
        ANDROID(1),
        /** iOS and its relatives. */
        IOS(2),
        /** HarmonyOS 5 and later. */
        HARMONY(3),
        /** A web page. */
        WEB(4),
        /** A mini program. */
        MINI_PROGRAM(5),
        /** Any other system. */
        OTHER(6);

        private final int number;

        Platform(int number) {
            this.number = number;
        }
    }

    private Platform platform = Platform.UNKNOWN;
    private String brand = "";
    private String model = "";
    private String systemVersion = "";
    private String appVersion = "";
    private String locale = "";
    private String timeZone = "";
    /** Whether the system shows the app's notifications, or {@code null}. */
    private Boolean showsNotifications;

    /** Creates attributes of which none is known. */
    public DeviceAttributes() {}

    /**
     * Returns the attributes that the Java runtime knows: the system's version, the locale and the time zone.
     *
     * @return the attributes, with the platform {@code ANDROID} on Android's runtime and {@code OTHER} elsewhere
     */
    public static DeviceAttributes ofSystem() {
        boolean isAndroid = "Dalvik".equals(System.getProperty("java.vm.name"));
        return new DeviceAttributes().withPlatform(isAndroid ? Platform.ANDROID : Platform.OTHER)
            .withSystemVersion(System.getProperty("os.name", "") + " " + System.getProperty("os.version", ""))
            .withLocale(Locale.getDefault().toLanguageTag()).withTimeZone(TimeZone.getDefault().getID());
    }

    private DeviceAttributes copy() {
        try {
            return (DeviceAttributes) clone();
        } catch (CloneNotSupportedException error) {
            throw new IllegalStateException("this class is cloneable", error);
        }
    }

    private static String bounded(String text, int limit) {
        return text == null || text.getBytes(StandardCharsets.UTF_8).length > limit ? "" : text;
    }

    private static String bounded(String text) {
        return bounded(text, Limits.ATTRIBUTE_BYTE_COUNT);
    }

    /**
     * Returns a copy with another platform.
     *
     * @param value the platform
     * @return the copy
     */
    public DeviceAttributes withPlatform(Platform value) {
        DeviceAttributes copy = copy();
        copy.platform = value == null ? Platform.UNKNOWN : value;
        return copy;
    }

    /**
     * Returns a copy with another brand.
     *
     * @param text the manufacturer
     * @return the copy
     */
    public DeviceAttributes withBrand(String text) {
        DeviceAttributes copy = copy();
        copy.brand = bounded(text);
        return copy;
    }

    /**
     * Returns a copy with another model.
     *
     * @param text the model
     * @return the copy
     */
    public DeviceAttributes withModel(String text) {
        DeviceAttributes copy = copy();
        copy.model = bounded(text);
        return copy;
    }

    /**
     * Returns a copy with another version of the system.
     *
     * @param text the version
     * @return the copy
     */
    public DeviceAttributes withSystemVersion(String text) {
        DeviceAttributes copy = copy();
        copy.systemVersion = bounded(text);
        return copy;
    }

    /**
     * Returns a copy with another version of the app.
     *
     * @param text the version
     * @return the copy
     */
    public DeviceAttributes withAppVersion(String text) {
        DeviceAttributes copy = copy();
        copy.appVersion = bounded(text);
        return copy;
    }

    /**
     * Returns a copy with another locale.
     *
     * @param tag a BCP 47 language tag, such as {@code zh-Hans-CN}
     * @return the copy
     */
    public DeviceAttributes withLocale(String tag) {
        DeviceAttributes copy = copy();
        copy.locale = bounded(tag, Limits.LOCALE_BYTE_COUNT);
        return copy;
    }

    /**
     * Returns a copy with another time zone.
     *
     * @param zone a name such as {@code Asia/Shanghai}, or an offset such as {@code +08:00}
     * @return the copy
     */
    public DeviceAttributes withTimeZone(String zone) {
        DeviceAttributes copy = copy();
        copy.timeZone = bounded(zone);
        return copy;
    }

    /**
     * Returns a copy with another notification permission.
     *
     * @param isAllowed whether the system shows the app's notifications, or {@code null} if that is unknown
     * @return the copy
     */
    public DeviceAttributes withNotifications(Boolean isAllowed) {
        DeviceAttributes copy = copy();
        copy.showsNotifications = isAllowed;
        return copy;
    }

    ProtoWriter encoded() {
        ProtoWriter out = new ProtoWriter();
        out.number(1, platform.number);
        out.text(2, brand);
        out.text(3, model);
        out.text(4, systemVersion);
        out.text(5, appVersion);
        out.text(6, locale);
        out.text(7, timeZone);
        out.number(8, showsNotifications == null ? 0 : showsNotifications ? 1 : 2);
        return out;
    }
}
