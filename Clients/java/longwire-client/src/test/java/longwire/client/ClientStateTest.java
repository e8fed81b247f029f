package longwire.client;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** The stored state: its form, its file, damage and failed writes. */
public class ClientStateTest {
    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private static Identifier id(int number) {
        return new Identifier(number, number);
    }

    static ClientState full() {
        ClientState state = new ClientState("demo app");
        state.cid = id(7);
        state.deviceSecret = new byte[32];
        Arrays.fill(state.deviceSecret, (byte) 9);
        state.lastTimestamp = 1_764_000_000_001L;
        state.acceptedTimestamp = 1_764_000_000_000L;
        state.clockOffset = -86_400_000;
        state.queueEpoch = -1;
        state.stream(0).insertRange(1, 41);
        state.stream(0).insertAlone(43);
        state.stream(1).insertRange(1, 9);
        state.noteOpened(id(1));
        state.noteOpened(id(2));
        state.noteSeen(id(3));
        state.note(MessageReport.shown(id(4)));
        state.note(MessageReport.action(90_001, id(4)));
        state.note(new Rejection(0, 42, "no such order: 7\n"));
        state.keep(new byte[] {1, 2, 3}, id(5));
        state.removedTokens.add(VendorToken.Channel.FCM);
        HeartbeatPlan plan = new HeartbeatPlan();
        plan.agreed(300);
        plan.lost(300);
        state.keep(plan, "wifi home");
        return state;
    }

    @Test
    public void aStateSurvivesItsForm() throws Exception {
        byte[] bytes = full().serialize();
        ClientState read = ClientState.parse(bytes);
        assertArrayEquals(bytes, read.serialize());
        assertEquals("41 43-43", read.stream(0).toString());
        assertEquals(-1, read.queueEpoch);
        assertEquals("no such order: 7\n", read.rejections.get(0).reason);
        assertEquals(150, read.heartbeat("wifi home").learnt());
        assertArrayEquals(new byte[] {1, 2, 3}, read.outgoing.get(0).payload());
    }

    @Test
    public void theFormIsThatOfTheSwiftClient() throws Exception {
        String text = "longwire state 1\napp 64656d6f\ncid 00112233445566778899aabbccddeeff\nsecret "
            + "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\ntimestamp 5 4\noffset 0\nepoch 1\n"
            + "stream 0 41 43-43\nopened 0abc019ab697c0f07f3e2d1c0b5a4968\n";
        byte[] lines = text.getBytes(StandardCharsets.US_ASCII);
        String whole = text + "check " + ClientState.checkSum(lines, lines.length) + "\nend\n";
        ClientState state = ClientState.parse(whole.getBytes(StandardCharsets.US_ASCII));
        assertEquals("41 43-43", state.stream(0).toString());
        assertArrayEquals(whole.getBytes(StandardCharsets.US_ASCII), state.serialize());
    }

    @Test
    public void theCheckSumIsFnv1a() {
        byte[] text = "foobar".getBytes(StandardCharsets.US_ASCII);
        assertEquals("85944171f73967e8", ClientState.checkSum(text, text.length));
    }

    private static void assertDamaged(String what, byte[] bytes) {
        try {
            ClientState.parse(bytes);
            fail(what + " was accepted");
        } catch (LongwireException error) {
            assertEquals(LongwireException.Code.STATE_DAMAGED, error.code());
        }
    }

    @Test
    public void eachDamageIsDetected() {
        byte[] bytes = full().serialize();
        for (int count = 0; count < bytes.length; count++) {
            assertDamaged("the first " + count + " bytes", Arrays.copyOf(bytes, count));
        }
        for (int index = 0; index < bytes.length; index++) {
            for (int bit = 0; bit < 8; bit++) {
                byte[] flipped = bytes.clone();
                flipped[index] ^= (byte) (1 << bit);
                assertDamaged("bit " + bit + " of byte " + index, flipped);
            }
        }
    }

    private static byte[] withCheck(String text) {
        byte[] lines = text.getBytes(StandardCharsets.US_ASCII);
        String whole = text + "check " + ClientState.checkSum(lines, lines.length) + "\nend\n";
        return whole.getBytes(StandardCharsets.US_ASCII);
    }

    @Test
    public void linesThatAreNotUnderstoodAreDamage() throws Exception {
        String start = "longwire state 1\napp 61\n";
        assertEquals("a", ClientState.parse(withCheck(start)).appId);
        for (String line : new String[] {
            "future 1", "removed SMS", "displayed 0",
            "", "app", "app 6", "app zz", "cid 00", "secret ", "timestamp 1", "timestamp 1 -1", "offset x",
            "epoch 18446744073709551616", "stream 0", "stream 4294967296 1", "stream 0 4611686018427387905",
            "stream 0 1 3",
            "stream 0 1 3-", "stream 0 1 3-4-5", "stream 0  1", "opened x", "seen x", "shown", "action 1",
            "action x " + id(1),
            "rejected 0 1", "rejected 0 x 00", "sent -1", "sent 4294967296", "send 1 " + id(1),
            "send 1 " + id(1) + " 0",
            "heartbeat 00 1 1 1", "heartbeat -00 1 1", "heartbeat -00 1 1 x",
        }) {
            assertDamaged("the line '" + line + "'", withCheck(start + line + "\n"));
        }
    }

