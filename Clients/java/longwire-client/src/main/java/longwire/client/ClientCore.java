package longwire.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The client's state machine, without I/O: bytes, time and the app's calls go in, actions come out.
 *
 * <p>Phases and their transitions:
 * <pre>
 *   IDLE       → CONNECTING (start)
 *   CONNECTING → GREETING (connected) | WAITING (disconnected, deadline)
 *   GREETING   → READY (Welcome) | WAITING, CONNECTING or STOPPED (Close, disconnected, deadline)
 *   READY      → WAITING, CONNECTING or STOPPED (Close, disconnected, a Ping without answer)
 *   WAITING    → CONNECTING (deadline)
 *   STOPPED    → CONNECTING (start)
 * </pre>
 *
 * <p>Required order: the app's verdict, the state is stored, the ack is sent. Actions run in their order, so {@code
 * endTurn} queues {@code PERSIST} before the Ack. If storing fails, the remaining actions are discarded and the
 * connection is closed. Times named {@code now} are monotonic milliseconds.
 */
final class ClientCore {
    enum Phase { IDLE, CONNECTING, GREETING, READY, WAITING, STOPPED }

    /** The rule for dropping deliveries without an ack (docs/Semantics.md, "Reachability and fallback"). */
    private enum DropRule { NONE, UNTIL_NEXT_UPDATE, UNTIL_RESULT }

    static final long NEVER = Long.MAX_VALUE;

    /** The values of the last Hello, confirmed by its Welcome. */
    private static final class Greeting {
        long timestamp;
        List<Identifier> opened = Collections.emptyList();
        Integer badge;
        ApplicationState applicationState = ApplicationState.FOREGROUND;
        boolean keepsRunning;
        List<VendorToken> tokens = Collections.emptyList();
    }

    /** A receipt of queued messages that the app asked for. */
    private static final class Fetch {
        long until;
        /** The time when the gateway's silence completes the fetch, or {@code NEVER} without a session. */
        long quietAt = NEVER;
        int messageCount;
        /** Whether the fetch, not the app, set {@code keepsRunning}. */
        boolean ownsRunning;

        long deadline() {
            return Math.min(until, quietAt);
        }
    }

    final ClientConfiguration configuration;
    final ClientState state;
    private final ClientClock clock;
    private List<Action> actions = new ArrayList<>();
    private List<Action> spare = new ArrayList<>();

    // The connection.
    private Phase phase = Phase.IDLE;
    /** The end of the current phase, for CONNECTING, GREETING and WAITING. */
    private long phaseEnd;
    private final FrameReader reader = new FrameReader();
    private Endpoint endpoint;
    private long lastSentAt;
    private long pingSentAt = NEVER;
    private long nextNonce = 1;
    private long heartbeatTime = Limits.DEFAULT_HEARTBEAT_SECONDS * 1_000;
    private HeartbeatPlan heartbeat;
    /** The name of the network that {@code heartbeat} belongs to. */
    private String network;
    private long lastReceivedAt;
    /** Whether the Ping in flight follows a whole heartbeat without bytes from the gateway. */
    private boolean isProbing;
    private long welcomedAt;
    private Greeting greeted = new Greeting();

    // Messages.
    private final Deliveries deliveries = new Deliveries(this);
    private boolean isDirty;
    private DropRule dropRule = DropRule.NONE;
    private long dropRequest;

    // The app's settings and reports for the gateway.
    private long nextRequest = 1;
    /** Updates in flight; values that Hello cannot carry are sent again after a reconnect. */
    private final Map<Long, Frames.DeviceUpdate> pendingUpdates = new HashMap<>();
    private Integer pendingBadge;
    private Boolean pushModeOff;
    private ApplicationState applicationState;
    private boolean keepsRunning;
    private long requestedHeartbeat;
    /** Tokens that the app set without a session. */
    private List<VendorToken> renewedTokens = new ArrayList<>();
    /** Feedback in flight; the Pong to the Ping after it confirms it, because the gateway handles frames in order. */
    private long reportNonce;
    private List<Identifier> sentOpened;
    private List<MessageReport> sentReports;
    private Fetch fetch;
    /** Whether the first message to the app's server is in flight, and the time of its next attempt. */
    private boolean isOutgoingSent;
    private long outgoingRetryAt = NEVER;

    // Reconnecting.
    private final Backoff backoff;
    /** Whether the gateway, not the backoff, set the current delay. */
    private boolean isWaitNamed;
    private int skewRetryCount;
    private int correctionCount;
    /** The number of lost registrations since the last session of at least {@code Limits.STEADY_TIME}. */
    private int lossCount;

