package longwire.client;

import java.util.Arrays;

/**
 * The processed sequences of one stream: everything up to {@code sequence}, and ranges above it.
 *
 * <p>A stream has gaps, because messages expire, are collapsed or were opened elsewhere. But a stream is in order: when
 * a message arrives, all lower ones that exist have arrived before, in this session or an earlier one. It is therefore
 * enough to track the <em>holes</em>: the messages that this session received and the app has not processed. Everything
 * else up to the highest processed sequence counts as processed.
 */
final class ProcessedSet {
    private static final long[] NONE = new long[0];

    private long sequence;
    /** Pairs of first and last, ascending and not adjacent; the first {@code 2 * rangeCount} are used. */
    private long[] ranges = NONE;
    private int rangeCount;

    ProcessedSet() {}

    ProcessedSet(long sequence) {
        this.sequence = sequence;
    }

    long sequence() {
        return sequence;
    }

    int rangeCount() {
        return rangeCount;
    }

    long first(int index) {
        return ranges[2 * index];
    }

    long last(int index) {
        return ranges[2 * index + 1];
    }

    boolean contains(long candidate) {
        if (candidate <= sequence) {
            return true;
        }
        for (int index = 0; index < rangeCount; index++) {
            if (first(index) <= candidate && candidate <= last(index)) {
                return true;
            }
        }
        return false;
    }

    /**
     * Marks one received sequence as processed.
     *
     * @param processed at most {@link Limits#GREATEST_SEQUENCE}, which the caller has checked
     * @param holes sequences received in this session and not processed, ascending, without {@code processed}
     */
    void insert(long processed, Holes holes) {
        if (holes.isEmpty() || holes.first() >= processed) {
            sequence = Math.max(sequence, processed);
            joinToSequence();
            return;
        }
        long nearest = holes.below(processed);
        sequence = Math.max(sequence, holes.first() - 1);
        insertRange(nearest + 1, processed);
    }

    /** Marks one sequence as processed, without a conclusion about lower ones. */
    void insertAlone(long processed) {
        insertRange(processed, processed);
    }

    /** Adds a range in any order, joined with the others; ignores a range that is empty or too high. */
    void insertRange(long first, long last) {
        if (first > last || last > Limits.GREATEST_SEQUENCE || first < 0) {
            joinToSequence();
            return;
        }
        // The ranges that the new one overlaps or touches are [from, to).
        int from = 0;
        while (from < rangeCount && last(from) + 1 < first) {
            from++;
        }
        int to = from;
        while (to < rangeCount && first(to) <= last + 1) {
            to++;
        }
        if (from < to) {
            ranges[2 * from] = Math.min(first(from), first);
            ranges[2 * from + 1] = Math.max(last(to - 1), last);
            System.arraycopy(ranges, 2 * to, ranges, 2 * (from + 1), 2 * (rangeCount - to));
            rangeCount -= to - from - 1;
        } else {
            if (2 * rangeCount == ranges.length) {
                ranges = Arrays.copyOf(ranges, Math.max(8, 2 * ranges.length));
            }
            System.arraycopy(ranges, 2 * from, ranges, 2 * (from + 1), 2 * (rangeCount - from));
            ranges[2 * from] = first;
            ranges[2 * from + 1] = last;
            rangeCount++;
        }
        joinToSequence();
        // The highest ranges are dropped beyond the limit. The gateway may deliver their messages again.
        rangeCount = Math.min(rangeCount, Limits.PROCESSED_RANGE_COUNT);
    }

    /** Removes the ranges that the cumulative sequence covers, and raises it over those that touch it. */
    private void joinToSequence() {
        int covered = 0;
        while (covered < rangeCount && first(covered) <= sequence + 1) {
            sequence = Math.max(sequence, last(covered));
            covered++;
        }
        if (covered > 0) {
            rangeCount -= covered;
            System.arraycopy(ranges, 2 * covered, ranges, 0, 2 * rangeCount);
        }
    }

    /** Returns the position for a Hello or an Ack, with the lowest ranges that fit into a frame. */
    ProtoWriter position(long stream) {
        ProtoWriter out = new ProtoWriter();
        out.number(1, stream);
        out.number(2, sequence);
        for (int index = 0; index < Math.min(rangeCount, Limits.RANGE_COUNT); index++) {
            ProtoWriter range = new ProtoWriter();
            range.number(1, first(index));
            range.number(2, last(index));
            out.element(3, range);
        }
        return out;
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof ProcessedSet)) {
            return false;
        }
        ProcessedSet that = (ProcessedSet) other;
        if (that.sequence != sequence || that.rangeCount != rangeCount) {
            return false;
        }
        for (int index = 0; index < 2 * rangeCount; index++) {
            if (that.ranges[index] != ranges[index]) {
                return false;
            }
        }
        return true;
    }

    @Override
    public int hashCode() {
        return Long.hashCode(sequence) + rangeCount;
    }

    /** Returns the form of the state file: the sequence, then the ranges. */
    @Override
    public String toString() {
        StringBuilder text = new StringBuilder().append(sequence);
        for (int index = 0; index < rangeCount; index++) {
            text.append(' ').append(first(index)).append('-').append(last(index));
        }
        return text.toString();
    }
}
