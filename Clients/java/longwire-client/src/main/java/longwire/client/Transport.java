package longwire.client;

/**
 * A non-blocking connection to a gateway.
 *
 * <p>Confined to the client's thread, which calls {@link #serve} and {@link #read} whenever something may have
 * happened.
 */
interface Transport {
    /** A function that starts a connection. */
    interface Maker {
        Transport connect(Endpoint endpoint) throws TransportException;
    }

    /** Whether bytes can be sent, with the TLS handshake complete. */
    boolean isOpen();

    /** The latest time to call {@link #serve}, in monotonic milliseconds, or {@code Long.MAX_VALUE}. */
    long deadline();

    /** Whether the last read left bytes behind, so that the caller must not wait for the socket. */
    boolean hasMoreToRead();

    /** Registers the events to wait for. */
    void prepareToWait();

    /** Continues to connect, and writes pending bytes. */
    void serve() throws TransportException;

    /**
     * Reads the bytes that have arrived, and returns their count; 0 if none have.
     *
     * @throws TransportException the reason why the connection ended, once all bytes before the end were returned
     */
    int read(byte[] target) throws TransportException;

    /**
     * Appends bytes to the outgoing buffer and sends as much as possible.
     *
     * @throws TransportException the connection's failure, or a failure when too many bytes are pending
     */
    void write(byte[] bytes) throws TransportException;

    /** Flushes pending bytes, signals the end of the stream, waits shortly for the gateway's end, and closes. */
    void closeGracefully();

    /** Closes at once. */
    void close();
}
