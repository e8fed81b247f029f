package longwire.client;

import java.util.HashMap;
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
            return of(new Reader(json).object());
        } catch (IllegalArgumentException error) {
            return null;
        }
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

    /** A reader of one JSON object, which keeps the members that are texts. */
    private static final class Reader {
        /** Values nested deeper are refused, so that hostile text cannot exhaust the stack. */
        private static final int DEPTH = 32;

        private final String text;
        private int offset;

        Reader(String text) {
            this.text = text;
        }

        Map<String, String> object() {
            Map<String, String> members = new HashMap<>();
            readObject(members, 0);
            if (next() != 0) {
                throw new IllegalArgumentException("text behind the object");
            }
            return members;
        }

        /** Returns the next character that is no blank, or 0 at the end. */
        private char next() {
            while (offset < text.length()) {
                char character = text.charAt(offset++);
                if (character != ' ' && character != '\n' && character != '\r' && character != '\t') {
                    return character;
                }
            }
            return 0;
        }

        private void expect(char wanted) {
            if (next() != wanted) {
                throw new IllegalArgumentException("no " + wanted);
            }
        }

        private void readObject(Map<String, String> members, int depth) {
            expect('{');
            char character = next();
            while (character != '}') {
                if (character != '"') {
                    throw new IllegalArgumentException("no name");
                }
                String name = string();
                expect(':');
                String value = value(depth + 1);
                if (value != null && members != null) {
                    members.put(name, value);
                }
                character = next();
                if (character == ',') {
                    character = next();
                } else if (character != '}') {
                    throw new IllegalArgumentException("no comma");
                }
            }
        }

        /** Returns a text, or {@code null} for any other value. */
        private String value(int depth) {
            if (depth > DEPTH) {
                throw new IllegalArgumentException("nested too deeply");
            }
            char character = next();
            if (character == '"') {
                return string();
            }
            if (character == '{') {
                offset--;
                readObject(null, depth);
                return null;
            }
            if (character == '[') {
                array(depth);
                return null;
            }
            int start = offset - 1;
            while (offset < text.length()
                && "+-.0123456789abcdefghijklmnopqrstuvwxyzE".indexOf(text.charAt(offset)) >= 0) {
                offset++;
            }
            if (!text.substring(start, offset).matches("true|false|null|-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?")) {
                throw new IllegalArgumentException("no value");
            }
            return null;
        }

        private void array(int depth) {
            char character = next();
            if (character == ']') {
                return;
            }
            offset--;
            while (true) {
                value(depth + 1);
                character = next();
                if (character == ']') {
                    return;
                }
                if (character != ',') {
                    throw new IllegalArgumentException("no comma");
                }
            }
        }

        private String string() {
            StringBuilder value = new StringBuilder();
            while (offset < text.length()) {
                char character = text.charAt(offset++);
                if (character == '"') {
                    return value.toString();
                }
                if (character != '\\') {
                    value.append(character);
                    continue;
                }
                char escaped = offset < text.length() ? text.charAt(offset++) : 0;
                int plain = "bfnrt\"\\/".indexOf(escaped);
                if (plain >= 0) {
                    value.append("\b\f\n\r\t\"\\/".charAt(plain));
                } else if (escaped == 'u' && offset + 4 <= text.length()) {
                    value.append((char) Integer.parseInt(text.substring(offset, offset + 4), 16));
                    offset += 4;
                } else {
                    throw new IllegalArgumentException("an unknown escape");
                }
            }
            throw new IllegalArgumentException("a text without an end");
        }
    }
}
