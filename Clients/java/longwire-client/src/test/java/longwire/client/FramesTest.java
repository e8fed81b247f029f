package longwire.client;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Collections;
import java.util.Random;
import org.junit.Test;

/** The codec against the frames of docs/use/Protocol.md, and against hostile bytes. */
public class FramesTest {
    private static final int HEADER = 4;

    /** Returns the bytes of a block of the page: the hex left of two blanks in each line. */
    static byte[] frameOfPage(String name) throws IOException {
        File page = new File("../../docs/use/Protocol.md");
        if (!page.exists()) {
            page = new File("../../../docs/use/Protocol.md");
        }
        String text = new String(Files.readAllBytes(page.toPath()), StandardCharsets.UTF_8);
        int start = text.indexOf("```hex " + name + "\n");
        assertTrue("the page has the frame " + name, start >= 0);
        String block = text.substring(text.indexOf('\n', start) + 1, text.indexOf("\n```", start));
        StringBuilder hex = new StringBuilder();
        for (String line : block.split("\n")) {
            hex.append(line.split(" {2,}")[0].replace(" ", ""));
        }
        return Identifier.bytes(hex.toString());
    }

    private static byte[] body(byte[] frame) {
        return Arrays.copyOfRange(frame, HEADER, frame.length);
    }

    @Test
    public void helloContentEqualsThePage() throws Exception {
        byte[] expected = frameOfPage("Hello");
        byte[] secret = new byte[32];
        for (int index = 0; index < secret.length; index++) {
            secret[index] = (byte) index;
        }
        ProcessedSet processed = new ProcessedSet(41);
        processed.insertAlone(43);
        Frames.Hello hello = new Frames.Hello();
        hello.appId = "demo";
        hello.cid = Identifier.parse("00112233445566778899aabbccddeeff");
        hello.timestamp = 1_764_000_000_000L;
        hello.queueEpoch = 1;
        hello.positions = Collections.singletonList(processed.position(0));
        hello.heartbeatSeconds = 300;
        hello.badge = 0;
        hello.client = "example/1.0";
        // The page's token is one of Apple's sandbox, which this client does not have, so its bytes are put in.
        byte[] body = hello.body();
        byte[] token = Identifier.bytes("6a1d10011a0f636f6d2e6578616d706c652e617070220861316232633364" + "34");
        ProtoWriter whole = new ProtoWriter();
        int client = body.length - 14;
        whole.raw(Arrays.copyOf(body, client));
        whole.raw(token);
        whole.raw(Arrays.copyOfRange(body, client, body.length));
        byte[] complete = whole.toBytes();
        assertArrayEquals(expected, Frames.hello(complete, Handshake.proof(secret, complete)));
    }

    @Test
    public void deliverOfThePageIsDecoded() throws Exception {
        byte[] frame = frameOfPage("Deliver");
        FrameReader reader = new FrameReader();
        for (byte next : frame) {
            assertEquals("no frame before its last byte", 0, reader.next());
            reader.append(new byte[] {next}, 1);
        }
        assertEquals(FrameType.DELIVER, reader.next());
        ReceivedMessage message = Frames.decodeDeliver(reader.body());
        assertEquals(42, message.sequence());
        assertEquals("0abc019ab697c0f07f3e2d1c0b5a4968", message.messageId().toString());
        assertEquals("010b1800d2c3b4a5968778695a4b3c2d", message.taskId().toString());
        assertEquals("{\"order\":7}", message.text());
        assertTrue(message.isOffline());
        assertEquals(1_763_999_990_000L, message.acceptedAt());
        assertEquals(1_763_999_991_500L, message.alertedAt());
        assertEquals(1, message.attempt());
        assertEquals("您好", message.title());
        assertEquals(0, reader.next());
    }

    @Test
    public void ackOfThePageIsEncoded() throws Exception {
        ProcessedSet processed = new ProcessedSet(43);
        byte[] ack = Frames.ack(Collections.singletonList(processed.position(0)), Collections.emptyList());
        assertArrayEquals(frameOfPage("Ack"), ack);
    }

    @Test
    public void unknownFieldsAreSkipped() throws Exception {
        ProtoWriter out = new ProtoWriter();
        out.number(900, 7);
        out.element(901, new byte[] {1, 2, 3});
        out.raw(new byte[] {(byte) (100 << 3 & 0x7F | 0x80 | 5), 6, 1, 2, 3, 4});
        out.raw(new byte[] {(byte) (100 << 3 & 0x7F | 0x80 | 1), 6, 1, 2, 3, 4, 5, 6, 7, 8});
        out.number(2, 42);
        assertEquals(42, Frames.decodeDeliver(new ProtoReader(out.toBytes())).sequence());
    }

