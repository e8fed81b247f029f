package longwire.client;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.junit.Test;

/** The attributes of a device, as bytes of a Hello. */
public class DeviceAttributesTest {
    private static byte[] body(DeviceAttributes attributes) {
        Frames.Hello hello = new Frames.Hello();
        hello.attributes = attributes;
        return hello.body();
    }

    private static String text(int length) {
        char[] characters = new char[length];
        Arrays.fill(characters, 'x');
        return new String(characters);
    }

    @Test
    public void attributesAreAnEmbeddedMessage() {
        DeviceAttributes attributes = new DeviceAttributes().withPlatform(DeviceAttributes.Platform.ANDROID)
            .withBrand("b").withModel("m").withSystemVersion("s").withAppVersion("a").withLocale("l").withTimeZone("t")
            .withNotifications(false);
        assertArrayEquals(
            Identifier.bytes("a20116" + "0801" + "120162" + "1a016d" + "220173" + "2a0161" + "32016c" + "3a0174" + "4002"),
            body(attributes));
        attributes = new DeviceAttributes().withNotifications(true).withPlatform(DeviceAttributes.Platform.OTHER);
        assertArrayEquals(Identifier.bytes("a20104" + "0806" + "4001"), body(attributes));
    }

    @Test
    public void absentAndEmptyAttributesDiffer() {
        assertArrayEquals(new byte[0], body(null));
        assertArrayEquals(Identifier.bytes("a20100"), body(new DeviceAttributes()));
    }

    @Test
    public void longTextsAreLeftOut() {
        byte[] none = body(new DeviceAttributes());
        assertArrayEquals(none, body(new DeviceAttributes().withModel(text(65)).withBrand(null).withLocale(text(36))));
        String longest = text(64);
        String found = new String(body(new DeviceAttributes().withModel(longest)), StandardCharsets.UTF_8);
        assertTrue(found.endsWith(longest));
    }

    @Test
    public void theSystemIsKnown() {
        String found = new String(body(DeviceAttributes.ofSystem()), StandardCharsets.UTF_8);
        assertTrue(found, found.contains(System.getProperty("os.name")));
    }
}
