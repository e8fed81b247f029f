package longwire.client;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * The state of a device that must survive a restart of its app.
 *
 * <p>The stored form is that of the Swift client: lines of {@code name value…}, readable in a support case. A version
 * comes first and an end mark last, so that a truncated file is detected. Unknown names are an error, so that a file of
 * a newer version is refused.
 */
final class ClientState {
    static final String FIRST_LINE = "longwire state 1";

    /** The app that this registration belongs to; a state of another app is not used. */
    String appId;
    Identifier cid = Identifier.NONE;
    byte[] deviceSecret = new byte[0];
    /** The greatest timestamp ever sent in a Hello; the next one is greater. */
    long lastTimestamp;
    /** The timestamp of the last Hello that the gateway accepted. */
    long acceptedTimestamp;
    /** The gateway's clock minus this machine's, in milliseconds, learnt from Close(clockSkew). */
    long clockOffset;
    /** The epoch of the queue that {@code streams} belongs to. */
    long queueEpoch;
    /** The processed sequences by stream: 0 direct, 1 broadcast. */
    final Map<Long, ProcessedSet> streams = new TreeMap<>();
    /** The last 256 messages opened from a notification, oldest first. */
    final List<Identifier> opened = new ArrayList<>();
    /** The opened messages that the gateway has not confirmed yet. */
    final List<Identifier> unreportedOpened = new ArrayList<>();
    /**
     * The last 256 messages that came through a vendor, or for which a vendor accepted an alert, oldest first. The
     * Swift client has no such list, and refuses a state that has one.
     */
    final List<Identifier> seen = new ArrayList<>();
    /** The last 256 messages that were reported as shown and not processed since, oldest first. */
    final List<Identifier> shown = new ArrayList<>();
    /** Reports of shown messages and actions that the gateway has not confirmed yet: the last 256, oldest first. */
    final List<MessageReport> unreported = new ArrayList<>();
    /**
     * Messages that the app rejected, until the gateway has confirmed the rejection; no position covers them until
     * then.
     */
    final List<Rejection> rejections = new ArrayList<>();
    /** Messages to the app's server that the gateway has not confirmed yet, in order. */
    final List<OutgoingMessage> outgoing = new ArrayList<>();
    /** The number of the last message to the app's server. */
    long lastOutgoing;
    /** The vendors whose tokens the app removed, until the gateway has confirmed the removal. */
    final Set<VendorToken.Channel> removedTokens = EnumSet.noneOf(VendorToken.Channel.class);
    /** The heartbeats learnt per network; the network used last is last. */
    final List<NetworkHeartbeat> heartbeats = new ArrayList<>();

    ClientState(String appId) {
        this.appId = appId;
    }

    boolean isRegistered() {
        return !cid.isNone() && deviceSecret.length > 0;
    }

    ProcessedSet stream(long stream) {
        ProcessedSet set = streams.get(stream);
        if (set == null) {
            set = new ProcessedSet();
            streams.put(stream, set);
        }
        return set;
    }

    /** Returns the positions of all streams, for a Hello or an Ack. */
    List<ProtoWriter> positions() {
        List<ProtoWriter> positions = new ArrayList<>(streams.size());
        for (Map.Entry<Long, ProcessedSet> entry : streams.entrySet()) {
            positions.add(entry.getValue().position(entry.getKey()));
        }
        return positions;
    }

    /** Returns the timestamp of the next Hello: the gateway's time, but greater than all earlier timestamps. */
    long nextTimestamp(long wallMillis) {
        long gatewayTime = Math.max(0, wallMillis + clockOffset);
        long next = lastTimestamp + 1;
        return Long.compareUnsigned(gatewayTime, next) > 0 ? gatewayTime : next;
    }

    /** Records that the user opened this message from its notification; the last 256 are kept. */
    void noteOpened(Identifier id) {
        for (List<Identifier> list : Arrays.asList(opened, unreportedOpened)) {
            list.remove(id);
            list.add(id);
            if (list.size() > Limits.OPENED_COUNT) {
                list.remove(0);
            }
        }
    }

