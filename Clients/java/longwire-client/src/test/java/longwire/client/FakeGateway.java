package longwire.client;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * A gateway on the loopback address for one device: it answers each Hello with a Welcome, and each Ping with a Pong.
 */
public final class FakeGateway implements Closeable {
    /** The timeout of each wait. A test that reaches it fails. */
    public static final long PATIENCE_SECONDS = 30;
    /** The id of the device that registers. */
    public static final Identifier CID = new Identifier(0x1122, 0x3344);

    private final ServerSocket server;
    private final BlockingQueue<byte[]> frames = new LinkedBlockingQueue<>();
    private final BlockingQueue<Socket> sessions = new LinkedBlockingQueue<>();
    private volatile Socket current;
    /** The reason of the Close that answers the next Hello, or {@code null}. */
    private volatile String refusal;
    private volatile byte[] lastHello = new byte[0];

    /**
     * Starts the gateway on a free port.
     *
     * @throws IOException when the system gives no port
     */
    public FakeGateway() throws IOException {
        server = new ServerSocket(0, 8, InetAddress.getLoopbackAddress());
        Thread thread = new Thread(this::accept, "gateway");
        thread.setDaemon(true);
        thread.start();
    }

    /** @return the port */
    public int port() {
        return server.getLocalPort();
    }

    private void accept() {
        while (!server.isClosed()) {
            try (Socket socket = server.accept()) {
                current = socket;
                serve(socket);
            } catch (IOException error) {
                // The client or the test has closed the connection.
                current = null;
            }
        }
    }

    private void serve(Socket socket) throws IOException {
        DataInputStream input = new DataInputStream(socket.getInputStream());
        while (true) {
            int header = input.readInt();
            byte[] frame = new byte[4 + (header & 0xFFFFFF)];
            for (int index = 0; index < 4; index++) {
                frame[index] = (byte) (header >>> 24 - 8 * index);
            }
            input.readFully(frame, 4, frame.length - 4);
            frames.add(frame);
            if (frame[0] == FrameType.HELLO && refusal != null) {
                send(Frames.close(401, refusal));
                refusal = null;
                return;
            }
            if (frame[0] == FrameType.HELLO) {
                lastHello = frame;
                ProtoWriter welcome = ProtoWriter.ofFrame(FrameType.WELCOME);
                welcome.number(2, 1);
                welcome.identifier(8, CID);
                welcome.bytes(9, new byte[32]);
                send(welcome.frame());
                sessions.add(socket);
            } else if (frame[0] == FrameType.PING) {
                byte[] pong = frame.clone();
                pong[0] = FrameType.PONG;
                send(pong);
            }
        }
    }

    /** Answers the next Hello with a Close 401. */
    public void refuse(String reason) {
        refusal = reason;
    }

    /** Waits for a Hello and returns the token of its registration; the token is also the key of its proof. */
    public String awaitRegistrationToken() throws Exception {
        return registrationToken(await(FrameType.HELLO));
    }

    /** Returns the registration token of a Hello's body, or an empty text. The token must be the key of the proof. */
    static String registrationToken(byte[] body) throws WireException {
        ProtoReader in = new ProtoReader(body);
        String token = "";
        byte[] proof = new byte[0];
        for (int field = in.next(); field != 0; field = in.next()) {
            switch (field) {
                case 6: proof = in.bytes(32); break;
                case 19: token = in.text(2_048); break;
                default: in.skip();
            }
        }
        // The proof is the last field: two bytes of its head, and 32.
        byte[] unsigned = Arrays.copyOf(body, body.length - 34);
        if (!token.isEmpty()
                && !Arrays.equals(proof, Handshake.proof(token.getBytes(StandardCharsets.UTF_8), unsigned))) {
            throw new AssertionError("the token is not the key of the proof");
        }
        return token;
    }

    /** Returns whether the last Hello has these bytes, such as a text. */
    public boolean wasGreetedWith(String text) {
        return new String(lastHello, StandardCharsets.ISO_8859_1).contains(text);
    }

    /**
     * Waits for the next session.
     *
     * @throws Exception after the patience
     */
    public void awaitSession() throws Exception {
        if (sessions.poll(PATIENCE_SECONDS, TimeUnit.SECONDS) == null) {
            throw new AssertionError("no session began");
        }
    }

    private synchronized void send(byte[] frame) throws IOException {
        OutputStream output = current.getOutputStream();
        output.write(frame);
        output.flush();
    }

    /**
     * Delivers a message, with an alert unless the title is {@code null}.
     *
     * @throws IOException when the connection has ended
     */
    public void deliver(long sequence, String payload, String title) throws IOException {
        deliver(sequence, payload, title, false);
    }

