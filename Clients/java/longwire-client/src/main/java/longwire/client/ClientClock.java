package longwire.client;

/** The client's two clocks. */
public interface ClientClock {
    /** The clocks of the Java runtime. */
    ClientClock SYSTEM = new ClientClock() {
        @Override
        public long monotonicMillis() {
            return System.nanoTime() / 1_000_000;
        }

        @Override
        public long wallMillis() {
            return System.currentTimeMillis();
        }
    };

    /**
     * Returns a time that never goes back.
     *
     * <p>It should include the time that the machine sleeps. Otherwise a device that slept through its heartbeat relies
     * on a dead connection until its next Ping. On Android that is {@code SystemClock.elapsedRealtime()}.
     *
     * @return milliseconds since any moment
     */
    long monotonicMillis();

    /**
     * Returns the time of day.
     *
     * @return milliseconds since 1970
     */
    long wallMillis();
}
