package longwire.client;

/**
 * The codes of a Close frame that clients act on.
 *
 * <p>The hundreds digit selects the reconnect rule (Proto/README.md, "Close").
 */
public final class CloseCode {
    /** The peer disconnects voluntarily. */
    public static final int GOODBYE = 100;
    /** The Hello's timestamp is too far off, or does not increase. */
    public static final int CLOCK_SKEW = 300;
    /** The gateway does not know the cid; the device registers again. */
    public static final int UNKNOWN_DEVICE = 301;
    /** A newer session of the same device took over. */
    public static final int REPLACED = 400;
    /** The proof is wrong: the secret does not belong to the app or the device. */
    public static final int BAD_PROOF = 401;
    /** A frame type that is unknown or not allowed here. */
    public static final int UNEXPECTED_FRAME = 410;
    /** A body over the limit. */
    public static final int FRAME_TOO_LARGE = 411;
    /** A body that is not a valid message of its type. */
    public static final int MALFORMED = 412;
    /** Frames or bytes far above any plausible rate. */
    public static final int FLOODS = 414;

    private CloseCode() {}
}