    /**
     * Delivers a message that may also have gone through a vendor.
     *
     * @throws IOException when the connection has ended
     */
    public void deliver(long sequence, String payload, String title, boolean isCarriedByVendor) throws IOException {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.DELIVER);
        out.number(2, sequence);
        out.identifier(3, message(sequence));
        out.identifier(4, task(sequence));
        out.text(5, payload);
        if (isCarriedByVendor) {
            out.number(8, 1_764_000_000_000L);
            out.number(12, 1);
        }
        if (title != null) {
            ProtoWriter alert = new ProtoWriter();
            alert.text(1, title);
            alert.text(2, "body of " + title);
            out.element(11, alert);
        }
        send(out.frame());
    }

    /**
     * Waits until the client has read everything that was sent before.
     *
     * @throws Exception after the patience
     */
    public void roundTrip() throws Exception {
        send(Frames.nonce(FrameType.PING, 1));
        await(FrameType.PONG);
    }

    /**
     * Answers a DeviceUpdate.
     *
     * @throws IOException when the connection has ended
     */
    public void answerUpdate(long request) throws IOException {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.UPDATE_RESULT);
        out.number(1, request);
        send(out.frame());
    }

    /** Waits for a DeviceNames and returns its number, operation, alias, type, tags and token as text. */
    public String awaitNames() throws Exception {
        return names(await(FrameType.DEVICE_NAMES));
    }

    static String names(byte[] body) throws WireException {
        ProtoReader in = new ProtoReader(body);
        long request = 0;
        long operation = 0;
        StringBuilder texts = new StringBuilder();
        for (int field = in.next(); field != 0; field = in.next()) {
            switch (field) {
                case 1: request = in.uint32(); break;
                case 2: operation = in.uint32(); break;
                case 3: texts.append(" alias ").append(in.text(2_000)); break;
                case 4: texts.append(" type ").append(in.text(2_000)); break;
                case 6: texts.append(" token ").append(in.text(2_048)); break;
                default: texts.append(" tag ").append(in.text(2_000));
            }
        }
        return request + " operation " + operation + texts;
    }

    /**
     * Answers a DeviceNames.
     *
     * @throws IOException when the connection has ended
     */
    public void answerNames(long request, long code, String alias, String... tags) throws IOException {
        send(namesResult(request, code, alias, tags));
    }

    static byte[] namesResult(long request, long code, String alias, String... tags) {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.DEVICE_NAMES_RESULT);
        out.number(1, request);
        out.number(2, code);
        out.text(3, code == 0 ? "" : "the reason");
        out.text(4, alias);
        for (String tag : tags) {
            out.element(5, tag.getBytes(StandardCharsets.UTF_8));
        }
        return out.frame();
    }

    /**
     * Revokes the task of a message.
     *
     * @throws IOException when the connection has ended
     */
    public void revoke(long sequence, long revoked) throws IOException {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.REVOKE);
        out.number(1, sequence);
        out.identifier(4, task(revoked));
        send(out.frame());
    }

    /** @return the msgId of a sequence */
    public static Identifier message(long sequence) {
        return new Identifier(7, sequence);
    }

    /** @return the taskId of a sequence */
    public static Identifier task(long sequence) {
        return new Identifier(0x010b1d0000000000L, sequence);
    }

    /** Ends the connection without a Close. */
    public void cut() throws IOException {
        current.close();
    }

    /**
     * Waits for a frame of a type and returns its body; frames of other types are dropped.
     *
     * @throws Exception after the patience
     */
    public byte[] await(int type) throws Exception {
        while (true) {
            byte[] frame = frames.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (frame == null) {
                throw new AssertionError("no " + FrameType.name(type) + " came");
            }
            if (frame[0] == type) {
                return Arrays.copyOfRange(frame, 4, frame.length);
            }
        }
    }

    /** Waits for an Ack whose position in stream 0 is the sequence. */
    public void awaitAck(long sequence) throws Exception {
        while (true) {
            ProtoReader ack = new ProtoReader(await(FrameType.ACK));
            while (ack.next() == 1) {
                ProtoReader position = ack.message();
                for (int field = position.next(); field != 0; field = position.next()) {
                    if (field == 2 && position.uint64() == sequence) {
                        return;
                    } else if (field != 2) {
                        position.skip();
                    }
                }
            }
        }
    }

    /** Waits for a Feedback frame and returns its kind, its action and the msgId. */
    public String awaitFeedback() throws Exception {
        ProtoReader in = new ProtoReader(await(FrameType.FEEDBACK));
        long kind = 0;
        long action = 0;
        Identifier id = Identifier.NONE;
        for (int field = in.next(); field != 0; field = in.next()) {
            switch (field) {
                case 1: kind = in.uint32(); break;
                case 2: id = in.identifier(); break;
                default: action = in.uint32();
            }
        }
        return kind + " " + action + " " + id;
    }

    /** Waits for a DeviceUpdate and returns its fields as text. */
    public String awaitUpdate() throws Exception {
        ProtoReader in = new ProtoReader(await(FrameType.DEVICE_UPDATE));
        StringBuilder text = new StringBuilder();
        for (int field = in.next(); field != 0; field = in.next()) {
            switch (field) {
                case 1: in.skip(); break;
                case 2: text.append("state ").append(in.uint32()).append(' '); break;
                case 3: text.append("runs ").append(in.bool()).append(' '); break;
                case 4: text.append("badge ").append(in.sint32()).append(' '); break;
                case 5: text.append("token ").append(token(in.message())).append(' '); break;
                case 6: text.append("off ").append(in.bool()).append(' '); break;
                default: text.append("heartbeat ").append(in.uint32()).append(' ');
            }
        }
        return text.toString().trim();
    }

    private static String token(ProtoReader in) throws WireException {
        String text = "";
        long channel = 0;
        for (int field = in.next(); field != 0; field = in.next()) {
            switch (field) {
                case 4: text = in.text(2_000); break;
                case 5: channel = in.uint32(); break;
                default: in.skip();
            }
        }
        return channel + ":" + text;
    }

    @Override
    public void close() throws IOException {
        server.close();
        Socket socket = current;
        if (socket != null) {
            socket.close();
        }
    }
}
