package longwire.client;

/**
 * A message that came through a vendor's channel.
 *
 * <p>The app ends it with {@link #processed} or {@link #deferred}, from any thread. Only a processed message is
 * recorded; its copy on the connection is then acked and not handed to the app.
 */
public final class VendorMessage {
    /** The receiver of the verdict. */
    interface VerdictSink {
        /** Returns false when the verdict could not be kept. */
        boolean finish(Identifier messageId, boolean isProcessed);
    }

    private final VendorPush push;
    private final VerdictSink sink;
    /** Whether the verdict was given; guarded by this object's monitor. */
    private boolean isFinished;

    VendorMessage(VendorPush push, VerdictSink sink) {
        this.push = push;
        this.sink = sink;
    }

    /**
     * Returns the ids and the payload.
     *
     * @return the vendor's push
     */
    public VendorPush push() {
        return push;
    }

    /**
     * Ends the message: its id is recorded durably, and its copy on the connection is not handed to the app.
     *
     * @return false when the message already has a verdict, or the verdict could not be kept
     */
    public boolean processed() {
        return finish(true);
    }

    /**
     * Leaves the message to the connection: the copy there is handed to {@link Listener#onMessage}.
     *
     * @return false when the message already has a verdict
     */
    public boolean deferred() {
        return finish(false);
    }

    private boolean finish(boolean isProcessed) {
        synchronized (this) {
            if (isFinished) {
                return false;
            }
            isFinished = true;
        }
        return sink.finish(push.messageId(), isProcessed);
    }
}
