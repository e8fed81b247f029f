package longwire.client;

import java.nio.charset.StandardCharsets;

/** An identifier of 16 bytes: a device (cid), a message (msgId) or a task (taskId). */
public final class Identifier {
    /** The number of bytes of an identifier. */
    public static final int BYTE_COUNT = 16;
    /** The absent identifier: 16 zero bytes. */
    public static final Identifier NONE = new Identifier(0, 0);

    private static final byte[] DIGITS = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

    private final long high;
    private final long low;

    Identifier(long high, long low) {
        this.high = high;
        this.low = low;
    }

    /**
     * Reads the 32 lower-case hex digits of an identifier.
     *
     * @param text the text
     * @return the identifier, or {@code null} for any other text
     */
    public static Identifier parse(String text) {
        if (text == null || text.length() != 32) {
            return null;
        }
        long high = 0;
        long low = 0;
        for (int index = 0; index < 32; index++) {
            char digit = text.charAt(index);
            long value;
            if (digit >= '0' && digit <= '9') {
                value = digit - '0';
            } else if (digit >= 'a' && digit <= 'f') {
                value = digit - 'a' + 10;
            } else {
                return null;
            }
            high = high << 4 | low >>> 60;
            low = low << 4 | value;
        }
        return new Identifier(high, low);
    }

    /**
     * Reads the text form of a task, such as {@code RASS_0102_0123456789abcdef01234567}.
     *
     * @param text the text, as the push API and notifications have it
     * @return the task's identifier, or {@code null} for any other text
     */
    public static Identifier parseTask(String text) {
        if (text == null || text.length() != 34 || text.charAt(4) != '_' || text.charAt(9) != '_') {
            return null;
        }
        long kind;
        switch (text.substring(0, 4)) {
            case "RASS": kind = 1; break;
            case "RASL": kind = 2; break;
            case "RASA": kind = 3; break;
            default: return null;
        }
        int date = 0;
        for (int index = 5; index < 9; index++) {
            char digit = text.charAt(index);
            if (digit < '0' || digit > '9') {
                return null;
            }
            date = date * 10 + digit - '0';
        }
        Identifier tail = parse("00000000" + text.substring(10));
        if (tail == null) {
            return null;
        }
        return new Identifier(kind << 56 | (long) (date / 100) << 48 | (long) (date % 100) << 40 | tail.high, tail.low);
    }

    /**
     * Reads 16 bytes.
     *
     * @param bytes the bytes
     * @return the identifier, or {@code null} for another number of bytes
     */
    public static Identifier of(byte[] bytes) {
        return bytes.length == BYTE_COUNT ? read(bytes, 0) : null;
    }

    static Identifier read(byte[] bytes, int offset) {
        return new Identifier(word(bytes, offset), word(bytes, offset + 8));
    }

    private static long word(byte[] bytes, int offset) {
        long word = 0;
        for (int index = 0; index < 8; index++) {
            word = word << 8 | bytes[offset + index] & 0xFF;
        }
        return word;
    }

    void write(byte[] bytes, int offset) {
        for (int index = 0; index < 8; index++) {
            bytes[offset + index] = (byte) (high >>> 56 - 8 * index);
            bytes[offset + 8 + index] = (byte) (low >>> 56 - 8 * index);
        }
    }

    /**
     * Returns the 16 bytes in network order.
     *
     * @return a new array
     */
    public byte[] toBytes() {
        byte[] bytes = new byte[BYTE_COUNT];
        write(bytes, 0);
        return bytes;
    }

    /**
     * Returns whether this is {@link #NONE}.
     *
     * @return true for 16 zero bytes
     */
    public boolean isNone() {
        return high == 0 && low == 0;
    }

    /**
     * Returns the text form of a task, as the push API has it.
     *
     * @return for example {@code RASS_0102_0123456789abcdef01234567}
     */
    public String taskText() {
        int kind = (int) (high >>> 56);
        char letter = kind == 2 ? 'L' : kind == 3 ? 'A' : 'S';
        int month = (int) (high >>> 48 & 0xFF) % 100;
        int day = (int) (high >>> 40 & 0xFF) % 100;
        char[] date = {
            (char) ('0' + month / 10), (char) ('0' + month % 10), (char) ('0' + day / 10), (char) ('0' + day % 10),
        };
        return "RAS" + letter + "_" + new String(date) + "_" + toString().substring(8);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Identifier && ((Identifier) other).high == high && ((Identifier) other).low == low;
    }

    @Override
    public int hashCode() {
        return (int) (low ^ low >>> 32);
    }

    /** Returns the 32 lower-case hex digits. */
    @Override
    public String toString() {
        return hex(toBytes());
    }

    static String hex(byte[] bytes) {
        byte[] digits = new byte[bytes.length * 2];
        for (int index = 0; index < bytes.length; index++) {
            digits[2 * index] = DIGITS[bytes[index] >> 4 & 15];
            digits[2 * index + 1] = DIGITS[bytes[index] & 15];
        }
        return new String(digits, StandardCharsets.US_ASCII);
    }

    /** Returns the bytes of a text of hex digits, or {@code null} for any other text. */
    static byte[] bytes(String hex) {
        if (hex.length() % 2 != 0) {
            return null;
        }
        byte[] bytes = new byte[hex.length() / 2];
        for (int index = 0; index < bytes.length; index++) {
            int left = Character.digit(hex.charAt(2 * index), 16);
            int right = Character.digit(hex.charAt(2 * index + 1), 16);
            if (left < 0 || right < 0) {
                return null;
            }
            bytes[index] = (byte) (left << 4 | right);
        }
        return bytes;
    }
}
