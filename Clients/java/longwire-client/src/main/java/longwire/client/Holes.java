package longwire.client;

import java.util.Arrays;

/** Sequences of one stream, ascending: those that a session received and the app has not processed. */
final class Holes {
    private long[] sequences = new long[8];
    // The used ones are [start, end). Streams are in order, so additions are at the end and removals mostly at the
    // start.
    private int start;
    private int end;

    boolean isEmpty() {
        return start == end;
    }

    int count() {
        return end - start;
    }

    long first() {
        return sequences[start];
    }

    /** Returns the index of the first sequence that is not below the given one. */
    private int index(long sequence) {
        int low = start;
        int high = end;
        while (low < high) {
            int middle = low + high >>> 1;
            if (sequences[middle] < sequence) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    boolean contains(long sequence) {
        int index = index(sequence);
        return index < end && sequences[index] == sequence;
    }

    /** Returns the highest sequence below the given one, which must not be the lowest. */
    long below(long sequence) {
        int index = index(sequence);
        return sequences[Math.max(start, index - 1)];
    }

    void add(long sequence) {
        int index = index(sequence);
        if (index < end && sequences[index] == sequence) {
            return;
        }
        if (end == sequences.length) {
            // The free places at the start are used again before the array grows.
            int count = end - start;
            long[] target = count > sequences.length / 2 ? new long[2 * sequences.length] : sequences;
            System.arraycopy(sequences, start, target, 0, count);
            index -= start;
            start = 0;
            end = count;
            sequences = target;
        }
        System.arraycopy(sequences, index, sequences, index + 1, end - index);
        sequences[index] = sequence;
        end++;
    }

    void remove(long sequence) {
        int index = index(sequence);
        if (index == end || sequences[index] != sequence) {
            return;
        }
        if (index == start) {
            start++;
        } else {
            System.arraycopy(sequences, index + 1, sequences, index, end - index - 1);
            end--;
        }
    }

    Holes copy() {
        Holes copy = new Holes();
        copy.sequences = Arrays.copyOf(sequences, sequences.length);
        copy.start = start;
        copy.end = end;
        return copy;
    }
}
