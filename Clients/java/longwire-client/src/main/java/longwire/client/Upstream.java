package longwire.client;

import java.util.ArrayList;
import java.util.List;

/** The messages to the app's server, sent one at a time in order and kept until the gateway has confirmed them. */
final class Upstream {
    private final ClientCore core;
    /** Whether the first message is in flight. */
    private boolean isSent;
    /** The time of the next attempt after a temporary refusal, or {@code ClientCore.NEVER}. */
    private long retryAt = ClientCore.NEVER;

    /** The messages that no successful write of the state has covered yet. */
    private final List<OutgoingMessage> unwritten = new ArrayList<>();

    Upstream(ClientCore core) {
        this.core = core;
    }

    void send(byte[] payload, Identifier task, long now) {
        OutgoingMessage kept = core.state.keep(payload, task);
        if (kept == null) {
            refuse(new OutgoingMessage(0, payload, task), "too many messages wait for the gateway already");
            return;
        }
        unwritten.add(kept);
        core.persist();
        resume(now);
    }

    private void refuse(OutgoingMessage message, String reason) {
        core.report(listener -> listener.onMessageRefused(message, 0, reason));
    }

    /** Notes that the store has all messages. */
    void written() {
        unwritten.clear();
    }

    /**
     * Refuses the messages that the store did not accept. Otherwise a message that does not fit into the store would
     * prevent each later write, and with it each connection.
     */
    void writeFailed(LongwireException error) {
        for (OutgoingMessage message : unwritten) {
            core.state.outgoing.remove(message);
            refuse(message, "the message could not be stored: " + error.getMessage());
        }
        if (!unwritten.isEmpty()) {
            core.state.lastOutgoing = unwritten.get(0).number - 1;
            unwritten.clear();
        }
    }

    /** Sends the first kept message; only one is in flight, so that a later one cannot overtake a refused one. */
    void resume(long now) {
        boolean isEarly = retryAt != ClientCore.NEVER && now < retryAt;
        if (!core.isReady() || isSent || isEarly) {
            return;
        }
        retryAt = ClientCore.NEVER;
        if (!core.state.outgoing.isEmpty()) {
            isSent = true;
            core.send(Frames.upstream(core.state.outgoing.get(0)), now);
        }
    }

    void receive(Frames.UpstreamResult result, long now) {
        if (!isSent || core.state.outgoing.isEmpty() || core.state.outgoing.get(0).number != result.request) {
            return;
        }
        isSent = false;
        if (result.code >= Limits.FIRST_RETRIED_CODE) {
            retryAt = now + (result.code == Limits.BUSY_CODE ? Limits.BUSY_RETRY_TIME : Limits.FULL_RETRY_TIME);
            return;
        }
        retryAt = ClientCore.NEVER;
        OutgoingMessage first = core.state.outgoing.remove(0);
        core.persist();
        if (result.code == 0) {
            core.report(listener -> listener.onMessageTaken(first));
        } else {
            core.report(listener -> listener.onMessageRefused(first, result.code, result.reason));
        }
        resume(now);
    }

    /** Returns the time of the next attempt, or {@code ClientCore.NEVER}. */
    long deadline() {
        return retryAt;
    }

    /** Marks the first message as not sent, because the session has ended. */
    void leaveSession() {
        isSent = false;
        retryAt = ClientCore.NEVER;
    }
}
