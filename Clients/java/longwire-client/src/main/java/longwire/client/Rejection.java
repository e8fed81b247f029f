package longwire.client;

import java.nio.charset.StandardCharsets;

/** A message that the app can never process, kept until the gateway has confirmed the rejection. */
final class Rejection {
    final long stream;
    final long sequence;
    final String reason;

    Rejection(long stream, long sequence, String reason) {
        this.stream = stream;
        this.sequence = sequence;
        int count = Math.min(Limits.REASON_CHARACTER_COUNT, reason.codePointCount(0, reason.length()));
        this.reason = reason.substring(0, reason.offsetByCodePoints(0, count));
    }

    boolean isOf(long otherStream, long otherSequence) {
        return stream == otherStream && sequence == otherSequence;
    }

    String line() {
        return "rejected " + stream + " " + sequence + " " + Identifier.hex(reason.getBytes(StandardCharsets.UTF_8));
    }

    /** Reads the words of a line; returns {@code null} for anything else. */
    static Rejection parse(String[] words) {
        if (words.length != 4) {
            return null;
        }
        long stream = ClientState.unsigned32(words[1]);
        long sequence = ClientState.sequence(words[2]);
        byte[] reason = Identifier.bytes(words[3]);
        return stream < 0 || sequence < 0 || reason == null
            ? null : new Rejection(stream, sequence, new String(reason, StandardCharsets.UTF_8));
    }
}
