package longwire.client;

import java.util.ArrayDeque;
import java.util.Deque;

/** The requests about the device's own alias and tags: sent one at a time, in the order of the calls. */
final class OwnNames {
    private final ClientCore core;
    private final Deque<NamesRequest> waiting = new ArrayDeque<>();
    /** The time by which the first request must have its result, or {@code NEVER} if it is not in flight. */
    private long resultEnd = ClientCore.NEVER;
    /** The token whose alias the client still has to bind in this run, or an empty text. */
    private String owedToken = "";
    /** The time of the next attempt at that alias, or {@code NEVER} for the next opportunity. */
    private long retryAt = ClientCore.NEVER;
    /** Whether the app has bound or unbound an alias in this run; its choice then overrides the token's alias. */
    private boolean hasAppsAlias;

    OwnNames(ClientCore core) {
        this.core = core;
    }

    /** Takes the token of the configuration. */
    void begin() {
        owedToken = core.configuration.registrationToken();
    }

    /** Notes that a new device was registered, which has no alias yet. */
    void registered() {
        if (!hasAppsAlias) {
            owedToken = core.configuration.registrationToken();
        }
    }

    /** Takes another token, if the alias of the current one is not bound yet. */
    void replaceToken(String token) {
        if (!owedToken.isEmpty()) {
            owedToken = token;
            dropOwn();
        }
    }

    /** Removes the client's own request; in flight it keeps its place, and its result does not count any more. */
    private void dropOwn() {
        if (!isSent()) {
            waiting.removeIf(request -> request.request == NamesRequest.OWN_NUMBER);
        }
    }

    /** Returns the time of the next call of {@link #wake}, or {@code NEVER}. */
    long deadline() {
        return isSent() ? resultEnd : retryAt;
    }

    private boolean isSent() {
        return resultEnd != ClientCore.NEVER;
    }

    /** Repeats the request for the token's alias, or gives up a connection that brings no result. */
    void wake(long now) {
        if (!core.isReady() || now < deadline()) {
            return;
        }
        if (isSent()) {
            core.abandon("no DeviceNamesResult within " + core.configuration.namesTime() / 1_000 + " s", now);
        } else {
            resume(now);
        }
    }

    void ask(NamesRequest names, long now) {
        if (waiting.size() >= Limits.NAMES_COUNT) {
            answer(NamesAnswer.busy(names.request));
            return;
        }
        if (names.changesAlias()) {
            hasAppsAlias = true;
            owedToken = "";
            retryAt = ClientCore.NEVER;
            dropOwn();
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
        if (!core.isReady() || isSent()) {
            return;
        }
        addOwn(now);
        if (!waiting.isEmpty()) {
            resultEnd = now + core.configuration.namesTime();
            core.send(Frames.deviceNames(waiting.getFirst()), now);
        }
    }

    /** Puts the request for the alias of the registration token before the app's requests. */
    private void addOwn(long now) {
        boolean isFirst = !waiting.isEmpty() && waiting.getFirst().request == NamesRequest.OWN_NUMBER;
        boolean isEarly = retryAt != ClientCore.NEVER && now < retryAt;
        if (!owedToken.isEmpty() && !isFirst && !isEarly) {
            retryAt = ClientCore.NEVER;
            waiting.addFirst(NamesRequest.ofToken(NamesRequest.OWN_NUMBER, owedToken));
        }
    }

    void receive(NamesAnswer result, long now) {
        if (!isSent() || waiting.getFirst().request != result.request()) {
            return;
        }
        resultEnd = ClientCore.NEVER;
        NamesRequest asked = waiting.removeFirst();
        // A token that replaced the sent one has no result yet.
        if (asked.request == NamesRequest.OWN_NUMBER && asked.token.equals(owedToken)) {
            if (result.code() < Limits.FIRST_RETRIED_CODE) {
                owedToken = "";
            } else {
                retryAt = now + Limits.FULL_RETRY_TIME;
            }
        }
        answer(result);
        resume(now);
    }

    private void answer(NamesAnswer answer) {
        core.act(Action.answer(listener -> listener.onNames(answer)));
    }

    /** Marks the first request as not sent, because the session has ended. */
    void leaveSession() {
        resultEnd = ClientCore.NEVER;
        retryAt = ClientCore.NEVER;
    }
}
