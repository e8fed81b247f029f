package longwire.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.util.Arrays;
import org.junit.Test;

/** Delays, heartbeats and addresses: the values without a connection. */
public class BackoffTest {
    @Test
    public void delaysAreBelowTheDoubledCeiling() {
        long[] greatest = new long[20];
        long[] least = new long[greatest.length];
        Arrays.fill(least, Long.MAX_VALUE);
        for (int seed = 0; seed < 2_000; seed++) {
            Backoff backoff = new Backoff(seed, Limits.BACKOFF_BASE, Limits.BACKOFF_CAP);
            for (int attempt = 0; attempt < greatest.length; attempt++) {
                long delay = backoff.next();
                assertTrue(delay >= 0 && delay <= Math.min(120_000, 1_000L << attempt));
                greatest[attempt] = Math.max(greatest[attempt], delay);
                least[attempt] = Math.min(least[attempt], delay);
            }
        }
        assertTrue("jitter uses the whole range", greatest[0] > 900 && greatest[3] > 7_200 && greatest[19] > 108_000);
        assertTrue("also the short delays", least[0] < 100 && least[3] < 800 && least[19] < 12_000);
    }

    @Test
    public void aResetBeginsAnew() {
        Backoff backoff = new Backoff(1, 1_000, 120_000);
        for (int attempt = 0; attempt < 10; attempt++) {
            backoff.next();
        }
        for (int round = 0; round < 100; round++) {
            backoff.reset();
            assertTrue(backoff.next() <= 1_000);
        }
    }

    @Test
    public void aWindowIncludesBothEnds() {
        Backoff backoff = new Backoff(9, 1_000, 120_000);
        boolean[] seen = new boolean[3];
        for (int round = 0; round < 200; round++) {
            seen[(int) backoff.within(5, 7) - 5] = true;
        }
        assertTrue(seen[0] && seen[1] && seen[2]);
        assertEquals(5, backoff.within(5, 5));
    }

    @Test
    public void aLostHeartbeatHalvesAndAnswersRaise() {
        HeartbeatPlan plan = new HeartbeatPlan();
        plan.agreed(300);
        plan.lost(300);
        assertEquals(150, plan.learnt());
        for (int answer = 1; answer < 4; answer++) {
            assertEquals(0, plan.answered());
        }
        assertEquals(225, plan.answered());
        // The next step would be the length that failed, so it needs 32 answers.
        for (int answer = 1; answer < 32; answer++) {
            assertEquals(0, plan.answered());
        }
        assertEquals(300, plan.answered());
        assertEquals("the usual heartbeat works again", 0, plan.learnt());
    }

    @Test
    public void aHeartbeatNeverFallsBelowThirtySeconds() {
        HeartbeatPlan plan = new HeartbeatPlan();
        plan.agreed(45);
        for (int loss = 0; loss < 5; loss++) {
            plan.lost(45);
        }
        assertEquals(30, plan.learnt());
        assertEquals("an impossible value is ignored", 0, new HeartbeatPlan(10, 300, 0).learnt());
        assertEquals("a value above the ceiling is ignored", 0, new HeartbeatPlan(301, 300, 0).learnt());
    }

    @Test
    public void alternatesAreHostAndPort() {
        assertEquals(new Endpoint("gateway-2.example", 7_000), Endpoint.parse("gateway-2.example:7000"));
        assertEquals(new Endpoint("::1", 7_000), Endpoint.parse("[::1]:7000"));
        assertEquals("[::1]:7000", Endpoint.parse("[::1]:7000").toString());
        for (String text : new String[] {
            "", ":", "host", "host:", ":7000", "host:0", "host:65536", "host:123456", "host:7x", "ho st:7000",
            "host/path:7000",
            "::1:7000", "[]:7000", "a@b:7000", "host:+7000", "hö:7000",
        }) {
            assertEquals(text, null, Endpoint.parse(text));
        }
    }

    @Test
    public void tasksHaveATextForm() {
        Identifier task = Identifier.parse("010b1d00d70b06436930eafacf92e777");
        assertEquals("RASS_1129_d70b06436930eafacf92e777", task.taskText());
        assertEquals(task, Identifier.parseTask(task.taskText()));
        for (String text : new String[] {"", "RASX_1129_d70b06436930eafacf92e777", "RASS_11x9_d70b06436930eafacf92e777",
            "RASS_1129_D70b06436930eafacf92e777", "RASS_1129_d70b06436930eafacf92e77"}) {
            assertEquals(text, null, Identifier.parseTask(text));
        }
    }

    @Test
    public void tokensAreCleaned() {
        assertEquals("abcd", new VendorToken(VendorToken.Channel.FCM, " <ab cd>\n").token());
        for (String[] bad : new String[][] {{"  ", ""}, {"ab\u00e9", ""}, {"ok", "p\u00e4ckage"}}) {
            try {
                new VendorToken(VendorToken.Channel.HMS, bad[0], bad[1]);
                throw new AssertionError(bad[0] + " was accepted");
            } catch (IllegalArgumentException error) {
                assertTrue(error.getMessage().length() > 10);
            }
        }
    }
}
