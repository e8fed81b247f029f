package longwire.client;

/** The first byte of a frame. */
final class FrameType {
    static final int HELLO = 1;
    static final int WELCOME = 2;
    static final int CLOSE = 3;
    static final int PING = 4;
    static final int PONG = 5;
    static final int DELIVER = 6;
    static final int ACK = 7;
    static final int DEVICE_UPDATE = 8;
    static final int UPDATE_RESULT = 9;
    static final int FEEDBACK = 10;
    static final int REVOKE = 11;
    static final int UPSTREAM = 12;
    static final int UPSTREAM_RESULT = 13;
    static final int PUBLISH = 14;
    static final int PUBLISH_RESULT = 15;
    static final int DEVICE_NAMES = 16;
    static final int DEVICE_NAMES_RESULT = 17;

    private static final String[] NAMES = {
        "", "hello", "welcome", "close", "ping", "pong", "deliver", "ack", "deviceUpdate", "updateResult", "feedback",
        "revoke",
        "upstream", "upstreamResult", "publish", "publishResult", "deviceNames", "deviceNamesResult",
    };

    static boolean isKnown(int type) {
        return type >= HELLO && type <= DEVICE_NAMES_RESULT;
    }

    static String name(int type) {
        return NAMES[type];
    }

    private FrameType() {}
}
