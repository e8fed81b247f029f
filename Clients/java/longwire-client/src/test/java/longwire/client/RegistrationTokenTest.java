package longwire.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import longwire.client.ClientCoreTest.Bench;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Tokens of the app's server: registration without the appSecret, and the alias of a user. */
public class RegistrationTokenTest implements Listener {
    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();
    private final BlockingQueue<String> events = new LinkedBlockingQueue<>();

    @Override
    public void onMessage(ReceivedMessage message) {}

    @Override
    public void onNames(NamesAnswer answer) {
        events.add("answer " + answer.request() + " " + answer.code() + " " + answer.reason());
    }

    @Override
    public void onStopped(LongwireException error) {
        events.add("stopped " + (error == null ? "" : error.closeCode() + " " + error.getMessage()));
    }

    private String next() throws Exception {
        return events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    private LongwireClient client(FakeGateway gateway, String token) {
        ClientConfiguration configuration = new ClientConfiguration("127.0.0.1", gateway.port(), "demo")
            .setRegistrationToken(token).setTls(false).setReconnectDelays(1, 10);
        return new LongwireClient(configuration, new FileStateStore(new File(folder.getRoot(), "state")), this);
    }

    private static void end(LongwireClient client) throws Exception {
        client.stop();
        assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
    }

    private static String text(int count, char character) {
        char[] characters = new char[count];
        Arrays.fill(characters, character);
        return new String(characters);
    }

    @Test
    public void aTokenRegistersAndItsAliasIsBound() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            LongwireClient client = client(gateway, "a.b.c");
            client.start();
            assertEquals("a.b.c", gateway.awaitRegistrationToken());
            assertEquals("0 operation 1 token a.b.c", gateway.awaitNames());
            gateway.answerNames(0, 0, "");
            assertEquals("answer 0 0 ", next());
            gateway.cut();
            assertEquals("a registered device sends no token", "", gateway.awaitRegistrationToken());

            assertEquals(1, client.bindAliasWithToken("d.e.f"));
            assertEquals("1 operation 1 token d.e.f", gateway.awaitNames());
            gateway.answerNames(1, 5, "");
            assertEquals("answer 1 5 the reason", next());
            end(client);
        }
    }

    @Test
    public void aRefusedTokenStopsTheClientAndAnotherOneRegisters() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            LongwireClient client = client(gateway, "a.b.c");
            gateway.refuse("the token has expired");
            client.start();
            assertEquals("stopped 401 the gateway closed with code 401: the token has expired", next());
            assertTrue(client.awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
            assertEquals("a.b.c", gateway.awaitRegistrationToken());
            assertTrue(client.setRegistrationToken("d.e.f"));
            client.start();
            assertEquals("d.e.f", gateway.awaitRegistrationToken());
            assertEquals("0 operation 1 token d.e.f", gateway.awaitNames());
            end(client);
        }
    }

    @Test
    public void aTokenOfAnotherSizeIsNotTaken() throws Exception {
        String longest = text(1_024, 'é');
        try (FakeGateway gateway = new FakeGateway()) {
            for (String token : new String[] {null, longest + "x", ""}) {
                try {
                    client(gateway, token).start();
                    fail("a client with the token was started");
                } catch (LongwireException error) {
                    assertEquals(LongwireException.Code.BAD_CONFIGURATION, error.code());
                    assertTrue(error.getMessage(), error.getMessage().contains("registrationToken"));
                }
            }
            LongwireClient client = client(gateway, longest);
            assertFalse(client.setRegistrationToken(null));
            assertFalse(client.setRegistrationToken(longest + "x"));
            client.start();
            assertEquals(longest, gateway.awaitRegistrationToken());
            assertEquals(0, client.bindAliasWithToken(longest + "x"));
            assertEquals(0, client.bindAliasWithToken(""));
            assertEquals(1, client.bindAliasWithToken(longest));
            end(client);
        }
    }

    private static List<String> sent(Bench bench) throws Exception {
        List<String> texts = new ArrayList<>();
        for (byte[] frame : bench.sent) {
            if (frame[0] == FrameType.DEVICE_NAMES) {
                texts.add(FakeGateway.names(Arrays.copyOfRange(frame, 4, frame.length)));
            }
        }
        bench.sent.clear();
        return texts;
    }

    private static void ask(Bench bench, NamesRequest names) {
        bench.core.perform(new Command.Ask(names), bench.time);
        bench.turn();
    }

    private static NamesRequest tags(long request) {
        return new NamesRequest(
            request, NamesRequest.Operation.SET_TAGS, "", "", Collections.singletonList("x"));
    }

    private static void result(Bench bench, long request, long code) {
        bench.receive(FakeGateway.namesResult(request, code, ""));
    }

    private static void reconnect(Bench bench) {
        bench.core.disconnected("test", bench.time);
        bench.turn();
        bench.sent.clear();
        bench.connectWithoutClearing();
    }

    /** Moves the clock to the core's next deadline. */
    private static void pass(Bench bench) {
        bench.time = bench.core.deadline();
        bench.core.wake(bench.time);
        bench.turn();
    }

    @Test
    public void theAliasIsRequestedUntilAFinalResult() throws Exception {
        Bench bench = new Bench("a.b.c");
        bench.connectWithoutClearing();
        assertEquals("[0 operation 1 token a.b.c]", sent(bench).toString());
        ask(bench, tags(1));
        reconnect(bench);
        assertEquals("[0 operation 1 token a.b.c]", sent(bench).toString());
        result(bench, 0, 102);
        long refusedAt = bench.time;
        assertEquals("[1 operation 3 tag x]", sent(bench).toString());
        result(bench, 1, 0);
        assertEquals(refusedAt + Limits.FULL_RETRY_TIME, bench.core.deadline());
        // A request in flight moves the deadline; otherwise the client would wake without a pause.
        bench.time += Limits.FULL_RETRY_TIME - 1;
        ask(bench, tags(2));
        bench.time += 1;
        bench.core.wake(bench.time);
        bench.turn();
        assertEquals(bench.time - 1 + Limits.NAMES_TIME, bench.core.deadline());
        result(bench, 2, 0);
        assertEquals("[2 operation 3 tag x, 0 operation 1 token a.b.c]", sent(bench).toString());
        result(bench, 0, 100);
        pass(bench);
        assertEquals("[0 operation 1 token a.b.c]", sent(bench).toString());
        result(bench, 0, 5);
        reconnect(bench);
        assertEquals("[]", sent(bench).toString());
    }

    @Test
    public void theAppsOwnAliasReplacesTheTokens() throws Exception {
        Bench bench = new Bench("a.b.c");
        ask(bench, NamesRequest.ofToken(1, "d.e.f"));
        bench.connectWithoutClearing();
        assertEquals("[1 operation 1 token d.e.f]", sent(bench).toString());
        Bench other = new Bench("a.b.c");
        other.connectWithoutClearing();
        ask(other, new NamesRequest(1, NamesRequest.Operation.UNBIND_ALIAS, "one", "", Collections.emptyList()));
        result(other, 0, 102);
        result(other, 1, 0);
        assertEquals("[0 operation 1 token a.b.c, 1 operation 2 alias one]", sent(other).toString());
        // A lost registration must not bring the first user back.
        other.receive(Frames.close(301, "test"));
        other.connectWithoutClearing();
        assertEquals("[]", sent(other).toString());
    }

    @Test
    public void aNewDeviceGetsTheAliasAgain() throws Exception {
        Bench bench = new Bench("a.b.c");
        bench.connectWithoutClearing();
        result(bench, 0, 0);
        bench.core.configuration.setRegistrationToken("d.e.f");
        bench.core.names().replaceToken("d.e.f");
        bench.sent.clear();
        bench.receive(Frames.close(301, "test"));
        bench.connectWithoutClearing();
        byte[] hello = bench.sent.get(0);
        assertEquals("d.e.f", FakeGateway.registrationToken(Arrays.copyOfRange(hello, 4, hello.length)));
        assertEquals("[0 operation 1 token d.e.f]", sent(bench).toString());
        // A token that replaces the one in flight is requested after it, whatever the result.
        bench.core.names().replaceToken("g.h.i");
        result(bench, 0, 5);
        assertEquals("[0 operation 1 token g.h.i]", sent(bench).toString());
        bench.core.disconnected("test", bench.time);
        bench.core.names().replaceToken("j.k.l");
        bench.turn();
        bench.connectWithoutClearing();
        assertEquals("[0 operation 1 token j.k.l]", sent(bench).toString());
    }
}
