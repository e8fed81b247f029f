package longwire.client;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** A growing buffer that message bodies are written to. As in proto3, a field with its default value is left out. */
final class ProtoWriter {
    private byte[] bytes = new byte[128];
    private int count;

    /** Starts a frame; {@link #frame()} fills in its length. */
    static ProtoWriter ofFrame(int type) {
        ProtoWriter writer = new ProtoWriter();
        writer.bytes[0] = (byte) type;
        writer.count = 4;
        return writer;
    }

    /** Returns the frame that {@link #ofFrame} began. */
    byte[] frame() {
        int length = count - 4;
        bytes[1] = (byte) (length >> 16);
        bytes[2] = (byte) (length >> 8);
        bytes[3] = (byte) length;
        return toBytes();
    }

    byte[] toBytes() {
        return Arrays.copyOf(bytes, count);
    }

    int count() {
        return count;
    }

    private void room(int more) {
        if (bytes.length - count < more) {
            bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, count + more));
        }
    }

    void raw(byte[] more) {
        room(more.length);
        System.arraycopy(more, 0, bytes, count, more.length);
        count += more.length;
    }

    private void varint(long value) {
        room(10);
        while ((value & ~0x7FL) != 0) {
            bytes[count++] = (byte) (value & 0x7F | 0x80);
            value >>>= 7;
        }
        bytes[count++] = (byte) value;
    }

    private void tag(int field, int wireType) {
        varint((long) field << 3 | wireType);
    }

    void number(int field, long value) {
        if (value != 0) {
            present(field, value);
        }
    }

    /** Writes a number with presence: zero, too. */
    void present(int field, long value) {
        tag(field, ProtoReader.VARINT);
        varint(value);
    }

    void presentSigned(int field, int value) {
        present(field, (value << 1 ^ value >> 31) & 0xFFFF_FFFFL);
    }

    void flag(int field, boolean value) {
        if (value) {
            present(field, 1);
        }
    }

    void bytes(int field, byte[] value) {
        if (value.length > 0) {
            element(field, value);
        }
    }

    void text(int field, String value) {
        if (!value.isEmpty()) {
            element(field, value.getBytes(StandardCharsets.UTF_8));
        }
    }

    void identifier(int field, Identifier value) {
        if (!value.isNone()) {
            element(field, value);
        }
    }

    void element(int field, Identifier value) {
        tag(field, ProtoReader.BYTES);
        varint(Identifier.BYTE_COUNT);
        room(Identifier.BYTE_COUNT);
        value.write(bytes, count);
        count += Identifier.BYTE_COUNT;
    }

    /** Writes an element of a list or an embedded message: an empty one, too. */
    void element(int field, byte[] value) {
        tag(field, ProtoReader.BYTES);
        varint(value.length);
        raw(value);
    }

    void element(int field, ProtoWriter value) {
        tag(field, ProtoReader.BYTES);
        varint(value.count);
        room(value.count);
        System.arraycopy(value.bytes, 0, bytes, count, value.count);
        count += value.count;
    }
}