    ClientCore(ClientConfiguration configuration, ClientState stored, long seed) {
        this.configuration = configuration;
        clock = configuration.clock();
        endpoint = home();
        pushModeOff = configuration.isPushModeOff();
        pendingBadge = configuration.badge();
        applicationState = configuration.applicationState();
        keepsRunning = configuration.keepsRunning();
        requestedHeartbeat = configuration.heartbeatSeconds();
        backoff = new Backoff(seed, configuration.firstDelay(), configuration.greatestDelay());
        state = stored != null && stored.appId.equals(configuration.appId())
            ? stored : new ClientState(configuration.appId());
        // The client assumes the network of its last run until the system reports another.
        int last = state.heartbeats.size() - 1;
        network = last < 0 ? "" : state.heartbeats.get(last).network;
        heartbeat = state.heartbeat(network);
    }

    private Endpoint home() {
        return new Endpoint(configuration.host(), configuration.port());
    }

    // The owner's view.

    Phase phase() {
        return phase;
    }

    boolean isStopped() {
        return phase == Phase.STOPPED;
    }

    boolean hasActions() {
        return !actions.isEmpty();
    }

    /** Returns the queued actions; the list is valid until the next call. */
    List<Action> takeActions() {
        List<Action> taken = actions;
        spare.clear();
        actions = spare;
        spare = taken;
        return taken;
    }

    /** Returns the time of the next call of {@link #wake}, or {@code NEVER}. */
    long deadline() {
        long deadline = phaseDeadline();
        if (fetch != null) {
            deadline = Math.min(deadline, fetch.deadline());
        }
        return phase == Phase.READY ? Math.min(deadline, outgoingRetryAt) : deadline;
    }

    private long phaseDeadline() {
        switch (phase) {
            case CONNECTING:
            case GREETING:
            case WAITING: return phaseEnd;
            case READY: return pingSentAt != NEVER ? pingSentAt + Limits.PONG_TIME : lastSentAt + heartbeatTime;
            default: return NEVER;
        }
    }

    void act(Action action) {
        actions.add(action);
    }

    void report(Event event) {
        actions.add(Action.report(event));
    }

    void markDirty() {
        isDirty = true;
    }

    boolean isDropping() {
        return dropRule != DropRule.NONE;
    }

    private void persist() {
        isDirty = false;
        act(Action.PERSIST);
    }

    // The connection's phases.

    void start(long now) {
        if (phase == Phase.IDLE || phase == Phase.STOPPED) {
            connect(now);
        }
    }

    private void connect(long now) {
        reader.reset();
        phase = Phase.CONNECTING;
        phaseEnd = now + Limits.CONNECT_TIME;
        Endpoint target = endpoint;
        report(listener -> listener.onConnecting(target.host, target.port));
        act(Action.connect(target));
    }

    void connected(long now) {
        if (phase != Phase.CONNECTING) {
            return;
        }
        deliveries.begin();
        phase = Phase.GREETING;
        phaseEnd = now + Limits.WELCOME_TIME;
        sendHello(now);
    }

    /** Reconnects after the socket failed or the gateway closed it without a Close. */
    void disconnected(String reason, long now) {
        if (phase == Phase.IDLE || phase == Phase.STOPPED || phase == Phase.WAITING) {
            return;
        }
        report(listener -> listener.onDisconnected(reason));
        if (isProbing && phase == Phase.READY) {
            heartbeat.lost(heartbeatTime / 1_000);
            keepHeartbeat();
        }
        retry(new LongwireException(LongwireException.Code.UNREACHABLE, reason), now);
    }

    void wake(long now) {
        if (fetch != null && now >= fetch.deadline()) {
            endFetch(now);
        }
        if (outgoingRetryAt != NEVER) {
            sendOutgoing(now);
        }
        if (now < phaseDeadline()) {
            return;
        }
        switch (phase) {
            case WAITING: connect(now); break;
            case CONNECTING: abandon("no connection within " + Limits.CONNECT_TIME / 1_000 + " s", now); break;
            case GREETING: abandon("no Welcome within " + Limits.WELCOME_TIME / 1_000 + " s", now); break;
            case READY:
                if (pingSentAt != NEVER) {
                    abandon("a Ping was not answered within " + Limits.PONG_TIME / 1_000 + " s", now);
                } else {
                    isProbing = now - lastReceivedAt >= heartbeatTime * 9 / 10;
                    sendPing(now);
                }
                break;
            default:
        }
    }

    private void abandon(String reason, long now) {
        act(Action.DISCONNECT);
        disconnected(reason, now);
    }

