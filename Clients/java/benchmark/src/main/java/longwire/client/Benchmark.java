package longwire.client;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The speed of the client against a sender on the same machine, and its cost when idle: {@code
 * Clients/java/benchmark.sh}.
 *
 * <p>The sender is a gateway for one device that has any number of messages. It respects the window, so that each
 * message is received, recorded and acked as with a real gateway.
 */
public final class Benchmark {
    private static final Identifier CID = new Identifier(1, 2);

    private Benchmark() {}

    /**
     * Runs one part.
     *
     * @param words {@code send PORT WINDOW PAYLOAD HEARTBEAT}, {@code receive PORT WINDOW MESSAGES file|ram|memory} or
     *     {@code idle PORT SECONDS}
     * @throws Exception when the part fails
     */
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        switch (words[0]) {
            case "send":
                send(port, Integer.parseInt(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]));
                break;
            case "receive": receive(port, Integer.parseInt(words[2]), Long.parseLong(words[3]), words[4]); break;
            default: idle(port, Integer.parseInt(words[2]));
        }
    }

    // The sender.

    private static void send(int port, int window, int payload, int heartbeat) throws Exception {
        try (ServerSocket server = new ServerSocket(port, 8, InetAddress.getLoopbackAddress())) {
            System.out.println("ready");
            while (true) {
                try (Socket socket = server.accept()) {
                    socket.setTcpNoDelay(true);
                    serve(socket, window, payload, heartbeat);
                } catch (IOException error) {
                    // The receiver has all that it wants.
                    System.out.println("the receiver left");
                }
            }
        }
    }

    private static void serve(Socket socket, int window, int payload, int heartbeat) throws Exception {
        DataInputStream input = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 65_536));
        OutputStream output = new BufferedOutputStream(socket.getOutputStream(), 65_536);
        frame(input);
        ProtoWriter welcome = ProtoWriter.ofFrame(FrameType.WELCOME);
        welcome.number(2, 1);
        welcome.number(3, heartbeat);
        welcome.number(4, window);
        welcome.identifier(8, CID);
        welcome.bytes(9, new byte[32]);
        output.write(welcome.frame());
        output.flush();
        AtomicLong acked = new AtomicLong();
        Object monitor = new Object();
        Thread reader = new Thread(() -> {
            try {
                while (true) {
                    byte[] frame = frame(input);
                    if (frame[0] == FrameType.ACK) {
                        acked.set(position(frame));
                        synchronized (monitor) {
                            monitor.notifyAll();
                        }
                    } else if (frame[0] == FrameType.PING) {
                        frame[0] = FrameType.PONG;
                        synchronized (output) {
                            output.write(frame);
                            output.flush();
                        }
                    }
                }
            } catch (IOException | WireException error) {
                acked.set(-1);
                synchronized (monitor) {
                    monitor.notifyAll();
                }
            }
        });
        reader.setDaemon(true);
        reader.start();
        byte[] content = new byte[payload];
        for (long sequence = 1; payload > 0; sequence++) {
            if (sequence - acked.get() > window) {
                synchronized (output) {
                    output.flush();
                }
                synchronized (monitor) {
                    while (acked.get() >= 0 && sequence - acked.get() > window) {
                        monitor.wait();
                    }
                }
            }
            if (acked.get() < 0) {
                return;
            }
            ProtoWriter deliver = ProtoWriter.ofFrame(FrameType.DELIVER);
            deliver.number(2, sequence);
            deliver.identifier(3, new Identifier(7, sequence));
            deliver.identifier(4, new Identifier(8, sequence));
            deliver.bytes(5, content);
            deliver.number(7, 1_764_000_000_000L);
            deliver.number(9, 1);
            synchronized (output) {
                output.write(deliver.frame());
            }
        }
        reader.join();
    }

    private static byte[] frame(DataInputStream input) throws IOException {
        int header = input.readInt();
        byte[] frame = new byte[4 + (header & 0xFFFFFF)];
        for (int index = 0; index < 4; index++) {
            frame[index] = (byte) (header >>> 24 - 8 * index);
        }
        input.readFully(frame, 4, frame.length - 4);
        return frame;
    }

    private static long position(byte[] ack) throws WireException {
        ProtoReader in = new ProtoReader();
        in.reset(ack, 4, ack.length);
        in.next();
        ProtoReader position = in.message();
        for (int field = position.next(); field != 0; field = position.next()) {
            if (field == 2) {
                return position.uint64();
            }
            position.skip();
        }
        return 0;
    }

    // The receiver.

    private static LongwireClient client(int port, int window, StateStore store, Listener listener) {
        ClientConfiguration configuration =
            new ClientConfiguration("127.0.0.1", port, "demo").setAppSecret("secret").setTls(false).setWindow(window);
        return new LongwireClient(configuration, store, listener);
    }

    private static void receive(int port, int window, long messages, String place) throws Exception {
        // With "ram" the file is on tmpfs: the run includes the file's system calls, but no disk.
        File folder = place.equals("ram") ? Files.createTempDirectory(Paths.get("/dev/shm"), "longwire").toFile()
            : Files.createTempDirectory("longwire-benchmark").toFile();
        File file = new File(folder, "state");
        try {
            CountDownLatch end = new CountDownLatch(1);
            long warm = messages / 5;
            long[] marks = new long[3];
            StateStore store = place.equals("memory") ? new MemoryStateStore() : new FileStateStore(file);
            LongwireClient client = client(port, window, store, new Listener() {
                private long count;

                @Override
                public void onMessage(ReceivedMessage message) {
                    count++;
                    if (message.sequence() != count) {
                        throw new IllegalStateException("message " + message.sequence() + " instead of " + count);
                    }
                    message.processed();
                    if (count == warm) {
                        marks[0] = System.nanoTime();
                    } else if (count == messages) {
                        marks[1] = System.nanoTime();
                        end.countDown();
                    }
                }
            });
            client.start();
            end.await();
            double seconds = (marks[1] - marks[0]) / 1e9;
            System.out.printf("%.0f messages/s, window %d, state in %s%n", (messages - warm) / seconds, window, place);
            client.stop();
            client.awaitStop(5_000);
        } finally {
            file.delete();
            folder.delete();
        }
    }

    // The idle client.

    private static void idle(int port, int seconds) throws Exception {
        File folder = Files.createTempDirectory("longwire-benchmark").toFile();
        File file = new File(folder, "state");
        try {
            long before = heap();
            CountDownLatch welcomed = new CountDownLatch(1);
            LongwireClient client = client(port, 0, new FileStateStore(file), new Listener() {
                @Override
                public void onMessage(ReceivedMessage message) {
                    message.processed();
                }

                @Override
                public void onWelcomed(WelcomeDetails details) {
                    welcomed.countDown();
                }
            });
            client.start();
            welcomed.await();
            Thread.sleep(1_500);
            long after = heap();
            long start = wakeups();
            Thread.sleep(seconds * 1_000L);
            long count = wakeups() - start;
            System.out.printf(
                "idle: %d KiB of heap, %d wake-ups of the client's thread in %d s with a heartbeat of 1 s%n",
                (after - before) / 1_024, count, seconds);
            client.stop();
            client.awaitStop(5_000);
        } finally {
            file.delete();
            folder.delete();
        }
    }

    private static long heap() throws InterruptedException {
        for (int round = 0; round < 5; round++) {
            System.gc();
            Thread.sleep(50);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    /** Returns the voluntary context switches of the client's thread: how often it went to sleep. */
    private static long wakeups() throws IOException {
        File[] tasks = new File("/proc/self/task").listFiles();
        for (File task : tasks) {
            byte[] comm = Files.readAllBytes(new File(task, "comm").toPath());
            String name = new String(comm, StandardCharsets.UTF_8).trim();
            if (name.equals("longwire")) {
                for (String line : Files.readAllLines(new File(task, "status").toPath())) {
                    if (line.startsWith("voluntary_ctxt_switches:")) {
                        return Long.parseLong(line.substring(line.indexOf(':') + 1).trim());
                    }
                }
            }
        }
        throw new IOException("the client's thread is not running");
    }
}
