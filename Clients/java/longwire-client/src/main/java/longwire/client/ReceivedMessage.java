package longwire.client;

import java.nio.charset.StandardCharsets;

/**
 * A message for the app.
 *
 * <p>The app ends each message with one of {@link #processed}, {@link #rejected} and {@link #deferred}, from any thread
 * and in any order. The client stores the position durably and then acks the message.
 */
public final class ReceivedMessage {
    private static final byte[] EMPTY = new byte[0];

    long stream;
    long sequence;
    Identifier messageId = Identifier.NONE;
    Identifier taskId = Identifier.NONE;
    byte[] payload = EMPTY;
    boolean isOffline;
    long acceptedAt;
    long alertedAt;
    long attempt;
    String collapseKey = "";
    boolean hasAlert;
    String title = "";
    String body = "";
    boolean isCarriedByVendor;
    boolean wasOpened;

    /** The registration and queue that the sequence belongs to; another registration or queue numbers anew. */
    Identifier originCid = Identifier.NONE;
    long originEpoch;

    /** The receiver of the verdict. */
    VerdictSink sink;

    /** Whether the verdict was given; guarded by this object's monitor. */
    private boolean isFinished;
    /** Whether the app's callback has begun, so that the message can no longer be withdrawn; guarded as above. */
    private boolean isTaken;

    /** The verdict of the app on a message. */
    enum Verdict { PROCESSED, REJECTED, DEFERRED }

    interface VerdictSink {
        /** Returns false when the verdict can be neither posted nor kept. */
        boolean finish(ReceivedMessage message, Verdict verdict, String reason);
    }

    ReceivedMessage() {}

    /**
     * Returns the stream.
     *
     * @return 0 for a message to this device, 1 for a broadcast
     */
    public long stream() {
        return stream;
    }

    /**
     * Returns the message's number, strictly increasing within a stream.
     *
     * @return the sequence
     */
    public long sequence() {
        return sequence;
    }

    /**
     * Returns the message's id, equal to the one in its notification.
     *
     * @return the msgId
     */
    public Identifier messageId() {
        return messageId;
    }

    /**
     * Returns the publisher's task.
     *
     * @return the taskId
     */
    public Identifier taskId() {
        return taskId;
    }

    /**
     * Returns the publisher's bytes, unchanged.
     *
     * @return the payload, which the app must not change
     */
    public byte[] payload() {
        return payload;
    }

    /**
     * Returns the payload as text.
     *
     * @return the payload decoded as UTF-8, with faulty bytes replaced
     */
    public String text() {
        return new String(payload, StandardCharsets.UTF_8);
    }

    /**
     * Returns whether the device was unreachable when the gateway accepted the message, or the first delivery timed
     * out.
     *
     * @return true if the user may have seen a notification already
     */
    public boolean isOffline() {
        return isOffline;
    }

    /**
     * Returns the time when the gateway accepted the message.
     *
     * @return milliseconds since 1970
     */
    public long acceptedAt() {
        return acceptedAt;
    }

    /**
     * Returns the time when the vendor accepted the alert.
     *
     * @return milliseconds since 1970, or 0
     */
    public long alertedAt() {
        return alertedAt;
    }

    /**
     * Returns the number of times that the message was sent in this session.
     *
     * @return the attempt, from 1
     */
    public long attempt() {
        return attempt;
    }

    /**
     * Returns the publisher's collapse key.
     *
     * @return the key, or an empty text
     */
    public String collapseKey() {
        return collapseKey;
    }

    /**
     * Returns whether the message has an alert for the app to show.
     *
     * @return true if {@link #title} and {@link #body} come from the publisher
     */
    public boolean hasAlert() {
        return hasAlert;
    }

    /**
     * Returns the title of the message's alert.
     *
     * @return the title, or an empty text
     */
    public String title() {
        return title;
    }

    /**
     * Returns the body of the message's alert.
     *
     * @return the body, or an empty text
     */
    public String body() {
        return body;
    }

    /**
     * Returns whether the user opened the message's notification, so that the app has shown its content already.
     *
     * @return true after {@link LongwireClient#markOpened}
     */
    public boolean wasOpened() {
        return wasOpened;
    }

    /**
     * Ends the message: it is recorded durably, then acked, and not delivered again.
     *
     * @return false when the message already has a verdict, or the verdict could not be kept
     */
    public boolean processed() {
        return finish(Verdict.PROCESSED, "");
    }

    /**
     * Ends a message that the app can never process; the gateway marks it as failed.
     *
     * @param reason the reason for the publisher's statistics, cut after 128 characters
     * @return false when the message already has a verdict, or the verdict could not be kept
     */
    public boolean rejected(String reason) {
        return finish(Verdict.REJECTED, reason);
    }

    /**
     * Leaves the message un-acked; the gateway delivers it again in a later session, or through the vendor.
     *
     * @return false when the message already has a verdict
     */
    public boolean deferred() {
        return finish(Verdict.DEFERRED, "");
    }

    private boolean finish(Verdict verdict, String reason) {
        if (reason == null) {
            throw new IllegalArgumentException("a rejection needs a reason");
        }
        synchronized (this) {
            if (isFinished) {
                return false;
            }
            isFinished = true;
        }
        return sink == null || sink.finish(this, verdict, reason);
    }

    /** Marks that the app's callback begins; returns false when the message was withdrawn before. */
    synchronized boolean take() {
        if (isFinished) {
            return false;
        }
        isTaken = true;
        return true;
    }

    /** Whether the app's callback has begun or the message was withdrawn. */
    synchronized boolean isTaken() {
        return isTaken || isFinished;
    }

    /** Takes the message back unless the app's callback has begun; returns false then. */
    synchronized boolean withdraw() {
        if (isTaken || isFinished) {
            return false;
        }
        isFinished = true;
        return true;
    }

    /** Returns the ids and the size; the payload stays out of logs. */
    @Override
    public String toString() {
        return "message " + messageId + ", sequence " + sequence + ", " + payload.length + " bytes";
    }
}
