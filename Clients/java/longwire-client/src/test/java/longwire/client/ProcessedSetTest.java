package longwire.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import org.junit.Test;

/** The processed set against the algorithm of docs/use/Protocol.md, written plainly. */
public class ProcessedSetTest {
    /** The page's stream, with sets instead of ranges. */
    private static final class Plain {
        final TreeSet<Long> processed = new TreeSet<>();
        final TreeSet<Long> unfinished = new TreeSet<>();
        long position;

        void processed(long sequence) {
            unfinished.remove(sequence);
            Long nearest = unfinished.lower(sequence);
            if (nearest == null) {
                position = Math.max(position, sequence);
            } else {
                position = Math.max(position, unfinished.first() - 1);
                for (long number = nearest + 1; number <= sequence; number++) {
                    processed.add(number);
                }
            }
            while (processed.contains(position + 1)) {
                position++;
            }
        }

        boolean covers(long sequence) {
            return sequence <= position || processed.contains(sequence);
        }
    }

    @Test
    public void equalsThePageInRandomOrders() {
        for (int seed = 0; seed < 300; seed++) {
            Random random = new Random(seed);
            ProcessedSet set = new ProcessedSet();
            Plain plain = new Plain();
            Holes holes = new Holes();
            List<Long> open = new ArrayList<>();
            long next = 1;
            for (int step = 0; step < 200; step++) {
                if (open.isEmpty() || random.nextInt(2) == 0) {
                    // Sequences have gaps.
                    next += 1 + random.nextInt(3);
                    holes.add(next);
                    plain.unfinished.add(next);
                    open.add(next);
                } else {
                    long done = open.remove(random.nextInt(open.size()));
                    holes.remove(done);
                    set.insert(done, holes);
                    plain.processed(done);
                }
                assertEquals(plain.position, set.sequence());
                for (long sequence = 1; sequence <= next + 1; sequence++) {
                    assertEquals("seed " + seed + ", " + sequence, plain.covers(sequence), set.contains(sequence));
                }
            }
            for (int index = 0; index < set.rangeCount(); index++) {
                long floor = index == 0 ? set.sequence() : set.last(index - 1);
                boolean isApart = set.first(index) > floor + 1 && set.last(index) >= set.first(index);
                assertTrue("ranges ascend and are apart", isApart);
            }
        }
    }

    @Test
    public void aRangeOfAnEarlierSessionRaisesNothing() {
        ProcessedSet set = new ProcessedSet(10);
        set.insertAlone(20);
        assertEquals(10, set.sequence());
        assertFalse(set.contains(15));
        set.insertAlone(11);
        assertEquals("10-11 does not touch 20", 11, set.sequence());
        assertEquals("11 20-20", set.toString());
    }

    @Test
    public void rangesOfAFileAreJoined() {
        ProcessedSet set = new ProcessedSet(5);
        set.insertRange(30, 40);
        set.insertRange(8, 9);
        set.insertRange(10, 29);
        set.insertRange(50, 45);
        assertEquals("5 8-40", set.toString());
        set.insertRange(1, 7);
        assertEquals("40", set.toString());
    }

    @Test
    public void theNumberOfRangesIsBounded() {
        ProcessedSet set = new ProcessedSet();
        for (long sequence = 2; sequence < 4L * Limits.PROCESSED_RANGE_COUNT; sequence += 2) {
            set.insertAlone(sequence);
        }
        assertEquals(Limits.PROCESSED_RANGE_COUNT, set.rangeCount());
        assertTrue("the lowest ranges are kept", set.contains(2));
    }

    @Test
    public void theGreatestSequenceIsCounted() {
        ProcessedSet set = new ProcessedSet();
        set.insert(Limits.GREATEST_SEQUENCE, new Holes());
        assertTrue(set.contains(Limits.GREATEST_SEQUENCE));
        set.insertAlone(Limits.GREATEST_SEQUENCE);
        assertEquals(0, set.rangeCount());
    }

    @Test
    public void holesStayInOrder() {
        Holes holes = new Holes();
        TreeSet<Long> expected = new TreeSet<>();
        Random random = new Random(5);
        for (int step = 0; step < 20_000; step++) {
            long sequence = 1 + random.nextInt(2_000);
            if (random.nextInt(3) > 0 && expected.size() < 500) {
                holes.add(sequence);
                expected.add(sequence);
            } else {
                holes.remove(sequence);
                expected.remove(sequence);
            }
            assertEquals(expected.size(), holes.count());
            assertEquals(expected.contains(sequence), holes.contains(sequence));
            if (!expected.isEmpty()) {
                assertEquals((long) expected.first(), holes.first());
                Long below = expected.lower(sequence);
                if (below != null) {
                    assertEquals((long) below, holes.below(sequence));
                }
            }
        }
    }
}
