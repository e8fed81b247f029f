package longwire.client;

import java.util.Arrays;

/** The received bytes of one connection, read as frames. */
final class FrameReader {
    private static final byte[] EMPTY = new byte[0];

    private byte[] bytes = EMPTY;
    private int offset;
    private int end;

    // The frame that `next` found.
    private int type;
    private int bodyStart;
    private int bodyEnd;
    private final ProtoReader body = new ProtoReader();

    /** Adds bytes behind those that are not read yet. */
    void append(byte[] more, int count) {
        if (offset == end) {
            offset = 0;
            end = 0;
        }
        if (bytes.length - end < count) {
            byte[] target = end - offset + count > bytes.length ? new byte[roomFor(end - offset + count)] : bytes;
            System.arraycopy(bytes, offset, target, 0, end - offset);
            bytes = target;
            end -= offset;
            offset = 0;
        }
        System.arraycopy(more, 0, bytes, end, count);
        end += count;
    }

    private static int roomFor(int count) {
        return Math.max(4_096, Integer.highestOneBit(count - 1) << 1);
    }

    void reset() {
        bytes = EMPTY;
        offset = 0;
        end = 0;
    }

    /** Releases a large buffer that is empty; an idle connection then occupies little memory. */
    void trim() {
        if (offset == end && bytes.length > 4_096) {
            reset();
        }
    }

    /** Advances to the next complete frame and returns its type, or 0 if more bytes are needed. */
    int next() throws WireException {
        if (end - offset < 4) {
            return 0;
        }
        int found = bytes[offset] & 0xFF;
        int length = (bytes[offset + 1] & 0xFF) << 16 | (bytes[offset + 2] & 0xFF) << 8 | bytes[offset + 3] & 0xFF;
        if (!FrameType.isKnown(found)) {
            throw new WireException(CloseCode.UNEXPECTED_FRAME, "the frame type " + found + " is unknown");
        }
        if (length > Limits.FRAME_BYTE_COUNT) {
            throw new WireException(
                CloseCode.FRAME_TOO_LARGE,
                "a frame's body has " + length + " bytes, at most " + Limits.FRAME_BYTE_COUNT + " are allowed");
        }
        if (end - offset - 4 < length) {
            return 0;
        }
        type = found;
        bodyStart = offset + 4;
        bodyEnd = bodyStart + length;
        offset = bodyEnd;
        return type;
    }

    /** Returns a reader of the body of the frame that {@link #next} found, valid until the next call of this class. */
    ProtoReader body() {
        body.reset(bytes, bodyStart, bodyEnd);
        return body;
    }

    /** Returns a copy of that body, for tests. */
    byte[] copyOfBody() {
        return Arrays.copyOfRange(bytes, bodyStart, bodyEnd);
    }
}
