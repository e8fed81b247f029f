package longwire.client;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;

/**
 * A connection over TCP or TLS.
 *
 * <p>TLS runs in an {@link SSLEngine} on a non-blocking channel. The client's single thread waits for bytes, calls and
 * timers at the same time. A blocking {@code SSLSocket} would need a second thread or a timer, because another thread
 * cannot wake its reader without a close.
 */
final class SocketTransport implements Transport {
    private enum Phase { RESOLVING, CONNECTING, HANDSHAKE, OPEN }

    private static final ByteBuffer EMPTY = ByteBuffer.allocate(0);

    private final Selector selector;
    private final Endpoint endpoint;
    private final TlsSettings tls;
    private final ClientClock clock;
    private final NameLookup lookup;
    private Phase phase = Phase.RESOLVING;
    private SocketChannel channel;
    private SelectionKey key;
    private final Deque<InetAddress> candidates = new ArrayDeque<>();
    private long addressDeadline;
    private int handshakeEvents;

    // Buffers before a read are between position and limit.
    private SSLEngine engine;
    /** Received TLS records. */
    private ByteBuffer networkIn = EMPTY;
    /** Decrypted bytes. */
    private ByteBuffer plainIn = EMPTY;
    /** TLS records to send. */
    private ByteBuffer networkOut = EMPTY;
    /** Plain bytes to send. */
    private ByteBuffer outbox = EMPTY;
    private boolean hasMoreToRead;
    /** The number of records that this read or this step of the handshake may still decrypt. */
    private int recordsLeft;
    /** The reason why the connection ended; thrown once all earlier bytes have been read. */
    private TransportException end;

    /**
     * Starts to connect. A name is looked up on another thread, which calls {@code wake} at the end.
     *
     * @param tls the settings of TLS, or {@code null} for plain TCP
     */
    SocketTransport(Selector selector, Endpoint endpoint, TlsSettings tls, ClientClock clock, Runnable wake)
        throws TransportException {
        this.selector = selector;
        this.endpoint = endpoint;
        this.tls = tls;
        this.clock = clock;
        lookup = new NameLookup(endpoint.host, clock, InetAddress::getAllByName, wake);
    }

    @Override
    public boolean isOpen() {
        return phase == Phase.OPEN;
    }

    @Override
    public long deadline() {
        if (phase == Phase.RESOLVING) {
            return lookup.deadline();
        }
        return phase == Phase.CONNECTING && !candidates.isEmpty() ? addressDeadline : Long.MAX_VALUE;
    }

    @Override
    public boolean hasMoreToRead() {
        return hasMoreToRead;
    }

    @Override
    public void prepareToWait() {
        if (key == null || !key.isValid()) {
            return;
        }
        int events;
        switch (phase) {
            case CONNECTING: events = SelectionKey.OP_CONNECT; break;
            case HANDSHAKE: events = handshakeEvents; break;
            default: events = SelectionKey.OP_READ | (isFlushed() ? 0 : SelectionKey.OP_WRITE);
        }
        if (key.interestOps() != events) {
            key.interestOps(events);
        }
    }

    // Connecting.

    @Override
    public void serve() throws TransportException {
        try {
            if (phase == Phase.RESOLVING) {
                InetAddress[] addresses = lookup.result();
                if (addresses == null) {
                    return;
                }
                candidates.addAll(Arrays.asList(addresses));
                phase = Phase.CONNECTING;
                connectToNext("no address");
            }
            if (phase == Phase.CONNECTING) {
                continueConnecting();
            }
            if (phase == Phase.HANDSHAKE) {
                continueHandshake();
            }
            if (phase == Phase.OPEN) {
                flush();
                if (end != null && !isFlushed()) {
                    throw end;
                }
            }
        } catch (IOException error) {
            throw broken(error);
        }
    }

    private TransportException broken(IOException error) {
        if (phase == Phase.HANDSHAKE) {
            Throwable cause = error;
            while (cause.getCause() != null && cause.getCause() != cause) {
                cause = cause.getCause();
            }
            return new TransportException("TLS with " + endpoint.host + " failed: " + text(cause));
        }
        return new TransportException("the connection broke: " + text(error));
    }

    private static String text(Throwable error) {
        return error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
    }

    private void connectToNext(String failure) throws TransportException {
        String reason = failure;
        while (!candidates.isEmpty()) {
            InetAddress address = candidates.removeFirst();
            close();
            addressDeadline = clock.monotonicMillis() + Limits.ADDRESS_TIME;
            try {
                channel = SocketChannel.open();
                channel.configureBlocking(false);
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                key = channel.register(selector, 0);
                channel.connect(new InetSocketAddress(address, endpoint.port));
                return;
            } catch (IOException error) {
                reason = text(error);
            } catch (RuntimeException error) {
                // An address that the system does not support is reported so.
                reason = text(error);
            }
        }
        close();
        throw new TransportException("cannot connect to " + endpoint + ": " + reason);
    }

