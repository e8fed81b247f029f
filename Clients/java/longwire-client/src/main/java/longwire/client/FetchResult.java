package longwire.client;

/** The result of a fetch. */
public final class FetchResult {
    private final int messageCount;
    private final boolean isComplete;

    FetchResult(int messageCount, boolean isComplete) {
        this.messageCount = messageCount;
        this.isComplete = isComplete;
    }

    /**
     * Returns the number of messages that the app processed.
     *
     * @return the count
     */
    public int messageCount() {
        return messageCount;
    }

    /**
     * Returns whether the gateway had no more messages.
     *
     * @return false after a timeout, or when the client does not run
     */
    public boolean isComplete() {
        return isComplete;
    }
}
