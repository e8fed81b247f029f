package longwire.client;

/** The timer of a fetch, which ends after a silence of the gateway or at the app's time limit. */
final class FetchTimer {
    private final ClientCore core;
    private boolean isActive;
    private long until;
    /** The time when the gateway's silence completes the fetch, or {@code NEVER} without a session. */
    private long quietAt;
    private int messageCount;
    /** Whether the fetch, not the app, set {@code keepsRunning}. */
    private boolean ownsRunning;

    FetchTimer(ClientCore core) {
        this.core = core;
        clear();
    }

    /** Ends the fetch without a result. */
    void clear() {
        isActive = false;
        until = 0;
        quietAt = ClientCore.NEVER;
        messageCount = 0;
        ownsRunning = false;
    }

    /** Begins a fetch, or extends the current one. */
    void begin(long milliseconds, long now) {
        isActive = true;
        until = Math.max(until, now + milliseconds);
        if (core.isReady()) {
            quietAt = now + Limits.FETCH_QUIET_TIME;
        }
        DeviceSettings settings = core.settings();
        if (settings.isSuspended()) {
            settings.setApplicationState(settings.applicationState(), true, now);
            ownsRunning = true;
        }
    }

    /** Returns the time of the next call of {@link #wake}, or {@code NEVER}. */
    long deadline() {
        return isActive ? Math.min(until, quietAt) : ClientCore.NEVER;
    }

    void wake(long now) {
        if (!isActive || now < deadline()) {
            return;
        }
        if (core.hasOpenMessages() && now < until) {
            // The gateway is silent, but the app has not returned its verdicts yet.
            quietAt = now + Limits.FETCH_QUIET_TIME;
            return;
        }
        boolean isComplete = core.isReady() && now < until;
        FetchResult result = new FetchResult(messageCount, isComplete);
        boolean ownedRunning = ownsRunning;
        clear();
        if (ownedRunning) {
            DeviceSettings settings = core.settings();
            settings.setApplicationState(settings.applicationState(), false, now);
        }
        core.act(Action.fetched(result));
    }

    /** Starts the wait for silence when a session begins. */
    void welcomed(long now) {
        if (isActive) {
            quietAt = now + Limits.FETCH_QUIET_TIME;
        }
    }

    /** Restarts the wait for silence after a frame of the gateway. */
    void received(long now) {
        if (isActive && quietAt != ClientCore.NEVER) {
            quietAt = now + Limits.FETCH_QUIET_TIME;
        }
    }

    /** Stops the wait for silence, because the session has ended. */
    void leaveSession() {
        quietAt = ClientCore.NEVER;
    }

    void countMessage() {
        if (isActive) {
            messageCount++;
        }
    }

    /** Leaves the state that the app has set during the fetch unchanged at its end. */
    void stateSet() {
        ownsRunning = false;
    }
}