    private void continueConnecting() throws IOException, TransportException {
        while (true) {
            try {
                if (!channel.isConnected() && !channel.finishConnect()) {
                    // An unresponsive address must not use up the time of the others.
                    if (clock.monotonicMillis() < deadline()) {
                        return;
                    }
                    connectToNext("no answer");
                    continue;
                }
                break;
            } catch (IOException error) {
                connectToNext(text(error));
            }
        }
        if (tls == null) {
            phase = Phase.OPEN;
            return;
        }
        engine = tls.engine(endpoint);
        networkIn = emptied(engine.getSession().getPacketBufferSize());
        networkOut = emptied(engine.getSession().getPacketBufferSize());
        plainIn = emptied(engine.getSession().getApplicationBufferSize());
        engine.beginHandshake();
        phase = Phase.HANDSHAKE;
    }

    private static ByteBuffer emptied(int size) {
        ByteBuffer buffer = ByteBuffer.allocate(size);
        buffer.limit(0);
        return buffer;
    }

    private void continueHandshake() throws IOException, TransportException {
        recordsLeft = Limits.RECORD_COUNT;
        hasMoreToRead = false;
        while (true) {
            if (recordsLeft == 0) {
                // The next turn continues, after the app's calls and the deadlines.
                hasMoreToRead = true;
                return;
            }
            if (end != null) {
                throw new TransportException("TLS with " + endpoint.host + " failed: " + end.getMessage());
            }
            switch (engine.getHandshakeStatus()) {
                case NEED_TASK: runTasks(); break;
                case NEED_WRAP:
                    if (!wrap(EMPTY)) {
                        handshakeEvents = SelectionKey.OP_WRITE;
                        return;
                    }
                    break;
                case NEED_UNWRAP:
                    if (!sendRecords()) {
                        handshakeEvents = SelectionKey.OP_WRITE;
                        return;
                    }
                    if (unwrap() == 0 && engine.getHandshakeStatus() == HandshakeStatus.NEED_UNWRAP) {
                        handshakeEvents = SelectionKey.OP_READ;
                        if (end == null) {
                            return;
                        }
                    }
                    break;
                default:
                    if (!sendRecords()) {
                        handshakeEvents = SelectionKey.OP_WRITE;
                        return;
                    }
                    tls.checkPins(engine.getSession(), endpoint.host);
                    phase = Phase.OPEN;
                    return;
            }
        }
    }

    private void runTasks() {
        for (Runnable task = engine.getDelegatedTask(); task != null; task = engine.getDelegatedTask()) {
            task.run();
        }
    }

    // Bytes.

    @Override
    public int read(byte[] target) throws TransportException {
        try {
            recordsLeft = Limits.RECORD_COUNT;
            int count = engine == null ? readPlain(target) : readTls(target);
            if (count == 0 && end != null) {
                hasMoreToRead = false;
                throw end;
            }
            // If the target is full or the limit of records is reached, bytes may remain in the socket or undecrypted.
            hasMoreToRead = end != null || plainIn.hasRemaining() || count == target.length || recordsLeft == 0;
            return count;
        } catch (IOException error) {
            throw broken(error);
        }
    }

    private int readPlain(byte[] target) throws IOException {
        int count = end != null ? 0 : channel.read(ByteBuffer.wrap(target));
        if (count < 0) {
            end = new TransportException("the gateway closed the connection");
        }
        return Math.max(0, count);
    }

    private int readTls(byte[] target) throws IOException {
        int total = 0;
        while (total < target.length) {
            if (!plainIn.hasRemaining() && (end != null || unwrap() == 0)) {
                break;
            }
            int count = Math.min(target.length - total, plainIn.remaining());
            plainIn.get(target, total, count);
            total += count;
        }
        return total;
    }

    /**
     * Decrypts received records, and reads from the socket if they are incomplete.
     *
     * @return the number of decrypted bytes. 0 means that no complete record is left, that {@code recordsLeft} is 0, that
     *     the handshake needs a step, or that the connection has ended.
     */
    private int unwrap() throws IOException {
        while (recordsLeft > 0) {
            plainIn.compact();
            SSLEngineResult result;
            try {
                result = engine.unwrap(networkIn, plainIn);
            } finally {
                plainIn.flip();
            }
            switch (result.getStatus()) {
                case BUFFER_OVERFLOW:
                    ByteBuffer larger = ByteBuffer.allocate(
                        engine.getSession().getApplicationBufferSize() + plainIn.remaining());
                    larger.put(plainIn);
                    larger.flip();
                    plainIn = larger;
                    break;
                case BUFFER_UNDERFLOW:
                    if (!receiveRecords()) {
                        return plainIn.remaining();
                    }
                    break;
                case CLOSED:
                    end = new TransportException("the gateway closed the connection");
                    return plainIn.remaining();
                default:
                    recordsLeft--;
                    if (phase == Phase.HANDSHAKE) {
                        return result.bytesConsumed() + plainIn.remaining();
                    }
                    // TLS 1.3 has messages after the handshake, such as new keys and tickets.
                    if (engine.getHandshakeStatus() == HandshakeStatus.NEED_TASK) {
                        runTasks();
                    }
                    if (engine.getHandshakeStatus() == HandshakeStatus.NEED_WRAP) {
                        wrap(EMPTY);
                    }
                    if (plainIn.hasRemaining()) {
                        return plainIn.remaining();
                    }
            }
        }
        return plainIn.remaining();
    }

