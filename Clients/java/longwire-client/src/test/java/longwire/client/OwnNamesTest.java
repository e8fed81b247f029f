package longwire.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import longwire.client.ClientCoreTest.Bench;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** The requests about the device's own names: order, repeats, limits, and one answer for each. */
public class OwnNamesTest {
    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();
    private final BlockingQueue<String> events = new LinkedBlockingQueue<>();

    private static void bind(Bench bench, long request) {
        NamesRequest names = new NamesRequest(
            request, NamesRequest.Operation.BIND_ALIAS, "one", "", Collections.emptyList());
        bench.core.perform(new Command.Ask(names), bench.time);
        bench.turn();
    }

    /** Returns the requests that were sent in this session, as text. */
    private static List<String> sent(Bench bench) throws Exception {
        List<String> texts = new ArrayList<>();
        for (byte[] frame : bench.sent) {
            if (frame[0] == FrameType.DEVICE_NAMES) {
                texts.add(FakeGateway.names(Arrays.copyOfRange(frame, 4, frame.length)));
            }
        }
        return texts;
    }

    private static String answers(Bench bench) {
        StringBuilder text = new StringBuilder();
        for (NamesAnswer answer : bench.answers) {
            text.append(answer.request()).append(':').append(answer.code()).append(' ');
        }
        return text.toString().trim();
    }

    @Test
    public void requestsAreSentOneAfterAnother() throws Exception {
        Bench bench = new Bench();
        bench.connect();
        for (long request = 1; request <= 3; request++) {
            bind(bench, request);
        }
        assertEquals("[1 operation 1 alias one]", sent(bench).toString());
        bench.receive(FakeGateway.namesResult(2, 0, ""));
        assertEquals("the result of another request answers nothing", "", answers(bench));
        assertEquals(1, sent(bench).size());
        bench.receive(FakeGateway.namesResult(1, 0, ""));
        bench.receive(FakeGateway.namesResult(1, 0, ""));
        bench.receive(FakeGateway.namesResult(2, 3, ""));
        assertEquals("1:0 2:3", answers(bench));
        assertEquals("the reason", bench.answers.get(1).reason());
        bench.receive(FakeGateway.namesResult(3, 0, ""));
        bench.receive(FakeGateway.namesResult(3, 0, ""));
        assertEquals("1:0 2:3 3:0", answers(bench));
        assertEquals(3, sent(bench).size());
        assertEquals("extra results do not end the session", ClientCore.Phase.READY, bench.core.phase());
    }

    @Test
    public void aRequestWithoutAResultIsSentAgainAfterAReconnect() throws Exception {
        Bench bench = new Bench();
        bench.connect();
        bind(bench, 1);
        assertEquals(1, sent(bench).size());
        bench.core.disconnected("test", bench.time);
        bench.turn();
        bind(bench, 2);
        bench.sent.clear();
        bench.connectWithoutClearing();
        assertEquals("[1 operation 1 alias one]", sent(bench).toString());
        bench.receive(FakeGateway.namesResult(1, 0, ""));
        assertEquals("[1 operation 1 alias one, 2 operation 1 alias one]", sent(bench).toString());
        assertEquals("1:0", answers(bench));
    }

    @Test
    public void aSessionThatBringsNoResultEnds() throws Exception {
        Bench bench = new Bench();
        bench.connect();
        bind(bench, 1);
        assertEquals(bench.time + Limits.NAMES_TIME, bench.core.deadline());
        bench.time += Limits.NAMES_TIME - 1;
        bench.core.wake(bench.time);
        bench.turn();
        assertEquals(ClientCore.Phase.READY, bench.core.phase());
        bench.time += 1;
        bench.core.wake(bench.time);
        bench.turn();
        assertEquals(ClientCore.Phase.WAITING, bench.core.phase());
        bench.connect();
        bench.receive(FakeGateway.namesResult(1, 0, ""));
        assertEquals("1:0", answers(bench));
        bench.time += Limits.NAMES_TIME;
        bench.core.wake(bench.time);
        bench.turn();
        assertEquals("nothing is in flight", ClientCore.Phase.READY, bench.core.phase());
    }