    /** Records that this message came through a vendor, or may come through one. */
    void noteSeen(Identifier id) {
        note(id, seen);
    }

    private static void note(Identifier id, List<Identifier> recent) {
        recent.remove(id);
        recent.add(id);
        if (recent.size() > Limits.SEEN_COUNT) {
            recent.remove(0);
        }
    }

    /** Records the id of a processed message, if a copy may still arrive through a vendor. */
    void noteProcessed(ReceivedMessage message) {
        shown.remove(message.messageId);
        if (message.alertedAt != 0) {
            noteSeen(message.messageId);
        }
    }

    /** Returns false when the report is already recorded. */
    boolean note(MessageReport report) {
        if (unreported.contains(report)) {
            return false;
        }
        if (report.action == 0) {
            note(report.messageId, shown);
        }
        unreported.add(report);
        if (unreported.size() > Limits.REPORT_COUNT) {
            unreported.remove(0);
        }
        return true;
    }

    void note(Rejection rejection) {
        rejections.removeIf(other -> other.isOf(rejection.stream, rejection.sequence));
        rejections.add(rejection);
        if (rejections.size() > Limits.REJECTION_COUNT) {
            rejections.remove(0);
        }
    }

    Rejection rejection(long stream, long sequence) {
        for (Rejection rejection : rejections) {
            if (rejection.isOf(stream, sequence)) {
                return rejection;
            }
        }
        return null;
    }

    boolean isOrigin(ReceivedMessage message) {
        return message.originEpoch == queueEpoch && message.originCid.equals(cid);
    }

    /** Numbers and keeps a message to the app's server; returns {@code null} when the queue is full. */
    OutgoingMessage keep(byte[] payload, Identifier task) {
        int byteCount = payload.length;
        for (OutgoingMessage message : outgoing) {
            byteCount += message.payload.length;
        }
        if (outgoing.size() >= Limits.OUTGOING_COUNT || byteCount > Limits.OUTGOING_BYTE_COUNT) {
            return null;
        }
        lastOutgoing = lastOutgoing == 0xFFFF_FFFFL ? 1 : lastOutgoing + 1;
        OutgoingMessage message = new OutgoingMessage(lastOutgoing, payload, task);
        outgoing.add(message);
        return message;
    }

    HeartbeatPlan heartbeat(String network) {
        for (NetworkHeartbeat heartbeat : heartbeats) {
            if (heartbeat.network.equals(network)) {
                return heartbeat.plan.copy();
            }
        }
        return new HeartbeatPlan();
    }

    /** Stores the plan of a network; the current network is last, and the oldest entries are evicted. */
    void keep(HeartbeatPlan plan, String network) {
        heartbeats.removeIf(heartbeat -> heartbeat.network.equals(network));
        // An unnamed network is stored only if something was learnt.
        if (network.isEmpty() && plan.isEmpty()) {
            return;
        }
        heartbeats.add(new NetworkHeartbeat(network, plan.copy()));
        if (heartbeats.size() > Limits.NETWORK_COUNT) {
            heartbeats.remove(0);
        }
    }

    /**
     * Removes the registration and its data.
     *
     * <p>The clock offset and heartbeats belong to this machine and stay, as do messages that the app's server does not
     * have yet.
     */
    void forgetRegistration() {
        cid = Identifier.NONE;
        deviceSecret = new byte[0];
        lastTimestamp = 0;
        acceptedTimestamp = 0;
        queueEpoch = 0;
        streams.clear();
        opened.clear();
        unreportedOpened.clear();
        seen.clear();
        shown.clear();
        unreported.clear();
        rejections.clear();
        removedTokens.clear();
    }