    /**
     * Handles a failed store of the state: nothing is acked, and the client reconnects later.
     *
     * <p>The state stays in memory, and the next Hello stores it first. {@code skipped} are the actions after the one
     * that failed; they are not performed.
     */
    void persistFailed(LongwireException error, List<Action> skipped, long now) {
        List<Action> rest = new ArrayList<>(skipped);
        rest.addAll(actions);
        actions.clear();
        for (Action action : rest) {
            deliveries.skip(action);
            // The callers of a fetch wait for its end.
            if (action.kind == Action.Kind.FETCHED) {
                act(action);
            }
        }
        // If the state stayed dirty, the end of this turn would try to store it again in an endless loop.
        isDirty = false;
        report(listener -> listener.onStateNotStored(error));
        act(Action.DISCONNECT);
        switch (phase) {
            case IDLE:
            case WAITING: break;
            case STOPPED: report(listener -> listener.onStopped(error)); break;
            default: retry(error, now);
        }
    }

    private void stop(long now) {
        if (phase == Phase.STOPPED) {
            return;
        }
        if (phase == Phase.READY) {
            endTurn(now);
            send(Frames.close(CloseCode.GOODBYE, "the client stops"), now);
        }
        halt(null);
    }

    /** Closes the connection and stops the client. */
    private void halt(LongwireException error) {
        act(Action.DISCONNECT);
        leaveSession();
        phase = Phase.STOPPED;
        fetch = null;
        report(listener -> listener.onStopped(error));
    }

    /** Resets what belongs to one connection. */
    private void leaveSession() {
        if (!deliveries.isEmpty()) {
            act(Action.WITHDRAW);
        }
        reader.reset();
        deliveries.leaveSession();
        pingSentAt = NEVER;
        isProbing = false;
        sentOpened = null;
        sentReports = null;
        if (fetch != null) {
            fetch.quietAt = NEVER;
        }
        pendingUpdates.clear();
        isOutgoingSent = false;
        outgoingRetryAt = NEVER;
    }

    // Sending.

    void send(byte[] frame, long now) {
        act(Action.send(frame));
        lastSentAt = now;
    }

    /** Notes that a frame has left: storing the state before it may have taken a while. */
    void sent(long now) {
        lastSentAt = Math.max(lastSentAt, now);
    }

    long sendPing(long now) {
        long nonce = nextNonce++;
        send(Frames.nonce(FrameType.PING, nonce), now);
        if (pingSentAt == NEVER) {
            pingSentAt = now;
        }
        return nonce;
    }

    List<ProtoWriter> positions() {
        List<ProtoWriter> positions = new ArrayList<>(state.streams.size());
        for (Map.Entry<Long, ProcessedSet> entry : state.streams.entrySet()) {
            positions.add(entry.getValue().position(entry.getKey()));
        }
        return positions;
    }

    /** Ends a turn: stores the changed state, then acks everything that was processed with one frame. */
    void endTurn(long now) {
        if (isDirty) {
            persist();
        }
        if (phase == Phase.READY && deliveries.owesFrames()) {
            deliveries.sendAck(now);
        }
    }

    // The handshake.

    private void sendHello(long now) {
        Frames.Hello hello = new Frames.Hello();
        hello.appId = configuration.appId();
        hello.timestamp = nextTimestamp();
        byte[] key;
        if (state.isRegistered()) {
            key = state.deviceSecret;
            hello.cid = state.cid;
            hello.queueEpoch = state.queueEpoch;
            hello.positions = positions();
            int count = Math.min(Limits.OPENED_PER_HELLO_COUNT, state.unreportedOpened.size());
            hello.opened = new ArrayList<>(state.unreportedOpened.subList(0, count));
        } else {
            key = configuration.appSecret().getBytes(StandardCharsets.UTF_8);
            hello.isRegistration = true;
            // All devices of an app prove their registration with the same secret. Without a nonce, two equal Hellos of
            // one millisecond would be refused as a replay.
            hello.nonce = Handshake.randomBytes(16);
        }
        hello.applicationState = applicationState;
        hello.keepsRunning = keepsRunning;
        hello.heartbeatSeconds = heartbeat.learnt() != 0 ? heartbeat.learnt() : requestedHeartbeat;
        hello.badge = pendingBadge;
        hello.tokens = new ArrayList<>(configuration.tokens());
        hello.replaysOpened = configuration.replaysOpened();
        hello.client = configuration.clientName();
        hello.window = configuration.window();

        greeted = new Greeting();
        greeted.timestamp = hello.timestamp;
        greeted.opened = hello.opened;
        greeted.badge = pendingBadge;
        greeted.applicationState = applicationState;
        greeted.keepsRunning = keepsRunning;
        greeted.tokens = hello.tokens;
        // Stored before it is sent, so that a timestamp is never reused after a crash.
        state.lastTimestamp = hello.timestamp;
        persist();
        byte[] body = hello.body();
        send(Frames.hello(body, Handshake.proof(key, body)), now);
    }

