package longwire.client;

/** The reason why a connection failed or ended. */
final class TransportException extends Exception {
    private static final long serialVersionUID = 1;

    TransportException(String reason) {
        super(reason);
    }
}