    byte[] serialize() {
        StringBuilder text = new StringBuilder(512);
        text.append(FIRST_LINE).append('\n');
        text.append("app ").append(Identifier.hex(appId.getBytes(StandardCharsets.UTF_8))).append('\n');
        if (isRegistered()) {
            text.append("cid ").append(cid).append('\n');
            text.append("secret ").append(Identifier.hex(deviceSecret)).append('\n');
        }
        text.append("timestamp ").append(Long.toUnsignedString(lastTimestamp)).append(' ')
            .append(Long.toUnsignedString(acceptedTimestamp)).append('\n');
        text.append("offset ").append(clockOffset).append('\n');
        text.append("epoch ").append(Long.toUnsignedString(queueEpoch)).append('\n');
        for (Map.Entry<Long, ProcessedSet> entry : streams.entrySet()) {
            text.append("stream ").append(entry.getKey()).append(' ').append(entry.getValue()).append('\n');
        }
        for (Identifier id : opened) {
            text.append("opened ").append(id).append('\n');
        }
        for (Identifier id : unreportedOpened) {
            text.append("unreported ").append(id).append('\n');
        }
        for (Identifier id : seen) {
            text.append("seen ").append(id).append('\n');
        }
        for (Identifier id : shown) {
            text.append("displayed ").append(id).append('\n');
        }
        for (MessageReport report : unreported) {
            text.append(report.line()).append('\n');
        }
        for (Rejection rejection : rejections) {
            text.append(rejection.line()).append('\n');
        }
        for (VendorToken.Channel channel : removedTokens) {
            text.append("removed ").append(channel).append('\n');
        }
        for (NetworkHeartbeat heartbeat : heartbeats) {
            text.append(heartbeat.line()).append('\n');
        }
        if (lastOutgoing > 0) {
            text.append("sent ").append(lastOutgoing).append('\n');
        }
        for (OutgoingMessage message : outgoing) {
            text.append(message.line()).append('\n');
        }
        byte[] lines = text.toString().getBytes(StandardCharsets.US_ASCII);
        String check = checkSum(lines, lines.length);
        text.append("check ").append(check).append("\nend\n");
        return text.toString().getBytes(StandardCharsets.US_ASCII);
    }

    /**
     * Reads the form that {@link #serialize} writes.
     *
     * @throws LongwireException {@code STATE_DAMAGED}, with the line number where it applies, for anything else
     */
    static ClientState parse(byte[] bytes) throws LongwireException {
        String text;
        try {
            text = StandardCharsets.US_ASCII.newDecoder().onMalformedInput(CodingErrorAction.REPORT)
                .onUnmappableCharacter(CodingErrorAction.REPORT).decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException error) {
            throw damaged("the state has bytes that are no ASCII; restore or remove it");
        }
        String[] lines = text.split("\n", -1);
        if (!lines[0].equals(FIRST_LINE)) {
            throw damaged("this is not a state of version 1; use another state file");
        }
        int last = lines.length - 1;
        if (last < 3 || !lines[last].isEmpty() || !lines[last - 1].equals("end")) {
            throw damaged("the state is cut short; restore or remove it");
        }
        // The checksum covers all bytes before its own line and the end line, each with its line feed.
        String check = lines[last - 2];
        if (!check.equals("check " + checkSum(bytes, bytes.length - check.length() - 5))) {
            throw damaged("the state does not have its check sum; restore or remove it");
        }
        ClientState state = new ClientState("");
        for (int number = 1; number < last - 2; number++) {
            if (!state.read(lines[number].split(" ", -1))) {
                throw damaged("line " + (number + 1) + " of the state is not understood");
            }
        }
        return state;
    }

    private static LongwireException damaged(String message) {
        return new LongwireException(LongwireException.Code.STATE_DAMAGED, message);
    }