    private long nextTimestamp() {
        long gatewayTime = Math.max(0, clock.wallMillis() + state.clockOffset);
        long next = state.lastTimestamp + 1;
        return Long.compareUnsigned(gatewayTime, next) > 0 ? gatewayTime : next;
    }

    private void receive(Frames.Welcome welcome, long now) {
        if (!state.isRegistered()) {
            if (welcome.cid.isNone() || welcome.deviceSecret.length != Limits.SECRET_BYTE_COUNT) {
                violate(CloseCode.MALFORMED, "the Welcome of a registration has no cid or no secret", now);
                return;
            }
            state.cid = welcome.cid;
            state.deviceSecret = welcome.deviceSecret;
            state.queueEpoch = welcome.queueEpoch;
            act(Action.PERSIST);
            report(listener -> listener.onRegistered(welcome.cid));
        } else if (welcome.queueEpoch != state.queueEpoch) {
            long former = state.queueEpoch;
            // A device without processed messages has no positions to lose.
            if (!state.streams.isEmpty()) {
                report(listener -> listener.onQueueReset(former, welcome.queueEpoch));
            }
            state.queueEpoch = welcome.queueEpoch;
            state.streams.clear();
            state.rejections.clear();
        }
        state.acceptedTimestamp = greeted.timestamp;
        state.unreportedOpened.removeAll(greeted.opened);
        if (greeted.badge != null && greeted.badge.equals(pendingBadge)) {
            pendingBadge = null;
        }
        persist();

        phase = Phase.READY;
        welcomedAt = now;
        correctionCount = 0;
        long seconds = welcome.heartbeatSeconds == 0 ? Limits.DEFAULT_HEARTBEAT_SECONDS : welcome.heartbeatSeconds;
        heartbeatTime = seconds * 1_000;
        heartbeat.agreed(seconds);
        if (fetch != null) {
            fetch.quietAt = now + Limits.FETCH_QUIET_TIME;
        }
        boolean wasSuspended = greeted.applicationState != ApplicationState.FOREGROUND && !greeted.keepsRunning;
        dropRule = wasSuspended ? DropRule.UNTIL_NEXT_UPDATE : DropRule.NONE;
        Identifier cid = state.cid;
        report(listener -> listener.onWelcomed(new WelcomeDetails(welcome, cid)));

        sendChanges(now);
        if (pendingBadge != null) {
            sendBadge(now);
        }
        if (pushModeOff != null) {
            sendPushMode(now);
        }
        sendReports(now);
        sendOutgoing(now);
    }

    /** Sends the changes that the app made between Hello and Welcome. */
    private void sendChanges(long now) {
        if (applicationState != greeted.applicationState || keepsRunning != greeted.keepsRunning) {
            setApplicationState(applicationState, keepsRunning, now);
        }
        List<VendorToken> changes = new ArrayList<>();
        for (VendorToken old : greeted.tokens) {
            boolean isKept = false;
            for (VendorToken token : configuration.tokens()) {
                isKept |= token.channel() == old.channel();
            }
            if (!isKept) {
                changes.add(new VendorToken(old.channel(), ""));
            }
        }
        // A Hello does not renew a token that the gateway already has. Tokens that the app set without a session are
        // therefore sent again: the vendor has just reissued them.
        for (VendorToken token : configuration.tokens()) {
            if (!greeted.tokens.contains(token) || renewedTokens.contains(token)) {
                changes.add(token);
            }
        }
        renewedTokens = new ArrayList<>();
        for (int start = 0; start < changes.size(); start += Limits.TOKEN_COUNT) {
            Frames.DeviceUpdate update = new Frames.DeviceUpdate();
            update.tokens = changes.subList(start, Math.min(changes.size(), start + Limits.TOKEN_COUNT));
            update(update, now);
        }
    }

    // Incoming frames.

    void receive(byte[] bytes, int count, long now) {
        if (phase != Phase.GREETING && phase != Phase.READY) {
            return;
        }
        // Any received byte proves that the connection works.
        pingSentAt = NEVER;
        lastReceivedAt = now;
        if (fetch != null && fetch.quietAt != NEVER) {
            fetch.quietAt = now + Limits.FETCH_QUIET_TIME;
        }
        if (isProbing) {
            isProbing = false;
            long seconds = heartbeat.answered();
            if (seconds != 0) {
                keepHeartbeat();
                Frames.DeviceUpdate update = new Frames.DeviceUpdate();
                update.heartbeatSeconds = seconds;
                update(update, now);
            }
        }
        reader.append(bytes, count);
        try {
            // Frames after one that ended the session are not read.
            while (phase == Phase.GREETING || phase == Phase.READY) {
                int type = reader.next();
                if (type == 0) {
                    break;
                }
                receive(type, now);
            }
        } catch (WireException error) {
            violate(error.code, error.getMessage(), now);
        }
        reader.trim();
    }

