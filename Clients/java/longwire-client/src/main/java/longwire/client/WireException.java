package longwire.client;

/** A fault in a peer's bytes, with the code of the Close that answers it. */
final class WireException extends Exception {
    private static final long serialVersionUID = 1;

    final int code;

    WireException(int code, String reason) {
        // A fault is an ordinary value here, and its stack trace would cost more than the decoding.
        super(reason, null, false, false);
        this.code = code;
    }

    static WireException malformed(String reason) {
        return new WireException(CloseCode.MALFORMED, reason);
    }
}
