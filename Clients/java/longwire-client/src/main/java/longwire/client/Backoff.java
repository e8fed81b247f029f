package longwire.client;

/** Exponential backoff with full jitter, so that a fleet that lost its gateway does not reconnect in waves. */
final class Backoff {
    private final long base;
    private final long cap;
    private int failureCount;
    /** The state of a SplitMix64 generator; jitter does not have to be unpredictable. */
    private long state;

    Backoff(long seed, long base, long cap) {
        this.state = seed;
        this.base = base;
        this.cap = cap;
    }

    long base() {
        return base;
    }

    void reset() {
        failureCount = 0;
    }

    /** Returns the delay before the next attempt, in milliseconds. */
    long next() {
        int doublings = Math.min(failureCount, 16);
        failureCount++;
        return within(0, Math.min(cap, base << doublings));
    }

    /** Returns a random time from {@code least} to {@code most}, both included. */
    long within(long least, long most) {
        return least + Long.remainderUnsigned(word(), most - least + 1);
    }

    private long word() {
        state += 0x9E37_79B9_7F4A_7C15L;
        long word = state;
        word = (word ^ word >>> 30) * 0xBF58_476D_1CE4_E5B9L;
        word = (word ^ word >>> 27) * 0x94D0_49BB_1331_11EBL;
        return word ^ word >>> 31;
    }
}
