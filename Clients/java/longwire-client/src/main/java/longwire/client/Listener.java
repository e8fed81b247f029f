package longwire.client;

/**
 * The app's callbacks.
 *
 * <p>They run one at a time and in order, on the executor of {@link ClientConfiguration#setExecutor} or on the client's
 * own thread. All callbacks except {@link #onMessage} have a default, so a lambda can be a listener. An exception of a
 * callback goes to {@link #onCallbackFailed}; a message without a verdict is then deferred.
 */
public interface Listener {
    /**
     * Receives a message, which the app ends with {@link ReceivedMessage#processed}, {@link ReceivedMessage#rejected}
     * or {@link ReceivedMessage#deferred}, now or later.
     *
     * <p>If the app dies between its effect and the durable record, the message is delivered again. There is no other
     * source of repeats. To exclude these repeats, store the message's id in the same transaction as the message's
     * effect.
     *
     * @param message the message
     */
    void onMessage(ReceivedMessage message);

    /**
     * Receives a message that arrived through a vendor. The app must call {@link VendorMessage#processed} or {@link
     * VendorMessage#deferred}, now or later.
     *
     * <p>The default implementation and an exception defer the message: {@link #onMessage} then receives the copy on the
     * connection.
     *
     * @param message the message
     */
    default void onVendorMessage(VendorMessage message) {
        message.deferred();
    }

    /**
     * Reports that a new device was registered and its credentials are stored.
     *
     * @param cid the new device
     */
    default void onRegistered(Identifier cid) {}

    /**
     * Reports that the gateway no longer knows the stored device; a new registration follows.
     *
     * @param cid the former device
     */
    default void onRegistrationLost(Identifier cid) {}

    /**
     * Reports that the client begins to connect.
     *
     * @param host the host name or numeric address
     * @param port the port
     */
    default void onConnecting(String host, int port) {}

    /**
     * Reports that the gateway accepted the session.
     *
     * @param details the contents of the Welcome
     */
    default void onWelcomed(WelcomeDetails details) {}

    /**
     * Reports that the gateway restored or replaced the device's queue; the client discards its positions.
     *
     * @param from the former epoch
     * @param to the new epoch
     */
    default void onQueueReset(long from, long to) {}

    /**
     * Reports that the gateway closed the connection.
     *
     * @param code the close code (docs/use/Errors.md, "Close codes")
     * @param reason the gateway's text
     */
    default void onClosed(long code, String reason) {}

    /**
     * Reports that the connection ended without a Close, or was not established.
     *
     * @param reason the cause
     */
    default void onDisconnected(String reason) {}

    /**
     * Reports that the client reconnects after a delay.
     *
     * @param milliseconds the delay
     */
    default void onRetrying(long milliseconds) {}

    /**
     * Reports the gateway's answer to an update of the app's state, badge, tokens, push mode or heartbeat.
     *
     * @param request the number of the update
     * @param code 0 if the update was applied
     * @param reason the reason for refused tokens, or an empty text
     */
    default void onUpdated(long request, long code, String reason) {}

    /**
     * Reports a message that was not handed to the app: it was processed or rejected before, or opened from its
     * notification.
     *
     * @param messageId the message
     * @param sequence its number
     * @param wasOpened whether the user opened its notification
     */
    default void onSuppressed(Identifier messageId, long sequence, boolean wasOpened) {}

    /**
     * Reports a message that arrived while the app was suspended; it is not acked, and the gateway sends it again with
     * new flags.
     *
     * @param messageId the message
     * @param sequence its number
     */
    default void onDroppedWhileSuspended(Identifier messageId, long sequence) {}

    /**
     * Reports that the publisher revoked a task; the app removes what it showed of the task.
     *
     * @param taskId the revoked task
     */
    default void onRevoked(Identifier taskId) {}

    /**
     * Reports that the gateway has stored a message to the app's server on disk.
     *
     * @param message the message
     */
    default void onMessageTaken(OutgoingMessage message) {}

    /**
     * Reports that a message to the app's server was refused for ever.
     *
     * @param message the message
     * @param code the gateway's code (docs/use/Errors.md), or 0 if the client's own queue is full or the message could
     *     not be stored
     * @param reason the reason
     */
    default void onMessageRefused(OutgoingMessage message, long code, String reason) {}

    /**
     * Receives the answer to a request about the device's own alias and tags. Each request has exactly one answer.
     *
     * <p>The request 0 is the client's own, for the alias of the registration token.
     *
     * @param answer the answer, also to a request that the client's stop ended
     */
    default void onNames(NamesAnswer answer) {}

    /**
     * Reports that the state could not be stored; nothing was acked. The client retries with the next connection, and
     * when it stops.
     *
     * @param error the cause
     */
    default void onStateNotStored(LongwireException error) {}

    /**
     * Reports that the client has stopped until its next start. This is the last event. The callback may start the
     * client again.
     *
     * @param error the cause, or {@code null} after {@link LongwireClient#stop} if the state was stored
     */
    default void onStopped(LongwireException error) {}

    /**
     * Reports an exception of another callback. The default passes it to the thread's handler of uncaught exceptions,
     * which ends an Android app.
     *
     * @param error the exception
     */
    default void onCallbackFailed(RuntimeException error) {
        Thread thread = Thread.currentThread();
        thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
    }
}
