package longwire.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.io.File;
import java.util.Collections;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** A whole client over TCP: threads, executors, calls before the start and after the stop. */
public class LongwireClientTest implements Listener {
    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();
    private FakeGateway gateway;
    private final BlockingQueue<ReceivedMessage> messages = new LinkedBlockingQueue<>();
    private final BlockingQueue<VendorMessage> vendorMessages = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> events = new LinkedBlockingQueue<>();
    private LongwireClient client;

    @Before
    public void open() throws Exception {
        gateway = new FakeGateway();
    }

    @After
    public void close() throws Exception {
        if (client != null) {
            client.stop();
            assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        }
        gateway.close();
    }

    @Override
    public void onMessage(ReceivedMessage message) {
        messages.add(message);
        if (message.text().equals("throw")) {
            throw new IllegalStateException("the app's fault");
        }
    }

    @Override
    public void onVendorMessage(VendorMessage message) {
        vendorMessages.add(message);
        events.add(Thread.currentThread().getName());
        if (message.push().payload().equals("throw")) {
            throw new IllegalStateException("the app's fault");
        }
    }

    @Override
    public void onCallbackFailed(RuntimeException error) {
        events.add(error.getMessage());
    }

    @Override
    public void onStopped(LongwireException error) {
        events.add("stopped " + error);
    }

    @Override
    public void onRevoked(Identifier taskId) {
        events.add("revoked " + taskId);
    }

    @Override
    public void onStateNotStored(LongwireException error) {
        events.add("not stored");
    }

    @Override
    public void onMessageRefused(OutgoingMessage message, long code, String reason) {
        events.add("refused " + reason);
    }

    /** A store in memory whose disk may be full. */
    static final class FaultyStore implements StateStore {
        private final MemoryStateStore memory = new MemoryStateStore();
        volatile boolean isFull;

        @Override
        public byte[] load() {
            return memory.load();
        }

        @Override
        public void save(byte[] state) throws LongwireException {
            if (isFull) {
                throw new LongwireException(LongwireException.Code.STATE_UNWRITABLE, "the disk is full");
            }
            memory.save(state);
        }

        ClientState state() throws LongwireException {
            return ClientState.parse(load());
        }
    }