    private void receive(int type, long now) throws WireException {
        if (type == FrameType.CLOSE) {
            receive(Frames.Close.decode(reader.body()), now);
            return;
        }
        if (phase != Phase.READY) {
            if (type == FrameType.WELCOME) {
                receive(Frames.Welcome.decode(reader.body()), now);
            } else {
                violate(CloseCode.UNEXPECTED_FRAME, "a frame came before Welcome", now);
            }
            return;
        }
        switch (type) {
            case FrameType.PING:
                send(Frames.nonce(FrameType.PONG, Frames.decodeNonce(reader.body())), now);
                break;
            case FrameType.PONG: {
                long nonce = Frames.decodeNonce(reader.body());
                deliveries.settleRejected(nonce);
                settleReported(nonce, now);
                break;
            }
            case FrameType.DELIVER: deliveries.receive(Frames.decodeDeliver(reader.body()), now); break;
            case FrameType.REVOKE: deliveries.receive(Frames.Revoke.decode(reader.body()), now); break;
            case FrameType.UPDATE_RESULT: receive(Frames.UpdateResult.decode(reader.body()), now); break;
            case FrameType.UPSTREAM_RESULT: receive(Frames.UpstreamResult.decode(reader.body()), now); break;
            case FrameType.WELCOME: violate(CloseCode.UNEXPECTED_FRAME, "a second Welcome", now); break;
            default: violate(CloseCode.UNEXPECTED_FRAME, "a gateway does not send " + FrameType.name(type), now);
        }
    }

    /** Closes the connection with a protocol error, and reconnects after the backoff. */
    void violate(int code, String reason, long now) {
        send(Frames.close(code, reason), now);
        act(Action.DISCONNECT);
        report(listener -> listener.onDisconnected("the gateway broke the protocol: " + reason));
        retry(new LongwireException(LongwireException.Code.PROTOCOL_VIOLATION, reason), now);
    }

    // The app's calls, and the gateway's replies to them.

    /** Whether the system may freeze the app with its socket open; the gateway treats such a device as offline. */
    private boolean isSuspended() {
        return applicationState != ApplicationState.FOREGROUND && !keepsRunning;
    }

    void perform(Command command, long now) {
        command.perform(this, now);
    }

    void performStop(long now) {
        stop(now);
    }

    void setApplicationState(ApplicationState newState, boolean isKeptRunning, long now) {
        boolean wasSuspended = isSuspended();
        applicationState = newState;
        keepsRunning = isKeptRunning;
        if (fetch != null) {
            fetch.ownsRunning = false;
        }
        if (isSuspended() && !deliveries.isEmpty()) {
            // Messages that wait for the app would appear as new after the suspension. They are withdrawn before the
            // gateway has the update, and delivered again.
            act(Action.WITHDRAW);
        }
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.applicationState = newState;
        update.keepsRunning = isKeptRunning;
        update(update, now);
        // This update starts the suspension. Deliveries are dropped until the gateway confirms the update that ends it.
        if (isSuspended()) {
            dropRule = DropRule.UNTIL_NEXT_UPDATE;
        } else if (wasSuspended) {
            resume(now);
        }
    }

    /** Reacts to an app that runs again: shortens a reconnect delay, or sends a Ping to find a dead connection. */
    private void resume(long now) {
        if (phase == Phase.READY) {
            if (pingSentAt == NEVER) {
                sendPing(now);
            }
        } else {
            endWaitSoon(now);
        }
    }

    void setBadge(int badge, long now) {
        pendingBadge = badge;
        sendBadge(now);
    }

    private void sendBadge(long now) {
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.badge = pendingBadge;
        update(update, now);
    }

    void setToken(VendorToken token, long now) {
        configuration.setToken(token);
        if (!token.token().isEmpty() && phase != Phase.READY) {
            renewedTokens.remove(token);
            renewedTokens.add(token);
            if (renewedTokens.size() > Limits.TOKEN_COUNT) {
                renewedTokens.remove(0);
            }
        }
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.tokens = Collections.singletonList(token);
        update(update, now);
    }

    void setPushModeOff(boolean isOff, long now) {
        pushModeOff = isOff;
        sendPushMode(now);
    }

    private void sendPushMode(long now) {
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.isPushModeOff = pushModeOff;
        update(update, now);
    }

