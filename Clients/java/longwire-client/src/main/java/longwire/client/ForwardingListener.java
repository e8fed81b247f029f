package longwire.client;

/** A listener that passes each callback to another one, as a base for one that acts on some callbacks first. */
public class ForwardingListener implements Listener {
    private final Listener target;

    /**
     * Creates a listener.
     *
     * @param target the receiver of the callbacks
     */
    public ForwardingListener(Listener target) {
        this.target = target;
    }

    @Override
    public void onMessage(ReceivedMessage message) {
        target.onMessage(message);
    }

    @Override
    public void onVendorMessage(VendorMessage message) {
        target.onVendorMessage(message);
    }

    @Override
    public void onRegistered(Identifier cid) {
        target.onRegistered(cid);
    }

    @Override
    public void onRegistrationLost(Identifier cid) {
        target.onRegistrationLost(cid);
    }

    @Override
    public void onConnecting(String host, int port) {
        target.onConnecting(host, port);
    }

    @Override
    public void onWelcomed(WelcomeDetails details) {
        target.onWelcomed(details);
    }

    @Override
    public void onQueueReset(long from, long to) {
        target.onQueueReset(from, to);
    }

    @Override
    public void onClosed(long code, String reason) {
        target.onClosed(code, reason);
    }

    @Override
    public void onDisconnected(String reason) {
        target.onDisconnected(reason);
    }

    @Override
    public void onRetrying(long milliseconds) {
        target.onRetrying(milliseconds);
    }

    @Override
    public void onUpdated(long request, long code, String reason) {
        target.onUpdated(request, code, reason);
    }

    @Override
    public void onSuppressed(Identifier messageId, long sequence, boolean wasOpened) {
        target.onSuppressed(messageId, sequence, wasOpened);
    }

    @Override
    public void onDroppedWhileSuspended(Identifier messageId, long sequence) {
        target.onDroppedWhileSuspended(messageId, sequence);
    }

    @Override
    public void onRevoked(Identifier taskId) {
        target.onRevoked(taskId);
    }

    @Override
    public void onMessageTaken(OutgoingMessage message) {
        target.onMessageTaken(message);
    }

    @Override
    public void onMessageRefused(OutgoingMessage message, long code, String reason) {
        target.onMessageRefused(message, code, reason);
    }

    @Override
    public void onNames(NamesAnswer answer) {
        target.onNames(answer);
    }

    @Override
    public void onStateNotStored(LongwireException error) {
        target.onStateNotStored(error);
    }

    @Override
    public void onStopped(LongwireException error) {
        target.onStopped(error);
    }

    @Override
    public void onCallbackFailed(RuntimeException error) {
        target.onCallbackFailed(error);
    }
}
