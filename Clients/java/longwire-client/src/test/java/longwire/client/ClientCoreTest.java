package longwire.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.Test;

/** The state machine on simulated time: order of actions, bounds, failures, hostile bytes. */
public class ClientCoreTest {
    private static final Identifier CID = new Identifier(1, 2);

    /** A core with its actions recorded, on a clock that only the test moves. */
    static final class Bench implements ClientClock, Listener {
        long time = 1_000;
        final ClientState state = new ClientState("demo");
        final ClientCore core;
        final List<String> log = new ArrayList<>();
        final List<byte[]> sent = new ArrayList<>();
        final List<ReceivedMessage> handled = new ArrayList<>();
        final List<NamesAnswer> answers = new ArrayList<>();
        boolean isDiskFull;
        boolean finishesAtOnce = true;

        Bench() {
            this("");
        }

        /** Creates a core with a token of the app's server. */
        Bench(String token) {
            state.cid = CID;
            state.deviceSecret = new byte[32];
            state.queueEpoch = 5;
            ClientConfiguration configuration =
                new ClientConfiguration("gateway.example", 7_000, "demo").setAppSecret("secret").setClock(this);
            core = new ClientCore(configuration.setRegistrationToken(token), state, 1);
        }

        @Override
        public long monotonicMillis() {
            return time;
        }

        @Override
        public long wallMillis() {
            return 1_764_000_000_000L + time;
        }

        @Override
        public void onMessage(ReceivedMessage message) {
            handled.add(message);
            if (finishesAtOnce) {
                core.finish(message, ReceivedMessage.Verdict.PROCESSED, "");
            }
        }

        @Override
        public void onNames(NamesAnswer answer) {
            answers.add(answer);
        }

        @Override
        public void onRetrying(long milliseconds) {
            log.add("retrying");
        }

        @Override
        public void onStopped(LongwireException error) {
            log.add("stopped");
        }

        @Override
        public void onStateNotStored(LongwireException error) {
            log.add("notStored");
        }

        @Override
        public void onSuppressed(Identifier id, long sequence, boolean wasOpened) {
            log.add("suppressed " + sequence);
        }

        /** Performs actions as the client's thread does. */
        void turn() {
            do {
                List<Action> actions = core.takeActions();
                for (int index = 0; index < actions.size(); index++) {
                    Action action = actions.get(index);
                    switch (action.kind) {
                        case SEND:
                            sent.add((byte[]) action.value);
                            log.add(FrameType.name(((byte[]) action.value)[0]));
                            break;
                        case PERSIST:
                            if (isDiskFull) {
                                LongwireException error =
                                    new LongwireException(LongwireException.Code.STATE_UNWRITABLE, "the disk is full");
                                core.persistFailed(error, actions.subList(index + 1, actions.size()), time);
                                index = actions.size();
                            } else {
                                log.add("persist");
                                core.persisted();
                            }
                            break;
                        case STOP: onStopped((LongwireException) action.value); break;
                        case HANDLE: onMessage((ReceivedMessage) action.value); break;
                        case REVOKE: core.finishRevoke(action.sequence); break;
                        case ANSWER:
                        case REPORT: ((Event) action.value).report(this); break;
                        case DISCONNECT: log.add("disconnect"); break;
                        default: log.add(action.kind.toString());
                    }
                }
                core.endTurn(time);
            } while (core.hasActions());
        }

        void receive(byte[] frame) {
            core.receive(frame, frame.length, time);
            turn();
        }

        void connect() {
            connectWithoutClearing();
            log.clear();
            sent.clear();
        }

        void connectWithoutClearing() {
            if (core.phase() == ClientCore.Phase.WAITING) {
                time = core.deadline();
                core.wake(time);
            } else {
                core.start(time);
            }
            turn();
            core.connected(time);
            turn();
            ProtoWriter welcome = ProtoWriter.ofFrame(FrameType.WELCOME);
            welcome.number(2, 5);
            if (!state.isRegistered()) {
                welcome.identifier(8, CID);
                welcome.bytes(9, new byte[32]);
            }
            receive(welcome.frame());
            assertEquals(ClientCore.Phase.READY, core.phase());
        }
    }