    /** Reads one line; returns false for anything but the form of {@link #serialize}. */
    private boolean read(String[] words) {
        if (words.length < 2) {
            return false;
        }
        try {
            switch (words[0]) {
                case "app": {
                    byte[] bytes = Identifier.bytes(words[1]);
                    appId = bytes == null ? "" : new String(bytes, StandardCharsets.UTF_8);
                    return bytes != null;
                }
                case "cid":
                    cid = Identifier.parse(words[1]);
                    return cid != null;
                case "secret":
                    deviceSecret = Identifier.bytes(words[1]);
                    return deviceSecret != null && deviceSecret.length > 0;
                case "timestamp":
                    lastTimestamp = Long.parseUnsignedLong(words[1]);
                    acceptedTimestamp = words.length == 3 ? Long.parseUnsignedLong(words[2]) : 0;
                    return words.length == 3;
                case "offset":
                    clockOffset = Long.parseLong(words[1]);
                    return true;
                case "epoch":
                    queueEpoch = Long.parseUnsignedLong(words[1]);
                    return true;
                case "stream": return readStream(words);
                case "opened": return add(opened, Identifier.parse(words[1]));
                case "unreported": return add(unreportedOpened, Identifier.parse(words[1]));
                case "seen": return add(seen, Identifier.parse(words[1]));
                case "displayed": return add(shown, Identifier.parse(words[1]));
                case "shown":
                case "action": return add(unreported, MessageReport.parse(words));
                case "rejected": return add(rejections, Rejection.parse(words));
                case "removed":
                    removedTokens.add(VendorToken.Channel.valueOf(words[1]));
                    return true;
                case "sent":
                    lastOutgoing = unsigned32(words[1]);
                    return lastOutgoing >= 0;
                case "send": return add(outgoing, OutgoingMessage.parse(words));
                case "heartbeat": {
                    NetworkHeartbeat heartbeat = NetworkHeartbeat.parse(words);
                    if (heartbeat != null) {
                        keep(heartbeat.plan, heartbeat.network);
                    }
                    return heartbeat != null;
                }
                default: return false;
            }
        } catch (IllegalArgumentException error) {
            return false;
        }
    }

    private static <T> boolean add(List<T> list, T element) {
        return element != null && list.add(element);
    }

    private boolean readStream(String[] words) {
        long stream = unsigned32(words[1]);
        long sequence = words.length > 2 ? sequence(words[2]) : -1;
        if (stream < 0 || sequence < 0) {
            return false;
        }
        ProcessedSet set = new ProcessedSet(sequence);
        for (int index = 3; index < words.length; index++) {
            String[] ends = words[index].split("-", -1);
            if (ends.length != 2 || sequence(ends[0]) < 0 || sequence(ends[1]) < 0) {
                return false;
            }
            set.insertRange(sequence(ends[0]), sequence(ends[1]));
        }
        streams.put(stream, set);
        return true;
    }

    /** Returns the number in a text of digits, or −1 for another text or a number above 32 bits. */
    static long unsigned32(String text) {
        long number = sequence(text);
        return number > 0xFFFF_FFFFL ? -1 : number;
    }

    /** Returns the number in a text of digits, or −1 for another text or a number above the greatest sequence. */
    static long sequence(String text) {
        if (text.isEmpty() || text.length() > 19) {
            return -1;
        }
        long number = 0;
        for (int index = 0; index < text.length(); index++) {
            char digit = text.charAt(index);
            if (digit < '0' || digit > '9') {
                return -1;
            }
            number = number * 10 + digit - '0';
        }
        return number < 0 || number > Limits.GREATEST_SEQUENCE ? -1 : number;
    }

    /** Returns the 64-bit FNV-1a hash; it detects disk errors, and is no protection against tampering. */
    static String checkSum(byte[] bytes, int count) {
        long sum = 0xCBF2_9CE4_8422_2325L;
        for (int index = 0; index < count; index++) {
            sum = (sum ^ bytes[index] & 0xFF) * 0x100_0000_01B3L;
        }
        String digits = Long.toHexString(sum);
        return "0000000000000000".substring(digits.length()) + digits;
    }
}
