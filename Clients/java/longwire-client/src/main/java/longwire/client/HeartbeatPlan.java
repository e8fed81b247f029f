package longwire.client;

/**
 * The longest silence that one network tolerates, as learnt from its connections.
 *
 * <p>A router drops the state of a silent connection without a notice to either side. A Ping after a silence that gets
 * no answer therefore halves the heartbeat, down to 30 s. Answered Pings raise it by half, in steps, up to the app's or
 * the gateway's heartbeat. A length that failed is tried again only after 32 answers. All numbers are seconds, and 0
 * stands for none.
 */
final class HeartbeatPlan {
    /** The learnt heartbeat, or 0 if the usual one works. */
    private long learnt;
    /** The usual heartbeat, which is the maximum. */
    private long ceiling;
    /** The shortest heartbeat that failed. */
    private long failed;
    private int answerCount;

    HeartbeatPlan() {}

    /** Restores a learnt plan; a value below the gateway's minimum or above the ceiling is ignored. */
    HeartbeatPlan(long learnt, long ceiling, long failed) {
        this.ceiling = ceiling;
        boolean isPossible = learnt >= Limits.LEAST_HEARTBEAT_SECONDS
            && learnt <= Math.max(ceiling, Limits.LEAST_HEARTBEAT_SECONDS);
        this.learnt = isPossible ? learnt : 0;
        this.failed = failed;
    }

    HeartbeatPlan copy() {
        HeartbeatPlan copy = new HeartbeatPlan();
        copy.learnt = learnt;
        copy.ceiling = ceiling;
        copy.failed = failed;
        copy.answerCount = answerCount;
        return copy;
    }

    long learnt() {
        return learnt;
    }

    long ceiling() {
        return ceiling;
    }

    long failed() {
        return failed;
    }

    boolean isEmpty() {
        return learnt == 0 && failed == 0;
    }

    /** Records the heartbeat that the gateway chose for the session. */
    void agreed(long seconds) {
        if (learnt == 0) {
            ceiling = seconds;
        }
    }

    /** Records that a connection died in a silence of this length. */
    void lost(long seconds) {
        long shorter = learnt == 0 ? seconds : Math.min(learnt, seconds);
        learnt = Math.max(Limits.LEAST_HEARTBEAT_SECONDS, shorter / 2);
        failed = failed == 0 ? seconds : Math.min(failed, seconds);
        answerCount = 0;
    }

    /**
     * Records that a Ping after a silence was answered.
     *
     * @return a longer heartbeat to request, or 0 to keep the current one
     */
    long answered() {
        if (learnt == 0) {
            return 0;
        }
        answerCount++;
        long next = Math.min(ceiling, learnt + learnt / 2);
        boolean isRisky = failed != 0 && next >= failed;
        if (answerCount < (isRisky ? Limits.ANSWERS_BEFORE_RETRIAL : Limits.ANSWERS_BEFORE_LONGER)) {
            return 0;
        }
        answerCount = 0;
        if (isRisky) {
            failed = 0;
        }
        long former = learnt;
        learnt = next < ceiling ? next : 0;
        return next > former ? next : 0;
    }

    /** Resets the plan, for another network or another requested heartbeat. */
    void forget() {
        learnt = 0;
        failed = 0;
        answerCount = 0;
    }
}