    private static byte[] deliver(long stream, long sequence, int payload) {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.DELIVER);
        out.number(1, stream);
        out.number(2, sequence);
        out.identifier(3, new Identifier(stream + 1, sequence));
        out.bytes(5, new byte[payload]);
        return out.frame();
    }

    private static byte[] close(int code) {
        return Frames.close(code, "test");
    }

    @Test
    public void thePositionIsStoredBeforeTheAck() {
        Bench bench = new Bench();
        bench.connect();
        bench.receive(deliver(0, 1, 10));
        assertEquals("[persist, ack]", bench.log.toString());
        assertEquals("1", bench.state.stream(0).toString());
    }

    @Test
    public void oneAckCoversAllThatArrived() {
        Bench bench = new Bench();
        bench.connect();
        ProtoWriter all = new ProtoWriter();
        for (int sequence = 1; sequence <= 20; sequence++) {
            all.raw(deliver(0, sequence, 1));
        }
        bench.receive(all.toBytes());
        assertEquals("[persist, ack]", bench.log.toString());
        assertEquals(20, bench.handled.size());
    }

    @Test
    public void aFullDiskAcksNothing() {
        Bench bench = new Bench();
        bench.connect();
        bench.isDiskFull = true;
        bench.receive(deliver(0, 1, 10));
        assertEquals("[notStored, disconnect, retrying]", bench.log.toString());
        bench.isDiskFull = false;
        bench.connect();
        bench.receive(deliver(0, 1, 10));
        assertEquals("the app saw it once", 1, bench.handled.size());
        assertEquals("[suppressed 1, ack]", bench.log.toString());
    }

    @Test
    public void aMessageInTheAppsHandsIsNotHandedOverTwice() {
        Bench bench = new Bench();
        bench.finishesAtOnce = false;
        bench.connect();
        bench.receive(deliver(0, 1, 10));
        bench.receive(deliver(0, 1, 10));
        bench.core.disconnected("test", bench.time);
        bench.turn();
        bench.connect();
        bench.receive(deliver(0, 1, 10));
        assertEquals(1, bench.handled.size());
        bench.core.finish(bench.handled.get(0), ReceivedMessage.Verdict.PROCESSED, "");
        bench.turn();
        assertEquals("[persist, ack]", bench.log.toString());
    }

    @Test
    public void aRejectionEndsWithThePong() throws Exception {
        Bench bench = new Bench();
        bench.finishesAtOnce = false;
        bench.connect();
        bench.receive(deliver(0, 1, 10));
        bench.core.finish(bench.handled.get(0), ReceivedMessage.Verdict.REJECTED, "no such order");
        bench.turn();
        assertEquals("[persist, ack, ping]", bench.log.toString());
        assertFalse("no position names it yet", bench.state.stream(0).contains(1));
        FrameReader ping = new FrameReader();
        ping.append(bench.sent.get(1), bench.sent.get(1).length);
        ping.next();
        bench.receive(Frames.nonce(FrameType.PONG, Frames.decodeNonce(ping.body())));
        assertTrue(bench.state.stream(0).contains(1));
        assertTrue(bench.state.rejections.isEmpty());
    }

    private static void assertEndsTheSession(Bench bench, String what) {
        assertEquals(what, ClientCore.Phase.WAITING, bench.core.phase());
        assertTrue(what + ": " + bench.log, bench.log.contains("close"));
        bench.connect();
    }

    @Test
    public void moreMessagesThanAnyWindowEndTheSession() {
        Bench bench = new Bench();
        bench.finishesAtOnce = false;
        bench.connect();
        for (int sequence = 1; sequence <= Limits.HOLE_COUNT; sequence++) {
            bench.receive(deliver(0, sequence, 0));
        }
        assertEquals(ClientCore.Phase.READY, bench.core.phase());
        bench.receive(deliver(0, Limits.HOLE_COUNT + 1, 0));
        assertEndsTheSession(bench, "1,025 messages");
    }

    @Test
    public void moreBytesThanAnyWindowEndTheSession() {
        Bench bench = new Bench();
        bench.finishesAtOnce = false;
        bench.connect();
        for (int sequence = 1; sequence <= 128; sequence++) {
            bench.receive(deliver(0, sequence, 32 << 10));
        }
        assertEquals("4 MiB are allowed", ClientCore.Phase.READY, bench.core.phase());
        bench.receive(deliver(0, 129, 1));
        assertEndsTheSession(bench, "more than 4 MiB");
    }

    @Test
    public void moreStreamsThanAFrameHasRoomForEndTheSession() {
        Bench bench = new Bench();
        bench.connect();
        for (int stream = 0; stream < Limits.STREAM_COUNT; stream++) {
            bench.receive(deliver(stream, 1, 1));
        }
        assertEquals(ClientCore.Phase.READY, bench.core.phase());
        bench.receive(deliver(99, 1, 1));
        assertEndsTheSession(bench, "nine streams");
    }

    @Test
    public void impossibleSequencesEndTheSession() {
        for (long sequence : new long[] {0, Limits.GREATEST_SEQUENCE + 1, -1, Long.MIN_VALUE}) {
            Bench bench = new Bench();
            bench.connect();
            bench.receive(deliver(0, sequence, 1));
            assertEndsTheSession(bench, "the sequence " + sequence);
        }
    }

    @Test
    public void anUnansweredPingEndsTheConnection() {
        Bench bench = new Bench();
        bench.connect();
        bench.time = bench.core.deadline();
        bench.core.wake(bench.time);
        bench.turn();
        assertEquals("[ping]", bench.log.toString());
        bench.time = bench.core.deadline() - 1;
        bench.core.wake(bench.time);
        assertEquals(ClientCore.Phase.READY, bench.core.phase());
        bench.time++;
        bench.core.wake(bench.time);
        bench.turn();
        assertEquals(ClientCore.Phase.WAITING, bench.core.phase());
        assertEquals("the next Hello asks for half of it", 150, bench.state.heartbeat("").learnt());
    }

    /** The gateway ends the session while the processor sleeps, before the Ping or between it and its Pong. */
    @Test
    public void aSleepDoesNotShortenTheHeartbeat() {
        for (boolean sleepsAfterThePing : new boolean[] {false, true}) {
            Bench bench = new Bench();
            bench.connect();
            bench.time = bench.core.deadline();
            if (!sleepsAfterThePing) {
                bench.time += 3_600_000;
            }
            bench.core.wake(bench.time);
            bench.turn();
            assertEquals("[ping]", bench.log.toString());
            bench.time += sleepsAfterThePing ? 3_600_000 : 50;
            bench.core.disconnected("the gateway has ended the session", bench.time);
            bench.turn();
            assertEquals(0, bench.state.heartbeat("").learnt());
        }
    }

    @Test
    public void theHundredsSelectTheRule() {
        for (int code : new int[] {100, 104, 199, 299, 300, 400, 500, 599, 600, 0}) {
            Bench bench = new Bench();
            bench.connect();
            bench.receive(close(code));
            assertEquals("code " + code, ClientCore.Phase.WAITING, bench.core.phase());
            if (code == CloseCode.REPLACED) {
                assertTrue(bench.core.deadline() - bench.time >= Limits.REPLACED_TIME);
            }
        }
        for (int code : new int[] {401, 410, 499}) {
            Bench bench = new Bench();
            bench.connect();
            bench.receive(close(code));
            assertTrue("code " + code, bench.core.isStopped());
        }
    }

    @Test
    public void aTimestampIsNeverUsedTwice() {
        Bench bench = new Bench();
        bench.connect();
        long first = bench.state.lastTimestamp;
        bench.time = 1;
        bench.core.disconnected("test", bench.time);
        bench.turn();
        bench.connect();
        assertTrue("the clock was set back", bench.state.lastTimestamp > first);
    }

    @Test
    public void droppedMessagesStayUnacked() {
        Bench bench = new Bench();
        bench.connect();
        bench.core.setApplicationState(ApplicationState.BACKGROUND, false, bench.time);
        bench.turn();
        bench.receive(deliver(0, 1, 10));
        assertTrue(bench.handled.isEmpty());
        bench.core.setApplicationState(ApplicationState.FOREGROUND, false, bench.time);
        bench.turn();
        bench.receive(deliver(0, 2, 10));
        assertTrue("the result of the update is not here yet", bench.handled.isEmpty());
        ProtoWriter result = ProtoWriter.ofFrame(FrameType.UPDATE_RESULT);
        result.number(1, 2);
        bench.receive(result.frame());
        bench.receive(deliver(0, 1, 10));
        assertEquals(1, bench.handled.size());
        assertEquals("1", bench.state.stream(0).toString());
    }

    @Test
    public void aCopyFromTheVendorIsNotShownAgain() {
        Bench bench = new Bench();
        bench.connect();
        bench.core.reports().see(new Identifier(1, 1));
        bench.turn();
        bench.log.clear();
        ProtoWriter out = new ProtoWriter();
        out.raw(deliver(0, 1, 10));
        out.raw(new byte[] {0x60, 1});
        byte[] carried = out.toBytes();
        carried[3] += 2;
        bench.receive(carried);
        assertEquals("[suppressed 1, persist, ack]", bench.log.toString());
        bench.core.reports().see(new Identifier(1, 2));
        bench.receive(deliver(0, 2, 10));
        assertEquals("the vendor did not carry all of it", 1, bench.handled.size());
    }

    @Test
    public void hostileBytesOnlyEndTheSession() {
        Random random = new Random(11);
        int ended = 0;
        for (int round = 0; round < 5_000; round++) {
            Bench bench = new Bench();
            bench.connect();
            ProtoWriter out = new ProtoWriter();
            for (int frame = random.nextInt(4); frame >= 0; frame--) {
                byte[] body = new byte[random.nextInt(40)];
                random.nextBytes(body);
                if (random.nextBoolean()) {
                    byte[] valid = deliver(random.nextInt(3), 1 + random.nextInt(5), random.nextInt(20));
                    valid[random.nextInt(valid.length)] = (byte) random.nextInt(256);
                    out.raw(valid);
                } else {
                    out.raw(new byte[] {(byte) (1 + random.nextInt(18)), 0, 0, (byte) body.length});
                    out.raw(body);
                }
            }
            bench.receive(out.toBytes());
            if (bench.core.phase() != ClientCore.Phase.READY) {
                ended++;
            }
        }
        assertTrue("some bytes end the session, and some do not", ended > 300 && ended < 5_000);
    }

    @Test
    public void aRegistrationNeedsCidAndSecret() {
        Bench bench = new Bench();
        bench.state.forgetRegistration();
        bench.core.start(bench.time);
        bench.turn();
        bench.core.connected(bench.time);
        bench.turn();
        bench.receive(ProtoWriter.ofFrame(FrameType.WELCOME).frame());
        assertEquals(ClientCore.Phase.WAITING, bench.core.phase());
        assertFalse(bench.state.isRegistered());
    }
}
