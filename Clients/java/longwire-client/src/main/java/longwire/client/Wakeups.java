package longwire.client;

/**
 * A receiver of the times when the client must run.
 *
 * <p>A sleeping processor runs no thread. On such a system the app sets an alarm and calls {@link LongwireClient#wake}
 * when it fires. The client calls this on its own thread: when the time has become earlier, or later by five seconds or
 * more, or when the previous time has passed.
 */
public interface Wakeups {
    /**
     * Receives the next time when the client must run.
     *
     * @param monotonicMillis the time on the client's monotonic clock, or {@link Long#MAX_VALUE} if there is none
     */
    void nextWakeup(long monotonicMillis);
}