    private static void assertMalformed(String what, String hex) {
        try {
            Frames.decodeDeliver(new ProtoReader(Identifier.bytes(hex)));
            fail(what + " was accepted");
        } catch (WireException error) {
            assertEquals(CloseCode.MALFORMED, error.code);
        }
    }

    @Test
    public void faultyBodiesAreMalformed() {
        assertMalformed("a known field of another wire type", "1201aa");
        assertMalformed("a group", "0b");
        assertMalformed("an identifier of 15 bytes", "1a0f" + "000102030405060708090a0b0c0d0e");
        assertMalformed("a varint above 64 bits", "10ffffffffffffffffff02");
        assertMalformed("a varint without an end", "10ffffff");
        assertMalformed("a field number 0", "0000");
        assertMalformed("a length beyond the body", "2a7f00");
        assertMalformed("a length above 31 bits", "2affffffff0f");
        assertMalformed("a text that is not UTF-8", "5202c328");
        assertMalformed("an overlong text", "5202c080");
        assertMalformed("a surrogate in a text", "5203eda080");
        assertMalformed("an alert that is not UTF-8", "5a040a02c328");
    }

    @Test
    public void framesBeyondTheLimitAreRefused() throws Exception {
        FrameReader reader = new FrameReader();
        reader.append(new byte[] {6, 1, 0, 1}, 4);
        try {
            reader.next();
            fail("a body of 65,537 bytes was accepted");
        } catch (WireException error) {
            assertEquals(CloseCode.FRAME_TOO_LARGE, error.code);
        }
        reader.reset();
        reader.append(new byte[] {6, 1, 0, 0}, 4);
        assertEquals("a body of 65,536 bytes is allowed", 0, reader.next());
    }

    @Test
    public void unknownFrameTypesAreRefused() throws Exception {
        for (int type : new int[] {0, 18, 255}) {
            FrameReader reader = new FrameReader();
            reader.append(new byte[] {(byte) type, 0, 0, 0}, 4);
            try {
                reader.next();
                fail("the type " + type + " was accepted");
            } catch (WireException error) {
                assertEquals(CloseCode.UNEXPECTED_FRAME, error.code);
            }
        }
    }

    @Test
    public void tooManyCountsInAWelcomeAreMalformed() throws Exception {
        ProtoWriter out = new ProtoWriter();
        for (int count = 0; count < Limits.DROPPED_COUNT; count++) {
            out.element(7, new byte[0]);
        }
        assertEquals(Limits.DROPPED_COUNT, Frames.Welcome.decode(new ProtoReader(out.toBytes())).dropped.size());
        out.element(7, new byte[0]);
        try {
            Frames.Welcome.decode(new ProtoReader(out.toBytes()));
            fail("more counts than states were accepted");
        } catch (WireException error) {
            assertEquals(CloseCode.MALFORMED, error.code);
        }
    }

    @Test
    public void randomBodiesNeverFailOtherwise() throws Exception {
        Random random = new Random(7);
        byte[] frame = frameOfPage("Deliver");
        int decoded = 0;
        for (int round = 0; round < 40_000; round++) {
            byte[] body = body(frame);
            for (int change = random.nextInt(4); change >= 0; change--) {
                body[random.nextInt(body.length)] = (byte) random.nextInt(256);
            }
            body = Arrays.copyOf(body, random.nextInt(8) == 0 ? random.nextInt(body.length) : body.length);
            try {
                switch (round % 6) {
                    case 0: Frames.decodeDeliver(new ProtoReader(body)); break;
                    case 1: Frames.Welcome.decode(new ProtoReader(body)); break;
                    case 2: Frames.Close.decode(new ProtoReader(body)); break;
                    case 3: Frames.Revoke.decode(new ProtoReader(body)); break;
                    case 4: Frames.UpdateResult.decode(new ProtoReader(body)); break;
                    default: Frames.UpstreamResult.decode(new ProtoReader(body));
                }
                decoded++;
            } catch (WireException error) {
                assertFalse(error.getMessage().isEmpty());
            }
        }
        assertTrue("some changed bodies are still valid", decoded > 0);
    }

    @Test
    public void aReaderKeepsPartsOfManyFrames() throws Exception {
        FrameReader reader = new FrameReader();
        Random random = new Random(3);
        ProtoWriter stream = new ProtoWriter();
        int frames = 3_000;
        for (int number = 1; number <= frames; number++) {
            stream.raw(Frames.nonce(FrameType.PING, number));
        }
        byte[] all = stream.toBytes();
        int found = 0;
        for (int offset = 0; offset < all.length;) {
            int count = Math.min(all.length - offset, 1 + random.nextInt(900));
            reader.append(Arrays.copyOfRange(all, offset, offset + count), count);
            offset += count;
            while (reader.next() != 0) {
                assertEquals(++found, Frames.decodeNonce(reader.body()));
            }
            reader.trim();
        }
        assertEquals(frames, found);
    }
}
