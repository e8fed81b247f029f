package longwire.client;

import java.nio.charset.StandardCharsets;

/** The heartbeat learnt on one network, as stored in the state. */
final class NetworkHeartbeat {
    /** The name passed to {@link LongwireClient#networkChanged}; empty for an unnamed network. */
    final String network;
    final HeartbeatPlan plan;

    NetworkHeartbeat(String network, HeartbeatPlan plan) {
        this.network = network;
        this.plan = plan;
    }

    String line() {
        return "heartbeat -" + Identifier.hex(network.getBytes(StandardCharsets.UTF_8)) + " " + plan.learnt() + " "
            + plan.ceiling() + " " + plan.failed();
    }

    /** Reads the words of a line; returns {@code null} for anything else. */
    static NetworkHeartbeat parse(String[] words) {
        if (words.length != 5 || !words[1].startsWith("-")) {
            return null;
        }
        byte[] name = Identifier.bytes(words[1].substring(1));
        long learnt = ClientState.unsigned32(words[2]);
        long ceiling = ClientState.unsigned32(words[3]);
        long failed = ClientState.unsigned32(words[4]);
        if (name == null || learnt < 0 || ceiling < 0 || failed < 0) {
            return null;
        }
        return new NetworkHeartbeat(
            new String(name, StandardCharsets.UTF_8), new HeartbeatPlan(learnt, ceiling, failed));
    }
}
