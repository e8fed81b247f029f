package longwire.client;

/**
 * An error of the client, with its kind and a message that names the cause and, where possible, a remedy. It never holds a
 * secret, a token or a payload.
 */
public final class LongwireException extends Exception {
    private static final long serialVersionUID = 1;

    /** The kind of an error. Later versions may add kinds: treat an unknown one like a general failure. */
    public enum Code {
        /**
         * The state cannot be read now, or belongs to another app. Nothing was changed. On a phone that was not
         * unlocked since it started, retry later.
         */
        STATE_UNREADABLE,
        /**
         * The state is damaged, or of a newer version. Nothing was changed. {@link FileStateStore#setAside} allows the
         * device to register anew.
         */
        STATE_DAMAGED,
        /** The state could not be written, so nothing was acked. */
        STATE_UNWRITABLE,
        /** The configuration is invalid. */
        BAD_CONFIGURATION,
        /** The gateway refused the client with a code after which it does not reconnect. */
        REFUSED,
        /** The peer violated the protocol. */
        PROTOCOL_VIOLATION,
        /** The network or the gateway is unreachable; a running client retries. */
        UNREACHABLE,
        /** The system gave no thread or descriptor. */
        SYSTEM_RESOURCE,
        /** The call is not possible now: the client already runs. */
        WRONG_STATE
    }

    /** The kind of the error. */
    private final Code code;
    /** The code of the Close that caused the error, or 0. */
    private final long closeCode;

    LongwireException(Code code, String message, long closeCode, Throwable cause) {
        super(message, cause);
        this.code = code;
        this.closeCode = closeCode;
    }

    /**
     * Creates an error.
     *
     * @param code the kind
     * @param message the cause and a remedy
     */
    public LongwireException(Code code, String message) {
        this(code, message, 0, null);
    }

    /**
     * Creates an error with a cause.
     *
     * @param code the kind
     * @param message the cause and a remedy
     * @param cause the cause
     */
    public LongwireException(Code code, String message, Throwable cause) {
        this(code, message, 0, cause);
    }

    /**
     * Returns the kind of the error.
     *
     * @return the code
     */
    public Code code() {
        return code;
    }

    /**
     * Returns the gateway's close code.
     *
     * @return the code of the Close that caused the error, or 0 (docs/use/Errors.md, "Close codes")
     */
    public long closeCode() {
        return closeCode;
    }

    @Override
    public String toString() {
        return code + ": " + getMessage();
    }
}
