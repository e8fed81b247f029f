package longwire.client;

/** An event of a message for the publisher's statistics. */
public final class MessageReport {
    /** The number of a custom action, or 0 for a shown message. */
    final int action;
    final Identifier messageId;

    private MessageReport(int action, Identifier messageId) {
        this.action = action;
        this.messageId = messageId;
    }

    /**
     * Creates the report that the message was shown to the user.
     *
     * @param messageId the message
     * @return the report
     */
    public static MessageReport shown(Identifier messageId) {
        return new MessageReport(0, messageId);
    }

    /**
     * Creates the report of a custom action of the user.
     *
     * @param number 90001 to 90999
     * @param messageId the message
     * @return the report
     * @throws IllegalArgumentException for another number
     */
    public static MessageReport action(int number, Identifier messageId) {
        if (number < Limits.FIRST_ACTION || number > Limits.LAST_ACTION) {
            throw new IllegalArgumentException("the action " + number + " is not one of 90001 to 90999");
        }
        return new MessageReport(number, messageId);
    }

    String line() {
        return action == 0 ? "shown " + messageId : "action " + action + " " + messageId;
    }

    /** Reads the words of a line; returns {@code null} for anything else. */
    static MessageReport parse(String[] words) {
        Identifier id = Identifier.parse(words[words.length - 1]);
        if (id == null) {
            return null;
        }
        if (words[0].equals("shown") && words.length == 2) {
            return shown(id);
        }
        if (words[0].equals("action") && words.length == 3) {
            long number = ClientState.unsigned32(words[1]);
            return number > 0 && number <= Integer.MAX_VALUE ? new MessageReport((int) number, id) : null;
        }
        return null;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof MessageReport && ((MessageReport) other).action == action
            && ((MessageReport) other).messageId.equals(messageId);
    }

    @Override
    public int hashCode() {
        return 31 * messageId.hashCode() + action;
    }

    @Override
    public String toString() {
        return line();
    }
}