    /** Reads from the socket; returns false when nothing has arrived or the stream has ended. */
    private boolean receiveRecords() throws IOException {
        if (networkIn.remaining() == networkIn.capacity()) {
            ByteBuffer larger = ByteBuffer.allocate(
                Math.max(networkIn.capacity() + 1, engine.getSession().getPacketBufferSize()));
            larger.put(networkIn);
            larger.flip();
            networkIn = larger;
        }
        networkIn.compact();
        int count;
        try {
            count = channel.read(networkIn);
        } finally {
            networkIn.flip();
        }
        if (count < 0) {
            end = new TransportException("the gateway closed the connection");
        }
        return count > 0;
    }

    @Override
    public void write(byte[] bytes) throws TransportException {
        int pending = outbox.remaining();
        if (pending + bytes.length > Limits.OUTBOX_BYTE_COUNT) {
            throw new TransportException("the gateway does not read what it is sent");
        }
        if (pending == 0) {
            outbox = ByteBuffer.wrap(bytes);
        } else {
            ByteBuffer joined = ByteBuffer.allocate(pending + bytes.length);
            joined.put(outbox).put(bytes);
            joined.flip();
            outbox = joined;
        }
        try {
            flush();
        } catch (IOException error) {
            throw broken(error);
        }
        if (end != null && !isFlushed()) {
            throw end;
        }
    }

    private boolean isFlushed() {
        return !outbox.hasRemaining() && !networkOut.hasRemaining();
    }

    private void flush() throws IOException {
        if (engine == null) {
            while (outbox.hasRemaining() && channel.write(outbox) > 0) {
                continue;
            }
            return;
        }
        while (sendRecords() && outbox.hasRemaining() && end == null) {
            int pending = outbox.remaining();
            if (!wrap(outbox) || outbox.remaining() == pending) {
                // The socket takes no more, or the peer negotiates anew and must be read first.
                return;
            }
        }
    }

    /** Sends pending TLS records; returns false when the socket takes no more now. */
    private boolean sendRecords() throws IOException {
        while (networkOut.hasRemaining()) {
            if (channel.write(networkOut) == 0) {
                return false;
            }
        }
        return true;
    }

    /** Encrypts and sends; returns false when the socket takes no more now. */
    private boolean wrap(ByteBuffer source) throws IOException {
        if (!sendRecords()) {
            return false;
        }
        while (true) {
            networkOut.clear();
            SSLEngineResult result;
            try {
                result = engine.wrap(source, networkOut);
            } finally {
                networkOut.flip();
            }
            switch (result.getStatus()) {
                case BUFFER_OVERFLOW:
                    networkOut = emptied(
                        Math.max(networkOut.capacity() + 1, engine.getSession().getPacketBufferSize()));
                    break;
                case CLOSED:
                    if (end == null) {
                        end = new TransportException("the gateway closed the connection");
                    }
                    return sendRecords();
                default: return sendRecords();
            }
        }
    }

    // Closing.

    @Override
    public void closeGracefully() {
        try {
            if (isOpen() && end == null) {
                flush();
                if (isFlushed()) {
                    if (engine != null) {
                        engine.closeOutbound();
                        wrap(EMPTY);
                    }
                    channel.shutdownOutput();
                    linger();
                }
            }
        } catch (IOException error) {
            // The connection broke before its end was sent, so the gateway notices the end without it.
            end = broken(error);
        } finally {
            close();
        }
    }

    /** Waits for the gateway to close its side, because a close with unread bytes would reset the connection. */
    private void linger() throws IOException {
        long deadline = clock.monotonicMillis() + Limits.LINGER_TIME;
        ByteBuffer rest = ByteBuffer.allocate(8_192);
        key.interestOps(SelectionKey.OP_READ);
        while (true) {
            rest.clear();
            int count = channel.read(rest);
            long left = deadline - clock.monotonicMillis();
            if (count < 0 || left <= 0) {
                return;
            }
            // A wake-up that this consumes is not lost: the client's thread looks at its mailbox before it sleeps.
            if (count == 0) {
                selector.select(left);
                selector.selectedKeys().clear();
            }
        }
    }

    @Override
    public void close() {
        if (key != null) {
            key.cancel();
            key = null;
        }
        if (channel != null) {
            try {
                channel.close();
            } catch (IOException error) {
                // The descriptor is released even so.
                channel = null;
            }
            channel = null;
        }
        if (engine != null) {
            engine.closeOutbound();
            engine = null;
        }
    }
}