    void setHeartbeat(long seconds, long now) {
        requestedHeartbeat = seconds;
        heartbeat.forget();
        keepHeartbeat();
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.heartbeatSeconds = seconds;
        update(update, now);
    }

    void finish(ReceivedMessage message, ReceivedMessage.Verdict verdict, String reason) {
        deliveries.finish(message, verdict, reason);
    }

    void finishRevoke(long sequence) {
        deliveries.finishRevoke(sequence);
    }

    /** Forgets a message or revoke that could not be handed to the app; a later session delivers it again. */
    void skip(Action action) {
        deliveries.skip(action);
    }

    /** Sends a DeviceUpdate; does nothing without a session, because the next Hello carries the values. */
    private void update(Frames.DeviceUpdate update, long now) {
        if (phase != Phase.READY) {
            return;
        }
        // Messages handled before the change are acked before it. Otherwise the gateway would redeliver them with other
        // flags.
        endTurn(now);
        update.request = nextRequest;
        nextRequest = nextRequest == 0xFFFF_FFFFL ? 1 : nextRequest + 1;
        pendingUpdates.put(update.request, update);
        if (dropRule == DropRule.UNTIL_NEXT_UPDATE) {
            dropRule = DropRule.UNTIL_RESULT;
            dropRequest = update.request;
        }
        send(update.frame(), now);
    }

    private void receive(Frames.UpdateResult result, long now) {
        Frames.DeviceUpdate update = pendingUpdates.remove(result.request);
        if (result.code == 0 && update != null) {
            if (update.isPushModeOff != null && update.isPushModeOff.equals(pushModeOff)) {
                pushModeOff = null;
            }
            // A badge that the app set again after this update is still unconfirmed, even if the value is equal.
            if (update.badge != null && update.badge.equals(pendingBadge) && !isBadgePending()) {
                pendingBadge = null;
            }
        }
        if (result.heartbeatSeconds != 0) {
            heartbeatTime = result.heartbeatSeconds * 1_000;
            heartbeat.agreed(result.heartbeatSeconds);
        }
        if (dropRule == DropRule.UNTIL_RESULT && dropRequest == result.request) {
            dropRule = isSuspended() ? DropRule.UNTIL_NEXT_UPDATE : DropRule.NONE;
        }
        report(listener -> listener.onUpdated(result.request, result.code, result.reason));
    }

    private boolean isBadgePending() {
        for (Frames.DeviceUpdate update : pendingUpdates.values()) {
            if (update.badge != null) {
                return true;
            }
        }
        return false;
    }

    // Reports.

    void open(Identifier id, long now) {
        state.noteOpened(id);
        // Stored at once, because the system may end the app at any moment.
        persist();
        sendReports(now);
    }

    /** Notes a message that came through a vendor, so that its copy on the connection is not shown. */
    void see(Identifier id) {
        state.noteSeen(id);
        persist();
    }

    /** Keeps the report, across sessions and restarts, until the gateway has confirmed it. */
    void note(MessageReport report, long now) {
        if (state.note(report)) {
            isDirty = true;
            sendReports(now);
        }
    }

    /** Sends Feedback for the opened messages that Hello had no room for, and for later reports. */
    private void sendReports(long now) {
        boolean isNothing = state.unreportedOpened.isEmpty() && state.unreported.isEmpty();
        if (phase != Phase.READY || sentReports != null || isNothing) {
            return;
        }
        sentOpened = new ArrayList<>(state.unreportedOpened);
        sentReports = new ArrayList<>(state.unreported);
        for (Identifier id : sentOpened) {
            send(Frames.feedback(0, id, 0), now);
        }
        for (MessageReport report : sentReports) {
            send(Frames.feedback(report.action == 0 ? 1 : 2, report.messageId, report.action), now);
        }
        reportNonce = sendPing(now);
    }

    private void settleReported(long nonce, long now) {
        if (sentReports == null || nonce != reportNonce) {
            return;
        }
        state.unreportedOpened.removeAll(sentOpened);
        state.unreported.removeAll(sentReports);
        sentOpened = null;
        sentReports = null;
        isDirty = true;
        sendReports(now);
    }

    // Messages to the app's server.

    void send(byte[] payload, Identifier task, long now) {
        if (state.keep(payload, task) == null) {
            OutgoingMessage message = new OutgoingMessage(0, payload, task);
            report(listener ->
                listener.onMessageRefused(message, 0, "too many messages wait for the gateway already"));
            return;
        }
        persist();
        sendOutgoing(now);
    }