    private String event() throws Exception {
        return events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    private ClientConfiguration configuration() {
        return new ClientConfiguration("127.0.0.1", gateway.port(), "demo").setAppSecret("secret").setTls(false)
            .setReconnectDelays(1, 10);
    }

    private LongwireClient start(ClientConfiguration configuration) throws Exception {
        client = new LongwireClient(configuration, new FileStateStore(new File(folder.getRoot(), "state")), this);
        client.start();
        gateway.awaitSession();
        return client;
    }

    private ReceivedMessage next() throws Exception {
        ReceivedMessage message = messages.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertTrue("a message came", message != null);
        return message;
    }

    @Test
    public void messagesEndInAnyOrderFromAnyThread() throws Exception {
        start(configuration());
        for (int sequence = 1; sequence <= 3; sequence++) {
            gateway.deliver(sequence, "message " + sequence, null);
        }
        ReceivedMessage first = next();
        ReceivedMessage second = next();
        ReceivedMessage third = next();
        assertTrue(third.processed());
        assertFalse("a verdict counts once", third.rejected("no"));
        gateway.await(FrameType.ACK);
        assertTrue(first.processed());
        gateway.awaitAck(1);
        assertTrue(second.processed());
        gateway.awaitAck(3);
        assertEquals(FakeGateway.CID, client.cid());
    }

    @Test
    public void aCallbackThatThrowsDefersItsMessage() throws Exception {
        start(configuration());
        gateway.deliver(1, "throw", null);
        next();
        assertEquals("the app's fault", events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
        gateway.deliver(2, "next", null);
        next().processed();
        gateway.await(FrameType.ACK);
        gateway.cut();
        gateway.awaitSession();
        gateway.deliver(1, "again", null);
        assertEquals("again", next().text());
    }

    @Test
    public void messagesThatWaitForTheExecutorAreWithdrawn() throws Exception {
        ExecutorService executor = Executors.newSingleThreadExecutor();
        try {
            Semaphore gate = new Semaphore(0);
            executor.execute(gate::acquireUninterruptibly);
            start(configuration().setExecutor(executor));
            gateway.deliver(1, "early", null);
            gateway.roundTrip();
            client.setApplicationState(ApplicationState.BACKGROUND, false);
            gateway.await(FrameType.DEVICE_UPDATE);
            gate.release();
            executor.submit(() -> {}).get(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS);
            assertTrue("the callback of a withdrawn message is not made", messages.isEmpty());
        } finally {
            executor.shutdown();
        }
    }

    @Test
    public void callsBeforeTheStartAndAfterTheStopAreKept() throws Exception {
        FileStateStore store = new FileStateStore(new File(folder.getRoot(), "state"));
        client = new LongwireClient(configuration(), store, this);
        assertTrue(client.report(MessageReport.shown(FakeGateway.message(5))));
        assertFalse("no client runs", client.setBadge(3));
        client.start();
        gateway.awaitSession();
        assertEquals("1 0 " + FakeGateway.message(5), gateway.awaitFeedback());
        try {
            client.start();
            fail("a second start was accepted");
        } catch (LongwireException error) {
            assertEquals(LongwireException.Code.WRONG_STATE, error.code());
        }
        gateway.deliver(1, "late", null);
        ReceivedMessage late = next();
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        assertEquals("stopped null", events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertTrue("the verdict goes into the store", late.processed());
        assertTrue(ClientState.parse(store.load()).stream(0).contains(1));
        assertTrue(client.send(new byte[] {1}, Identifier.NONE));
        client.start();
        gateway.awaitSession();
        gateway.await(FrameType.UPSTREAM);
    }

    /** The client is in a long backoff after a failed write, so no Hello stores the changes before the stop. */
    @Test
    public void aStopRepeatsAFailedWrite() throws Exception {
        FaultyStore store = new FaultyStore();
        client = new LongwireClient(configuration().setReconnectDelays(100_000, 100_000), store, this);
        client.start();
        gateway.awaitSession();
        store.isFull = true;
        assertTrue(client.markOpened(FakeGateway.message(1)));
        assertEquals("not stored", event());
        store.isFull = false;
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        assertEquals("stopped null", event());
        assertTrue(store.state().unreportedOpened.contains(FakeGateway.message(1)));

        // If the stop cannot store the tap either, it says so, and the app can record the tap again.
        client.start();
        gateway.awaitSession();
        store.isFull = true;
        assertTrue(client.markOpened(FakeGateway.message(2)));
        assertEquals("not stored", event());
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        assertEquals("not stored", event());
        assertEquals("stopped STATE_UNWRITABLE: the disk is full", event());
        store.isFull = false;
        assertFalse(client.wasOpened(FakeGateway.message(2)));
        assertTrue(client.markOpened(FakeGateway.message(2)));
        assertTrue(store.state().unreportedOpened.contains(FakeGateway.message(2)));
    }

    /** Otherwise a message that is too large for the store would prevent each later write. */
    @Test
    public void aMessageThatCannotBeStoredIsRefused() throws Exception {
        FaultyStore store = new FaultyStore();
        client = new LongwireClient(configuration(), store, this);
        client.start();
        gateway.awaitSession();
        store.isFull = true;
        assertTrue(client.send(new byte[] {1}, Identifier.NONE));
        assertEquals("not stored", event());
        assertEquals("refused the message could not be stored: the disk is full", event());
        store.isFull = false;
        gateway.awaitSession();
        assertTrue(client.send(new byte[] {2}, Identifier.NONE));
        ProtoReader upstream = new ProtoReader(gateway.await(FrameType.UPSTREAM));
        assertEquals(1, upstream.next());
        assertEquals("the refused message's number is free", 1, upstream.uint32());
        assertEquals(1, store.state().outgoing.size());
    }

    /** Such a call would be lost with the process. */
    @Test
    public void aCallThatIsNotStoredIsNotAccepted() throws Exception {
        FaultyStore store = new FaultyStore();
        client = new LongwireClient(configuration(), store, this);
        assertTrue(client.send(new byte[] {1}, Identifier.NONE));
        store.isFull = true;
        assertFalse(client.send(new byte[] {2}, Identifier.NONE));
        assertFalse(client.markOpened(FakeGateway.message(1)));
        store.isFull = false;
        assertTrue(client.report(MessageReport.shown(FakeGateway.message(2))));
        assertEquals("the app may send it again, so it is not sent later", 1, store.state().outgoing.size());
        assertTrue("the tap is tried again", store.state().opened.contains(FakeGateway.message(1)));
        for (int number = 2; number <= Limits.OUTGOING_COUNT; number++) {
            assertTrue(client.send(new byte[] {3}, Identifier.NONE));
        }
        assertFalse("the queue is full", client.send(new byte[] {4}, Identifier.NONE));
    }

    @Test
    public void theStateOfAnotherAppIsNotUsed() throws Exception {
        MemoryStateStore store = new MemoryStateStore();
        ClientState other = new ClientState("other");
        other.keep(new byte[] {1}, Identifier.NONE);
        other.noteOpened(FakeGateway.message(1));
        store.save(other.serialize());
        client = new LongwireClient(configuration(), store, this);
        assertFalse(client.wasOpened(FakeGateway.message(1)));
        assertTrue(client.send(new byte[] {2}, Identifier.NONE));
        ClientState stored = ClientState.parse(store.load());
        assertEquals("demo", stored.appId);
        assertEquals(2, stored.outgoing.get(0).payload[0]);

        // A registered device of another app keeps its state.
        other.cid = FakeGateway.CID;
        other.deviceSecret = new byte[32];
        store.save(other.serialize());
        LongwireClient refused = new LongwireClient(configuration(), store, this);
        assertFalse(refused.markOpened(FakeGateway.message(2)));
        assertFalse(refused.send(new byte[] {3}, Identifier.NONE));
        assertEquals("other", ClientState.parse(store.load()).appId);
    }

    @Test
    public void theStoppedCallbackMayStartTheClientAgain() throws Exception {
        BlockingQueue<String> results = new LinkedBlockingQueue<>();
        client = new LongwireClient(configuration(), new MemoryStateStore(), new ForwardingListener(this) {
            @Override
            public void onStopped(LongwireException error) {
                try {
                    if (error != null) {
                        client.start();
                    }
                    results.add("started");
                } catch (LongwireException failure) {
                    results.add(failure.toString());
                }
            }
        });
        gateway.refuse("not now");
        client.start();
        assertEquals("started", results.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
        gateway.awaitSession();
        assertTrue(client.isRunning());
    }

    /** A removal without a session holds: across an end of the process, and until the gateway has confirmed it. */
    @Test
    public void aTokenIsRemovedWithoutASession() throws Exception {
        start(configuration().setToken(new VendorToken(VendorToken.Channel.FCM, "phone")));
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        assertTrue("the removal is kept", client.setToken(new VendorToken(VendorToken.Channel.FCM, "")));

        start(configuration());
        assertFalse(gateway.wasGreetedWith("phone"));
        assertEquals("token 1:", gateway.awaitUpdate());
        gateway.cut();
        gateway.awaitSession();
        assertEquals("no result came, so it is sent again", "token 1:", gateway.awaitUpdate());
        // The next user's token follows the removal.
        client.setToken(new VendorToken(VendorToken.Channel.FCM, "other"));
        assertEquals("token 1:other", gateway.awaitUpdate());
        gateway.cut();
        gateway.awaitSession();
        assertEquals("token 1: token 1:other", gateway.awaitUpdate());
        gateway.answerUpdate(4);
        gateway.roundTrip();
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        byte[] stored = new FileStateStore(new File(folder.getRoot(), "state")).load();
        assertTrue("the gateway has confirmed it", ClientState.parse(stored).removedTokens.isEmpty());
    }

    /** A call from another thread while the start reads the state takes effect before or after the start. */
    @Test
    public void aCallDuringTheStartIsNotOverwritten() throws Exception {
        BlockingQueue<Boolean> results = new LinkedBlockingQueue<>();
        Thread caller = new Thread(() -> results.add(client.send(new byte[] {1}, Identifier.NONE)));
        StateStore store = new StateStore() {
            private final MemoryStateStore memory = new MemoryStateStore();

            @Override
            public byte[] load() {
                byte[] bytes = memory.load();
                if (caller.getState() == Thread.State.NEW) {
                    caller.start();
                    // Wait until the call has returned, or is blocked on the lock that the start holds.
                    while (caller.isAlive() && caller.getState() != Thread.State.BLOCKED) {
                        Thread.yield();
                    }
                }
                return bytes;
            }

            @Override
            public void save(byte[] state) {
                memory.save(state);
            }
        };
        client = new LongwireClient(configuration(), store, this);
        client.start();
        assertEquals(true, results.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
        gateway.await(FrameType.UPSTREAM);
    }

    @Test
    public void aStartWithoutAThreadKeepsTheCalls() throws Exception {
        FileStateStore store = new FileStateStore(new File(folder.getRoot(), "state"));
        client = new LongwireClient(configuration(), store, this);
        client.setThreads(task -> {
            assertTrue("this call is for the client that starts", client.send(new byte[] {1}, Identifier.NONE));
            throw new OutOfMemoryError("no threads");
        });
        try {
            client.start();
            fail("a client without a thread was started");
        } catch (LongwireException error) {
            assertEquals(LongwireException.Code.SYSTEM_RESOURCE, error.code());
        }
        assertFalse(client.isRunning());
        assertTrue(client.awaitStop(0));
        assertEquals(1, ClientState.parse(store.load()).outgoing.size());
        client.setThreads(Thread::new);
        client.start();
        gateway.await(FrameType.UPSTREAM);
    }

    @Test
    public void aRevokeIsAckedAfterItsCallback() throws Exception {
        start(configuration());
        gateway.revoke(1, 9);
        assertEquals("revoked " + FakeGateway.task(9), events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
        gateway.awaitAck(1);
    }

    @Test
    public void aFetchEnds() throws Exception {
        start(configuration());
        gateway.deliver(1, "one", null);
        next().processed();
        BlockingQueue<FetchResult> results = new LinkedBlockingQueue<>();
        assertTrue(client.fetch(1, results::add));
        assertFalse(results.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS).isComplete());
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        assertFalse("no client runs", client.fetch(1, results::add));
    }

    private VendorPush push(long sequence, String payload) {
        return VendorPush.of(FakeGateway.task(sequence).taskText() + ":" + FakeGateway.message(sequence), payload);
    }

    private VendorMessage nextOfVendor() throws Exception {
        VendorMessage message = vendorMessages.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertTrue("a vendor's message came", message != null);
        return message;
    }

    @Test
    public void aVendorsCopyCountsOnce() throws Exception {
        start(configuration());
        gateway.deliver(1, "one", null);
        next().processed();
        gateway.awaitAck(1);
        assertTrue(client.receivedFromVendor(push(1, "the connection was first")));
        assertTrue(client.receivedFromVendor(push(2, "two")));
        VendorMessage two = nextOfVendor();
        assertEquals("two", two.push().payload());
        assertTrue(two.processed());
        assertFalse("a verdict counts once", two.deferred());
        assertTrue(client.receivedFromVendor(push(2, "again")));
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        assertFalse("no thread for the callback", client.receivedFromVendor(push(3, "three")));
        LongwireClient later = new LongwireClient(
            configuration().setExecutor(Runnable::run), new FileStateStore(new File(folder.getRoot(), "state")), this);
        assertTrue(later.receivedFromVendor(push(2, "also before the next start")));
        assertTrue(later.receivedFromVendor(push(4, "four")));
        assertEquals("four", nextOfVendor().push().payload());
    }

    @Test
    public void aVendorsMessageIsRecordedAfterItsVerdict() throws Exception {
        ExecutorService executor = Executors.newSingleThreadExecutor(task -> new Thread(task, "callbacks"));
        MemoryStateStore store = new MemoryStateStore();
        client = new LongwireClient(configuration().setExecutor(executor), store, this);
        client.start();
        gateway.awaitSession();
        client.receivedFromVendor(push(1, "one"));
        VendorMessage one = nextOfVendor();
        assertEquals("callbacks", events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
        client.receivedFromVendor(push(2, "throw"));
        nextOfVendor();
        assertEquals("callbacks", events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertEquals("the app's fault", events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));

        // The first message's callback failed, so its copy is delivered. The second one's copy is held until the verdict.
        gateway.deliver(1, "one", null, true);
        gateway.deliver(2, "two", null, true);
        ReceivedMessage two = next();
        assertEquals("two", two.text());
        assertTrue(ClientState.parse(store.load()).seen.isEmpty());
        assertTrue(one.processed());
        gateway.awaitAck(1);
        assertTrue(two.processed());
        gateway.awaitAck(2);
        assertTrue("the copy of the first one was not handed over", messages.isEmpty());
        assertTrue(ClientState.parse(store.load()).seen.contains(FakeGateway.message(1)));

        // After a deferral the held copy is delivered.
        client.receivedFromVendor(push(3, "three"));
        VendorMessage three = nextOfVendor();
        gateway.deliver(3, "three", null, true);
        gateway.deliver(4, "four", null, true);
        assertEquals("four", next().text());
        assertTrue(three.deferred());
        assertEquals("three", next().text());
        executor.shutdown();
        assertFalse("the app has shut its executor down", client.receivedFromVendor(push(5, "five")));
    }

    @Test
    public void aTapCountsOnceAcrossRuns() throws Exception {
        FileStateStore store = new FileStateStore(new File(folder.getRoot(), "state"));
        LongwireClient earlier = new LongwireClient(configuration(), store, this);
        assertTrue(earlier.markOpened(FakeGateway.message(1)));
        assertTrue(earlier.wasOpened(FakeGateway.message(1)));
        start(configuration());
        assertTrue(client.wasOpened(FakeGateway.message(1)));
        assertFalse(client.wasOpened(FakeGateway.message(2)));
        assertTrue(client.markOpened(FakeGateway.message(1)));
        assertTrue(client.markOpened(FakeGateway.message(2)));
        assertEquals("0 0 " + FakeGateway.message(1), gateway.awaitFeedback());
        assertEquals("0 0 " + FakeGateway.message(2), gateway.awaitFeedback());
        client.report(MessageReport.shown(FakeGateway.message(3)));
        assertEquals("no second report", "1 0 " + FakeGateway.message(3), gateway.awaitFeedback());
    }

    @Test
    public void aVerdictAfterTheStopAlsoCountsForTheVendorsCopy() throws Exception {
        start(configuration());
        gateway.deliver(1, "one", "Title", true);
        ReceivedMessage late = next();
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        assertTrue(late.processed());
        byte[] stored = new FileStateStore(new File(folder.getRoot(), "state")).load();
        assertEquals(Collections.singletonList(FakeGateway.message(1)), ClientState.parse(stored).seen);
    }

    @Test
    public void badSettingsAreNamed() {
        ClientConfiguration[] all = {
            new ClientConfiguration("", 1, "demo"), new ClientConfiguration("h", 0, "demo"),
            new ClientConfiguration("h", 1, ""),
            configuration().setHeartbeatSeconds(29), configuration().setWindow(-1),
            configuration().setReconnectDelays(5, 4),
            configuration().setPinnedCertificates(new byte[31]), configuration().setPinnedCertificates(new byte[32]),
            configuration().setAppSecret(""), configuration().setTrustedCertificates(new File("x")),
        };
        for (ClientConfiguration bad : all) {
            try {
                new LongwireClient(bad, new MemoryStateStore(), this).start();
                fail(bad + " was accepted");
            } catch (LongwireException error) {
                assertEquals(LongwireException.Code.BAD_CONFIGURATION, error.code());
            }
        }
    }
}
