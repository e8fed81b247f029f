package longwire.client;

/**
 * A message from the app to its server.
 *
 * <p>The client keeps it in its state until the gateway has it on disk or refuses it permanently. It survives a
 * restart, a lost answer does not duplicate it, and messages arrive in the order of their numbers.
 */
public final class OutgoingMessage {
    final long number;
    final byte[] payload;
    final Identifier task;

    OutgoingMessage(long number, byte[] payload, Identifier task) {
        this.number = number;
        this.payload = payload;
        this.task = task;
    }

    /**
     * Returns the message's number on this device.
     *
     * @return consecutive numbers from 1, or 0 if the client's queue was full
     */
    public long number() {
        return number;
    }

    /**
     * Returns the message's content.
     *
     * @return the payload, which the app must not change
     */
    public byte[] payload() {
        return payload;
    }

    /**
     * Returns the task that this message answers.
     *
     * @return the taskId, or {@link Identifier#NONE}
     */
    public Identifier task() {
        return task;
    }

    String line() {
        return "send " + number + " " + task + " " + Identifier.hex(payload);
    }

    /** Reads the words behind the name in a line; returns {@code null} for anything else. */
    static OutgoingMessage parse(String[] words) {
        if (words.length != 4) {
            return null;
        }
        long number = ClientState.unsigned32(words[1]);
        Identifier task = Identifier.parse(words[2]);
        byte[] payload = Identifier.bytes(words[3]);
        return number < 0 || task == null || payload == null ? null : new OutgoingMessage(number, payload, task);
    }
}
