package longwire.client;

import java.util.Collections;
import java.util.List;

/** The contents of the gateway's Welcome. */
public final class WelcomeDetails {
    /** A count of messages that ended undelivered since the last session. */
    public static final class Dropped {
        private final String reason;
        private final long count;

        Dropped(String reason, long count) {
            this.reason = reason;
            this.count = count;
        }

        /**
         * Returns the final state.
         *
         * @return for example {@code expired} or {@code collapsed}
         */
        public String reason() {
            return reason;
        }

        /**
         * Returns the number of messages.
         *
         * @return the count
         */
        public long count() {
            return count;
        }
    }

    private final Identifier cid;
    private final Frames.Welcome welcome;

    WelcomeDetails(Frames.Welcome welcome, Identifier cid) {
        this.welcome = welcome;
        this.cid = cid;
    }

    /**
     * Returns the id of this device.
     *
     * @return the cid
     */
    public Identifier cid() {
        return cid;
    }

    /**
     * Returns the number of this session; it increases with each session of the device.
     *
     * @return the generation
     */
    public long generation() {
        return welcome.generation;
    }

    /**
     * Returns the epoch of the device's queue; positions are valid only within one epoch.
     *
     * @return the epoch
     */
    public long queueEpoch() {
        return welcome.queueEpoch;
    }

    /**
     * Returns the heartbeat of this session.
     *
     * @return seconds, or 0 if the gateway named none
     */
    public long heartbeatSeconds() {
        return welcome.heartbeatSeconds;
    }

    /**
     * Returns the maximum number of un-acked messages in flight.
     *
     * @return the window
     */
    public long window() {
        return welcome.window;
    }

    /**
     * Returns the gateway's clock.
     *
     * @return milliseconds since 1970
     */
    public long serverTime() {
        return welcome.serverTime;
    }

    /**
     * Returns the number of messages queued for this device.
     *
     * @return the count
     */
    public long backlog() {
        return welcome.backlog;
    }

    /**
     * Returns the counts of messages that ended undelivered since the last session.
     *
     * @return the counts by final state
     */
    public List<Dropped> dropped() {
        return Collections.unmodifiableList(welcome.dropped);
    }
}