    @Test
    public void listsAreBounded() throws Exception {
        ClientState state = new ClientState("demo");
        for (int number = 1; number <= 2 * Limits.OPENED_COUNT; number++) {
            state.noteOpened(id(number));
            state.noteSeen(id(number));
            state.note(MessageReport.shown(id(number)));
            state.note(new Rejection(0, number, ""));
            HeartbeatPlan plan = new HeartbeatPlan();
            plan.lost(300);
            state.keep(plan, "network " + number);
        }
        assertEquals(Limits.OPENED_COUNT, state.opened.size());
        assertEquals(Limits.OPENED_COUNT, state.unreportedOpened.size());
        assertEquals(Limits.SEEN_COUNT, state.seen.size());
        assertEquals(Limits.REPORT_COUNT, state.unreported.size());
        assertEquals(Limits.REJECTION_COUNT, state.rejections.size());
        assertEquals(Limits.NETWORK_COUNT, state.heartbeats.size());
        assertEquals("the newest are kept", id(512), state.opened.get(Limits.OPENED_COUNT - 1));
        int count = 0;
        while (state.keep(new byte[16 << 10], Identifier.NONE) != null) {
            count++;
        }
        assertEquals("512 KiB of messages to the server", 32, count);
    }

    @Test
    public void aReasonIsCutAtACodePoint() {
        StringBuilder reason = new StringBuilder();
        for (int count = 0; count < 200; count++) {
            reason.append("\ud83d\ude00");
        }
        String cut = new Rejection(0, 1, reason.toString()).reason;
        assertEquals(128, cut.codePointCount(0, cut.length()));
        assertEquals(512, cut.getBytes(StandardCharsets.UTF_8).length);
    }

    @Test
    public void aFileIsReplacedAsAWhole() throws Exception {
        File file = new File(folder.getRoot(), "state");
        FileStateStore store = new FileStateStore(file);
        assertNull(store.load());
        store.save(full().serialize());
        assertArrayEquals(full().serialize(), new FileStateStore(file).load());
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file.toPath())));
        assertEquals("no draft stays", 1, folder.getRoot().list().length);
    }

    @Test
    public void draftsOfKilledClientsAreRemoved() throws Exception {
        File file = new File(folder.getRoot(), "state");
        assertTrue(new File(folder.getRoot(), "state.new1a2b").createNewFile());
        assertTrue(new File(folder.getRoot(), "state.newer file").createNewFile());
        new FileStateStore(file).removeDrafts();
        assertArrayEquals(new String[] {"state.newer file"}, folder.getRoot().list());
    }

    @Test
    public void aSecondWriterIsRefused() throws Exception {
        File file = new File(folder.getRoot(), "state");
        FileStateStore first = new FileStateStore(file);
        first.load();
        first.save(full().serialize());
        FileStateStore second = new FileStateStore(file);
        second.load();
        second.save(new ClientState("other").serialize());
        try {
            first.save(full().serialize());
            fail("the other client's state was overwritten");
        } catch (LongwireException error) {
            assertEquals(LongwireException.Code.STATE_UNWRITABLE, error.code());
        }
        assertArrayEquals(new ClientState("other").serialize(), second.load());
    }

    @Test
    public void aFailedSaveKeepsTheOldState() throws Exception {
        File place = folder.newFolder();
        File file = new File(place, "state");
        FileStateStore store = new FileStateStore(file);
        store.load();
        store.save(full().serialize());
        byte[] old = Files.readAllBytes(file.toPath());
        // A folder in the place of the file cannot be replaced by a rename.
        assertTrue(file.delete());
        assertTrue(file.mkdir());
        assertTrue(new File(file, "content").createNewFile());
        try {
            store.save(full().serialize());
            fail("a folder was replaced");
        } catch (LongwireException error) {
            assertTrue(error.getMessage(), error.getMessage().contains(file.getPath()));
        }
        assertEquals(1, place.list().length);
        assertTrue(old.length > 0);
    }

    @Test
    public void aDamagedFileIsSetAside() throws Exception {
        File file = new File(folder.getRoot(), "state");
        Files.write(file.toPath(), "rubbish".getBytes(StandardCharsets.US_ASCII));
        FileStateStore store = new FileStateStore(file);
        ClientConfiguration configuration =
            new ClientConfiguration("127.0.0.1", 9, "demo").setAppSecret("s").setTls(false);
        LongwireClient client = new LongwireClient(configuration, store, ReceivedMessage::processed);
        try {
            client.start();
            fail("a damaged state was used");
        } catch (LongwireException error) {
            assertEquals(LongwireException.Code.STATE_DAMAGED, error.code());
        }
        assertArrayEquals("rubbish".getBytes(StandardCharsets.US_ASCII), Files.readAllBytes(file.toPath()));
        store.setAside();
        assertFalse(file.exists());
        assertNull(store.load());
        assertTrue(new File(folder.getRoot(), "state.damaged").exists());
    }

    @Test
    public void aFileBeyondAnyStateIsDamage() throws Exception {
        File file = new File(folder.getRoot(), "state");
        Files.write(file.toPath(), new byte[Limits.STATE_FILE_BYTE_COUNT + 1]);
        try {
            new FileStateStore(file).load();
            fail("a huge file was read");
        } catch (LongwireException error) {
            assertEquals(LongwireException.Code.STATE_DAMAGED, error.code());
        }
    }
}
