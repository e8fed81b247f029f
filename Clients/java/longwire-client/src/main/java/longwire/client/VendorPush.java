package longwire.client;

import java.util.Map;

/**
 * The message behind a vendor's push: a data message, or a tapped notification.
 *
 * <p>docs/use/Vendors.md, "The id for the app", lists the place of {@code _gmid_} and {@code payload} for each vendor.
 */
public final class VendorPush {
    /** The key of the ids: {@code TASKID:MSGID}. */
    public static final String IDS_KEY = "_gmid_";
    /** The key of the publisher's payload. */
    public static final String PAYLOAD_KEY = "payload";

    private final Identifier taskId;
    private final Identifier messageId;
    private final String payload;

    private VendorPush(Identifier taskId, Identifier messageId, String payload) {
        this.taskId = taskId;
        this.messageId = messageId;
        this.payload = payload;
    }

    /**
     * Reads the values of a push.
     *
     * @param ids the value of {@link #IDS_KEY}, or {@code null}
     * @param payload the value of {@link #PAYLOAD_KEY}, or {@code null}
     * @return the push, or {@code null} if it is not from the gateway
     */
    public static VendorPush of(String ids, String payload) {
        int colon = ids == null ? -1 : ids.indexOf(':');
        if (colon < 0) {
            return null;
        }
        Identifier task = Identifier.parseTask(ids.substring(0, colon));
        Identifier message = Identifier.parse(ids.substring(colon + 1));
        return task == null || message == null ? null : new VendorPush(task, message, payload);
    }

    /**
     * Reads a map, such as the data of FCM or the parameters of vivo.
     *
     * @param data the map
     * @return the push, or {@code null} if it is not from the gateway
     */
    public static VendorPush of(Map<String, String> data) {
        return of(data.get(IDS_KEY), data.get(PAYLOAD_KEY));
    }

    /**
     * Reads a JSON object, such as the data of Huawei or the payload of Xiaomi.
     *
     * @param json the text
     * @return the push, or {@code null} if the text is no JSON object or not from the gateway
     */
    public static VendorPush ofJson(String json) {
        try {
            Map<String, Object> members = JsonReader.object(json);
            return of(text(members.get(IDS_KEY)), text(members.get(PAYLOAD_KEY)));
        } catch (IllegalArgumentException error) {
            return null;
        }
    }

    private static String text(Object value) {
        return value instanceof String ? (String) value : null;
    }

    /**
     * Returns the task of the push.
     *
     * @return the taskId
     */
    public Identifier taskId() {
        return taskId;
    }

    /**
     * Returns the message's id, equal to that of the copy on the connection.
     *
     * @return the msgId
     */
    public Identifier messageId() {
        return messageId;
    }

    /**
     * Returns the publisher's payload.
     *
     * @return the payload, or {@code null} if the push carries none
     */
    public String payload() {
        return payload;
    }
}
