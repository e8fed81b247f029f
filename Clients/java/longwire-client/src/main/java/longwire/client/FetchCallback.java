package longwire.client;

/** A receiver of the end of a fetch. */
public interface FetchCallback {
    /**
     * Reports that a fetch has ended. It runs on the executor of the other callbacks.
     *
     * @param result the number of handled messages, and whether the gateway had no more
     */
    void fetched(FetchResult result);
}