    @Test
    public void requestsBeyondTheBoundAreAnsweredAsBusy() throws Exception {
        Bench bench = new Bench();
        for (long request = 1; request <= Limits.NAMES_COUNT + 1; request++) {
            bind(bench, request);
        }
        assertEquals("33:102", answers(bench));
        bench.connectWithoutClearing();
        bench.receive(FakeGateway.namesResult(1, 0, "one", "a", "会员"));
        assertEquals("one", bench.answers.get(1).alias());
        assertEquals(Arrays.asList("a", "会员"), bench.answers.get(1).tags());
        bind(bench, 34);
        assertEquals("there is room again", 2, bench.answers.size());
    }

    @Test
    public void aFullDiskDoesNotLoseAnAnswer() throws Exception {
        Bench bench = new Bench();
        bench.connect();
        bench.core.upstream().send(new byte[] {1}, Identifier.NONE, bench.time);
        bench.turn();
        bind(bench, 1);
        bench.isDiskFull = true;
        ProtoWriter both = new ProtoWriter();
        ProtoWriter taken = ProtoWriter.ofFrame(FrameType.UPSTREAM_RESULT);
        taken.number(1, 1);
        both.raw(taken.frame());
        both.raw(FakeGateway.namesResult(1, 0, ""));
        bench.receive(both.toBytes());
        assertTrue(bench.log.contains("notStored"));
        assertEquals("1:0", answers(bench));
    }

    @Test
    public void aResultMayHaveMoreTagsThanARequest() throws Exception {
        Bench bench = new Bench();
        bench.connect();
        bind(bench, 1);
        String[] tags = new String[200];
        Arrays.fill(tags, "tag");
        bench.receive(FakeGateway.namesResult(1, 0, "", tags));
        assertEquals(200, bench.answers.get(0).tags().size());
    }

    /** A listener that records the answers and the thread of the last callback. */
    private final class Recorder implements Listener {
        private volatile Thread thread;
        private volatile boolean throwsInAnswers;
        private volatile LongwireClient asked;

        @Override
        public void onMessage(ReceivedMessage message) {}

        @Override
        public void onNames(NamesAnswer answer) {
            thread = Thread.currentThread();
            events.add("answer " + answer.request() + " " + answer.code() + " " + answer.alias() + answer.tags());
            if (throwsInAnswers) {
                throw new IllegalStateException("the app's fault");
            }
        }

        @Override
        public void onCallbackFailed(RuntimeException error) {
            events.add(error.getMessage());
        }

        @Override
        public void onStopped(LongwireException error) {
            events.add("stopped, a new request is " + asked.queryNames(""));
        }
    }

