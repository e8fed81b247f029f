package longwire.client;

import java.util.ArrayDeque;
import java.util.Deque;

/** The requests about the device's own alias and tags: sent one at a time, in the order of the calls. */
final class OwnNames {
    private final ClientCore core;
    private final Deque<NamesRequest> waiting = new ArrayDeque<>();
    /** Whether the first request is in flight. */
    private boolean isSent;

    OwnNames(ClientCore core) {
        this.core = core;
    }

    void ask(NamesRequest names, long now) {
        if (waiting.size() >= Limits.NAMES_COUNT) {
            answer(NamesAnswer.busy(names.request));
            return;
        }
        waiting.addLast(names);
        resume(now);
    }

    /**
     * Sends the first waiting request if none is in flight, so that changes are made in the order of the calls.
     *
     * <p>An unanswered request is sent again after a reconnect. Requests are idempotent, so a repeat is harmless.
     */
    void resume(long now) {
        if (core.isReady() && !isSent && !waiting.isEmpty()) {
            isSent = true;
            core.send(Frames.deviceNames(waiting.getFirst()), now);
        }
    }

    void receive(NamesAnswer result, long now) {
        if (!isSent || waiting.getFirst().request != result.request()) {
            return;
        }
        isSent = false;
        waiting.removeFirst();
        answer(result);
        resume(now);
    }

    private void answer(NamesAnswer answer) {
        core.act(Action.answer(listener -> listener.onNames(answer)));
    }

    /** Marks the first request as not sent, because the session has ended. */
    void leaveSession() {
        isSent = false;
    }
}
