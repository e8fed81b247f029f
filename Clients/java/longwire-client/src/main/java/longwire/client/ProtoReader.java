package longwire.client;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;

/** A read position in a message body. Each read checks its bounds and throws {@link WireException}. */
final class ProtoReader {
    static final int VARINT = 0;
    static final int FIXED64 = 1;
    static final int BYTES = 2;
    static final int FIXED32 = 5;

    private byte[] bytes;
    private int offset;
    private int end;
    private int number;
    private int wireType;

    ProtoReader() {}

    ProtoReader(byte[] bytes) {
        reset(bytes, 0, bytes.length);
    }

    void reset(byte[] bytes, int offset, int end) {
        this.bytes = bytes;
        this.offset = offset;
        this.end = end;
    }

    /** Advances to the next tag and returns its field number, or 0 at the end. */
    int next() throws WireException {
        if (offset >= end) {
            return 0;
        }
        long tag = varint();
        // Field numbers have 29 bits, so a tag has 32.
        if (tag < 0 || tag > 0xFFFF_FFFFL || tag >>> 3 == 0) {
            throw WireException.malformed("a tag is no valid field number");
        }
        number = (int) (tag >>> 3);
        wireType = (int) (tag & 7);
        return number;
    }

    /** Skips the field of an unknown number. */
    void skip() throws WireException {
        switch (wireType) {
            case VARINT: varint(); break;
            case FIXED64: advance(8); break;
            case FIXED32: advance(4); break;
            case BYTES: advance(length()); break;
            default: throw WireException.malformed("field " + number + " has the wire type " + wireType);
        }
    }

    private void advance(int count) throws WireException {
        if (end - offset < count) {
            throw truncated();
        }
        offset += count;
    }

    private static WireException truncated() {
        return WireException.malformed("the body is cut short");
    }

    private void expect(int wanted) throws WireException {
        if (wireType != wanted) {
            throw WireException.malformed("field " + number + " has the wire type " + wireType + " instead of "
                + wanted);
        }
    }

    private long varint() throws WireException {
        if (offset >= end) {
            throw truncated();
        }
        byte first = bytes[offset++];
        if (first >= 0) {
            return first;
        }
        long value = first & 0x7F;
        for (int shift = 7; offset < end; shift += 7) {
            byte next = bytes[offset++];
            // The tenth byte holds the 64th bit and nothing else.
            if (shift == 63 && (next & 0xFF) > 1) {
                throw WireException.malformed("a number has more than 64 bits");
            }
            value |= (long) (next & 0x7F) << shift;
            if (next >= 0) {
                return value;
            }
        }
        throw truncated();
    }

    /** Returns the length of a length-delimited field, which is within the body. */
    private int length() throws WireException {
        long length = varint();
        if (length < 0 || length > end - offset) {
            throw truncated();
        }
        return (int) length;
    }

    long uint64() throws WireException {
        expect(VARINT);
        return varint();
    }

    /** Reads a 32-bit field; as in every protobuf decoder, a longer number is truncated to its low half. */
    long uint32() throws WireException {
        expect(VARINT);
        return varint() & 0xFFFF_FFFFL;
    }

    boolean bool() throws WireException {
        expect(VARINT);
        return varint() != 0;
    }

    int sint32() throws WireException {
        int value = (int) uint32();
        return value >>> 1 ^ -(value & 1);
    }

    byte[] bytes(int limit) throws WireException {
        int length = delimited(limit);
        byte[] copy = new byte[length];
        System.arraycopy(bytes, offset, copy, 0, length);
        offset += length;
        return copy;
    }

    private int delimited(int limit) throws WireException {
        expect(BYTES);
        int length = length();
        if (length > limit) {
            throw WireException.malformed("field " + number + " has " + length + " bytes, at most " + limit
                + " are allowed");
        }
        return length;
    }

    /** Reads an identifier of 16 bytes; an empty field is {@link Identifier#NONE}. */
    Identifier identifier() throws WireException {
        int length = delimited(Integer.MAX_VALUE);
        if (length == 0) {
            return Identifier.NONE;
        }
        if (length != Identifier.BYTE_COUNT) {
            throw WireException.malformed("field " + number + " is an identifier of " + length
                + " bytes instead of 16");
        }
        Identifier identifier = Identifier.read(bytes, offset);
        offset += length;
        return identifier;
    }

    String text(int limit) throws WireException {
        int length = delimited(limit);
        int start = offset;
        offset += length;
        boolean isPlain = true;
        for (int index = start; index < offset; index++) {
            if (bytes[index] < 0) {
                isPlain = false;
                break;
            }
        }
        if (isPlain) {
            return length == 0 ? "" : new String(bytes, start, length, StandardCharsets.US_ASCII);
        }
        try {
            return StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT)
                .onUnmappableCharacter(CodingErrorAction.REPORT)
                .decode(ByteBuffer.wrap(bytes, start, length)).toString();
        } catch (CharacterCodingException error) {
            throw WireException.malformed("field " + number + " is not UTF-8");
        }
    }

    /** Returns a reader of an embedded message. */
    ProtoReader message() throws WireException {
        int length = delimited(Integer.MAX_VALUE);
        ProtoReader reader = new ProtoReader();
        reader.reset(bytes, offset, offset + length);
        offset += length;
        return reader;
    }
}