    private String next() throws Exception {
        return events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    private LongwireClient client(FakeGateway gateway, Recorder recorder, ExecutorService executor) {
        ClientConfiguration configuration = new ClientConfiguration("127.0.0.1", gateway.port(), "demo")
            .setAppSecret("secret").setTls(false).setReconnectDelays(1, 10).setExecutor(executor);
        LongwireClient client =
            new LongwireClient(configuration, new FileStateStore(new File(folder.getRoot(), "state")), recorder);
        recorder.asked = client;
        return client;
    }

    private static void end(LongwireClient client) throws Exception {
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
    }

    @Test
    public void eachCallHasItsOperation() throws Exception {
        Recorder recorder = new Recorder();
        try (FakeGateway gateway = new FakeGateway()) {
            LongwireClient client = client(gateway, recorder, null);
            assertEquals("the client does not run", 0, client.bindAlias("one", ""));
            client.start();
            gateway.awaitSession();
            assertEquals(1, client.bindAlias("one", "phone"));
            assertEquals(2, client.unbindAlias("one", ""));
            assertEquals(3, client.setTags(Arrays.asList("a", "b")));
            assertEquals(4, client.addTags(Arrays.asList("c", "")));
            assertEquals(5, client.removeTags(Collections.singletonList("a")));
            assertEquals(6, client.queryNames("phone"));
            String[] expected = {
                "1 operation 1 alias one type phone", "2 operation 2 alias one", "3 operation 3 tag a tag b",
                "4 operation 4 tag c tag ", "5 operation 5 tag a", "6 operation 0 type phone",
            };
            for (int index = 0; index < expected.length; index++) {
                assertEquals(expected[index], gateway.awaitNames());
                gateway.answerNames(index + 1, index == 3 ? 2 : 0, index == 5 ? "one" : "", "b");
                assertEquals(
                    "answer " + (index + 1) + (index == 3 ? " 2 " : " 0 ") + (index == 5 ? "one" : "") + "[b]", next());
            }
            assertEquals("longwire", recorder.thread.getName());
            end(client);
        }
    }

    @Test
    public void namesBeyondTheBoundsAreNotTaken() throws Exception {
        char[] characters = new char[256];
        Arrays.fill(characters, 'x');
        String longest = new String(characters);
        try (FakeGateway gateway = new FakeGateway()) {
            LongwireClient client = client(gateway, new Recorder(), null);
            client.start();
            assertEquals(0, client.bindAlias(longest + "x", ""));
            assertEquals(0, client.bindAlias(longest.substring(1) + "é", ""));
            assertEquals(0, client.bindAlias("one", longest + "x"));
            assertEquals(0, client.queryNames(longest + "x"));
            assertEquals(0, client.removeTags(Collections.singletonList(longest + "x")));
            assertEquals(0, client.setTags(Collections.nCopies(201, "tag")));
            assertEquals(0, client.setTags(Collections.nCopies(113, longest)));
            assertEquals(1, client.setTags(Collections.nCopies(112, longest)));
            gateway.awaitSession();
            assertTrue(gateway.awaitNames().endsWith(longest));
            end(client);
        }
    }

    @Test
    public void aStopAnswersTheRequestsThatWait() throws Exception {
        Recorder recorder = new Recorder();
        recorder.throwsInAnswers = true;
        try (FakeGateway gateway = new FakeGateway()) {
            LongwireClient client = client(gateway, recorder, null);
            client.start();
            gateway.awaitSession();
            client.bindAlias("one", "");
            client.setTags(Collections.emptyList());
            gateway.awaitNames();
            end(client);
            assertEquals("answer 1 1000 []", next());
            assertEquals("the app's fault", next());
            assertEquals("answer 2 1000 []", next());
            assertEquals("the app's fault", next());
            assertEquals("onStopped is the last event", "stopped, a new request is 0", next());
            assertFalse(client.queryNames("") > 0);

            // A new run sends only new requests, and their numbers continue.
            recorder.throwsInAnswers = false;
            client.start();
            gateway.awaitSession();
            assertEquals(3, client.queryNames(""));
            assertEquals("3 operation 0", gateway.awaitNames());
            gateway.answerNames(3, 0, "one");
            assertEquals("answer 3 0 one[]", next());
            end(client);
        }
    }

    @Test
    public void requestsFromManyThreadsGetOneAnswerEachAlsoDuringAStop() throws Exception {
        ExecutorService executor = Executors.newSingleThreadExecutor();
        Recorder recorder = new Recorder();
        BlockingQueue<Long> taken = new LinkedBlockingQueue<>();
        try (FakeGateway gateway = new FakeGateway()) {
            LongwireClient client = client(gateway, recorder, executor);
            client.start();
            gateway.awaitSession();
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < 4; number++) {
                Thread thread = new Thread(() -> {
                    while (client.isRunning()) {
                        long request = client.bindAlias("one", "");
                        if (request != 0) {
                            taken.add(request);
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            gateway.awaitNames();
            end(client);
            for (Thread thread : threads) {
                thread.join();
            }
            executor.shutdown();
            assertTrue(executor.awaitTermination(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
            List<Long> answered = new ArrayList<>();
            String last = "";
            for (String event : events) {
                last = event;
                if (event.startsWith("answer ")) {
                    answered.add(Long.parseLong(event.split(" ")[1]));
                }
            }
            assertEquals("stopped, a new request is 0", last);
            List<Long> asked = new ArrayList<>(taken);
            Collections.sort(asked);
            Collections.sort(answered);
            assertEquals(asked, answered);
        }
    }
}
