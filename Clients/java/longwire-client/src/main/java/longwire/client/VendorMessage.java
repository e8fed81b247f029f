package longwire.client;

/**
 * A message that arrived through a vendor.
 *
 * <p>The app calls {@link #processed} or {@link #deferred} once, from any thread. A processed message is recorded, and
 * its copy on the connection is acked without a callback.
 */
public final class VendorMessage {
    /** The receiver of the verdict. */
    interface VerdictSink {
        /** Takes the verdict; returns false if it could not be stored or queued. */
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
     * Returns the ids and the payload of the message.
     *
     * @return the vendor's push
     */
    public VendorPush push() {
        return push;
    }

    /**
     * Records the message as processed, durably. Its copy on the connection is acked without a callback.
     *
     * @return false if the message already has a verdict, or if the verdict could not be stored or queued
     */
    public boolean processed() {
        return finish(true);
    }

    /**
     * Defers the message to the connection: {@link Listener#onMessage} receives the copy there.
     *
     * @return false if the message already has a verdict
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