    /** Sends the first kept message; only one is in flight, so that a later one cannot overtake a refused one. */
    private void sendOutgoing(long now) {
        boolean isEarly = outgoingRetryAt != NEVER && now < outgoingRetryAt;
        if (phase != Phase.READY || isOutgoingSent || isEarly) {
            return;
        }
        outgoingRetryAt = NEVER;
        if (!state.outgoing.isEmpty()) {
            isOutgoingSent = true;
            send(Frames.upstream(state.outgoing.get(0)), now);
        }
    }

    private void receive(Frames.UpstreamResult result, long now) {
        if (!isOutgoingSent || state.outgoing.isEmpty() || state.outgoing.get(0).number != result.request) {
            return;
        }
        isOutgoingSent = false;
        if (result.code >= Limits.FIRST_RETRIED_CODE) {
            outgoingRetryAt = now + (result.code == Limits.BUSY_CODE ? Limits.BUSY_RETRY_TIME : Limits.FULL_RETRY_TIME);
            return;
        }
        outgoingRetryAt = NEVER;
        OutgoingMessage first = state.outgoing.remove(0);
        persist();
        if (result.code == 0) {
            report(listener -> listener.onMessageTaken(first));
        } else {
            report(listener -> listener.onMessageRefused(first, result.code, result.reason));
        }
        sendOutgoing(now);
    }

    // Fetching.

    void beginFetch(long milliseconds, long now) {
        Fetch current = fetch != null ? fetch : new Fetch();
        current.until = Math.max(current.until, now + milliseconds);
        if (phase == Phase.READY) {
            current.quietAt = now + Limits.FETCH_QUIET_TIME;
        }
        boolean wasSuspended = isSuspended();
        fetch = current;
        if (wasSuspended) {
            setApplicationState(applicationState, true, now);
            current.ownsRunning = true;
        }
        if (phase == Phase.WAITING && !isWaitNamed) {
            connect(now);
        }
    }

    void countFetched() {
        if (fetch != null) {
            fetch.messageCount++;
        }
    }

    private void endFetch(long now) {
        Fetch ended = fetch;
        if (!deliveries.isEmpty() && now < ended.until) {
            // The gateway is silent, but the app has not returned its verdicts yet.
            ended.quietAt = now + Limits.FETCH_QUIET_TIME;
            return;
        }
        fetch = null;
        if (ended.ownsRunning) {
            setApplicationState(applicationState, false, now);
        }
        boolean isComplete = phase == Phase.READY && now < ended.until;
        act(Action.fetched(new FetchResult(ended.messageCount, isComplete)));
    }

    // Reconnecting after a Close. The hundreds digit of the code selects the rule, so codes of newer gateways work,
    // too.
    //
    // The client connects to the configured address, unless a Close of 2xx names an alternate. It uses an alternate for
    // one connection. After that it returns to the configured address, which may name an alternate again.

    private void receive(Frames.Close close, long now) {
        report(listener -> listener.onClosed(close.code, close.reason));
        act(Action.DISCONNECT);
        LongwireException error = new LongwireException(
            LongwireException.Code.REFUSED, "the gateway closed with code " + close.code + ": " + close.reason,
            close.code,
            null);
        boolean wasWelcomed = phase == Phase.READY;
        boolean wasSteady = forgiveFailures(now);
        boolean isHome = endpoint.equals(home());
        Endpoint next = close.code / 100 == 2 ? Endpoint.parse(close.alternate) : null;
        if (next != null && next.equals(endpoint)) {
            next = null;
        }
        // The configured address redirected the client before a session began. The connection attempt continues at the
        // alternate.
        boolean isSentOn = next != null && !wasWelcomed && isHome;
        if (!configuration.reconnects() && !isSentOn && !isCorrection(close.code)) {
            halt(error);
            return;
        }
        long rule = close.code / 100;
        if (rule == 2 && next != null) {
            // The first redirect is immediate. Later ones back off, so that gateways that redirect in a circle cannot
            // cause a busy loop.
            long pause = isHome || wasSteady ? 0 : backoff.next();
            long window = window(close);
            await(Math.max(Math.max(window, 0), pause), window >= 0, next, now);
        } else if ((rule == 3 || rule == 4) && !isHome && !wasWelcomed && close.code != CloseCode.CLOCK_SKEW) {
            // A refusal by an alternate gateway does not change the backoff of the configured one.
            await(backoff.next(), false, home(), now);
        } else if (rule == 3) {
            correct(close, error, now);
        } else if (rule == 4) {
            // The client reconnects only after `replaced`, and after a long delay. Otherwise two processes with the
            // same cid would replace each other continuously.
            if (close.code == CloseCode.REPLACED) {
                await(Limits.REPLACED_TIME + backoff.next(), true, home(), now);
            } else {
                halt(error);
            }
        } else {
            leave(close, now);
        }
    }

