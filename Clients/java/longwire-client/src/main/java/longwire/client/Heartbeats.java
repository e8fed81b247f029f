package longwire.client;

/** The heartbeat of the connection, and the plan that learns from it for the current network. */
final class Heartbeats {
    private final ClientCore core;
    private long time = Limits.DEFAULT_HEARTBEAT_SECONDS * 1_000;
    private HeartbeatPlan plan;
    /** The name of the network that {@code plan} belongs to. */
    private String network;
    private long lastReceivedAt;
    /** Whether the Ping in flight follows a whole heartbeat without bytes from the gateway. */
    private boolean isProbing;
    /** The end of the time in which a loss counts against the heartbeat. */
    private long probeEnd;

    /** Reads the plan of the last run's network, which the client assumes until the system reports another. */
    Heartbeats(ClientCore core) {
        this.core = core;
        int last = core.state.heartbeats.size() - 1;
        network = last < 0 ? "" : core.state.heartbeats.get(last).network;
        plan = core.state.heartbeat(network);
    }

    /** Returns the agreed heartbeat in milliseconds. */
    long time() {
        return time;
    }

    /** Returns the learnt heartbeat in seconds, or 0. */
    long learnt() {
        return plan.learnt();
    }

    /** Uses the heartbeat that the gateway grants. */
    void agree(long seconds) {
        time = seconds * 1_000;
        plan.agreed(seconds);
    }

    /** Notes the Ping after a heartbeat, which was due at {@code due}. */
    void probe(long due, long now) {
        isProbing = now - lastReceivedAt >= time * 9 / 10;
        // A late timer means that the processor slept. The gateway may have ended the session since, so a loss says
        // nothing about the network.
        boolean isLate = now - due >= Limits.LATE_TIME;
        probeEnd = isLate ? now : now + Limits.PONG_TIME + Limits.LATE_TIME;
    }

    /** Notes bytes from the gateway; returns a longer heartbeat to request, or 0. */
    long received(long now) {
        lastReceivedAt = now;
        if (!isProbing) {
            return 0;
        }
        isProbing = false;
        long seconds = plan.answered();
        if (seconds != 0) {
            keep();
        }
        return seconds;
    }

    /** Notes the end of a connection without a Close. */
    void disconnected(long now) {
        if (isProbing && now < probeEnd) {
            plan.lost(time / 1_000);
            keep();
        }
    }

    void leaveSession() {
        isProbing = false;
    }

    /** Loads the plan of another network; {@code null} stands for an unknown one. */
    void change(String name) {
        if (name != null) {
            network = name;
            plan = core.state.heartbeat(name);
            keep();
        } else {
            network = "";
            forget();
        }
    }

    /** Resets the plan, because the app requests another heartbeat. */
    void forget() {
        plan.forget();
        keep();
    }

    /**
     * Records the plan of the current network in the state; it is stored with the next change, at the latest with a
     * Hello.
     */
    private void keep() {
        core.state.keep(plan, network);
    }
}