    private void leave(Frames.Close close, long now) {
        long window = window(close);
        if (window < 0) {
            await(backoff.next(), false, home(), now);
            return;
        }
        // A delay below the first backoff is raised to the backoff, so that repeated short delays do not flood the
        // gateway with connections.
        boolean isShort = window < backoff.base();
        await(isShort ? Math.max(window, backoff.next()) : window, true, home(), now);
    }

    /**
     * Handles a network that became usable: loads the heartbeat learnt on it, and shortens a backoff or tests the
     * connection.
     *
     * <p>A delay that the gateway requested is kept. The shortened backoff still has jitter, because a network returns
     * for many devices at once.
     */
    void networkChanged(String name, long now) {
        if (name != null) {
            network = name;
            heartbeat = state.heartbeat(name);
        } else {
            network = "";
            heartbeat.forget();
        }
        keepHeartbeat();
        if (phase == Phase.WAITING && !isWaitNamed) {
            backoff.reset();
            endWaitSoon(now);
        } else if (phase == Phase.READY && pingSentAt == NEVER) {
            sendPing(now);
        }
    }

    /** Shortens a backoff to at most one first delay; a delay that the gateway requested is kept. */
    private void endWaitSoon(long now) {
        if (phase == Phase.WAITING && !isWaitNamed) {
            phaseEnd = Math.min(phaseEnd, now + backoff.within(0, backoff.base()));
        }
    }

    /**
     * Records the heartbeat of the current network in the state; it is stored with the next change, at the latest with
     * a Hello.
     */
    private void keepHeartbeat() {
        state.keep(heartbeat, network);
    }

    /**
     * Resets the backoff if the session lasted at least a minute; returns false if it did not, or without a session.
     */
    private boolean forgiveFailures(long now) {
        if (phase != Phase.READY || now - welcomedAt < Limits.STEADY_TIME) {
            return false;
        }
        backoff.reset();
        skewRetryCount = 0;
        lossCount = 0;
        return true;
    }

    /** Reconnects with backoff after a failure without a Close. */
    private void retry(LongwireException error, long now) {
        if (!configuration.reconnects()) {
            halt(error);
            return;
        }
        forgiveFailures(now);
        await(backoff.next(), false, home(), now);
    }

    private void await(long milliseconds, boolean isNamed, Endpoint next, long now) {
        leaveSession();
        endpoint = next;
        isWaitNamed = isNamed;
        phase = Phase.WAITING;
        phaseEnd = now + milliseconds;
        report(listener -> listener.onRetrying(milliseconds));
    }

    /**
     * Handles a Close of 3xx: corrects the named problem and reconnects once; a second such Close in a row stops the
     * client.
     */
    private void correct(Frames.Close close, LongwireException error, long now) {
        if (close.code == CloseCode.CLOCK_SKEW) {
            if (close.serverTime > 0) {
                state.clockOffset = close.serverTime - clock.wallMillis();
            }
            // The gateway has not recorded the refused timestamp. If it stayed in the state, a device whose clock was
            // once far ahead would be locked out until then.
            state.lastTimestamp = state.acceptedTimestamp;
            isDirty = true;
            skewRetryCount++;
            await(skewRetryCount == 1 ? 0 : backoff.next(), false, phase == Phase.READY ? home() : endpoint, now);
        } else if (close.code == CloseCode.UNKNOWN_DEVICE) {
            correctionCount++;
            if (correctionCount != 1 || !state.isRegistered() || configuration.appSecret().isEmpty()) {
                halt(error);
                return;
            }
            Identifier lost = state.cid;
            report(listener -> listener.onRegistrationLost(lost));
            state.forgetRegistration();
            isDirty = true;
            lossCount++;
            // The first lost registration reconnects at once. Later ones back off, in case a gateway loses every
            // registration.
            await(lossCount == 1 ? 0 : backoff.next(), false, home(), now);
        } else {
            correctionCount++;
            if (correctionCount == 1) {
                leave(close, now);
            } else {
                halt(error);
            }
        }
    }

    /**
     * Whether the Close asks for the first correction of its kind; it is allowed even if the client must not reconnect.
     */
    private boolean isCorrection(long code) {
        return code == CloseCode.CLOCK_SKEW && skewRetryCount == 0
            || code == CloseCode.UNKNOWN_DEVICE && correctionCount == 0;
    }

    /** Returns a random time in the window that a Close names, or −1 if it names none. */
    private long window(Frames.Close close) {
        long least = Math.min(close.retryAfterMinimum, Limits.RETRY_WINDOW);
        long most = Math.min(close.retryAfterMaximum, Limits.RETRY_WINDOW);
        return least == 0 && most == 0 ? -1 : backoff.within(least, Math.max(least, most));
    }
}
