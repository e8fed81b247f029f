package longwire.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

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

    static final long NEVER = Long.MAX_VALUE;

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
    private final Heartbeats heartbeats;
    private long welcomedAt;

    // Messages.
    private final Deliveries deliveries = new Deliveries(this);
    private boolean isDirty;
    /** Whether the last write of the state failed, so that the store lacks accepted changes. */
    private boolean isWriteOwed;

    // The parts of the core that have their own state.
    private final DeviceSettings settings = new DeviceSettings(this);
    private final Reports reports = new Reports(this);
    private final Upstream upstream = new Upstream(this);
    private final OwnNames names = new OwnNames(this);
    private final FetchTimer fetch = new FetchTimer(this);
    private final Reconnects reconnects;
    /** Whether the gateway, not the backoff, set the current delay. */
    private boolean isWaitNamed;

    ClientCore(ClientConfiguration configuration, ClientState stored, long seed) {
        this.configuration = configuration;
        clock = configuration.clock();
        endpoint = home();
        settings.begin();
        names.begin();
        reconnects = new Reconnects(this, new Backoff(seed, configuration.firstDelay(), configuration.greatestDelay()));
        state = stored != null && stored.appId.equals(configuration.appId())
            ? stored : new ClientState(configuration.appId());
        heartbeats = new Heartbeats(this);
    }

    Endpoint home() {
        return new Endpoint(configuration.host(), configuration.port());
    }

    Endpoint endpoint() {
        return endpoint;
    }

    long welcomedAt() {
        return welcomedAt;
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
        long deadline = Math.min(phaseDeadline(), fetch.deadline());
        return phase == Phase.READY ? Math.min(deadline, Math.min(upstream.deadline(), names.deadline())) : deadline;
    }

    private long phaseDeadline() {
        switch (phase) {
            case CONNECTING:
            case GREETING:
            case WAITING: return phaseEnd;
            case READY: return pingSentAt != NEVER ? pingSentAt + Limits.PONG_TIME : lastSentAt + heartbeats.time();
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
        return settings.isDropping();
    }

    void persist() {
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
        heartbeats.disconnected(now);
        reconnects.retry(new LongwireException(LongwireException.Code.UNREACHABLE, reason), now);
    }

    void wake(long now) {
        fetch.wake(now);
        if (upstream.deadline() != NEVER) {
            upstream.resume(now);
        }
        names.wake(now);
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
                    heartbeats.probe(phaseDeadline(), now);
                    sendPing(now);
                }
                break;
            default:
        }
    }

    /** Gives up a connection that the gateway does not use any more. */
    void abandon(String reason, long now) {
        act(Action.DISCONNECT);
        disconnected(reason, now);
    }

    /**
     * Handles a failed store of the state: nothing is acked, and the client reconnects later.
     *
     * <p>The state stays in memory. The next Hello or the stop stores it first. {@code skipped} are the actions after
     * the one that failed; they are not performed, except those that callers wait for.
     */
    void persistFailed(LongwireException error, List<Action> skipped, long now) {
        List<Action> rest = new ArrayList<>(skipped);
        rest.addAll(actions);
        actions.clear();
        // If the state stayed dirty, the end of this turn would try to store it again in an endless loop.
        isDirty = false;
        isWriteOwed = false;
        report(listener -> listener.onStateNotStored(error));
        upstream.writeFailed(error);
        act(Action.DISCONNECT);
        for (Action action : rest) {
            deliveries.skip(action);
            switch (action.kind) {
                case FETCHED:
                case ANSWER:
                case WITHDRAW: act(action); break;
                case STOP: act(action.value == null ? Action.stop(error) : action); break;
                default:
            }
        }
        if (phase == Phase.CONNECTING || phase == Phase.GREETING || phase == Phase.READY) {
            reconnects.retry(error, now);
        }
        // Only now, because a stop within `retry` must not repeat the write at once.
        isWriteOwed = true;
    }

    /** Whether the store lacks accepted changes. */
    boolean owesWrite() {
        return isWriteOwed;
    }

    /** Handles a successful store of the state. */
    void persisted() {
        isWriteOwed = false;
        upstream.written();
    }

    /** Stops the client for the app. */
    void stop(long now) {
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
    void halt(LongwireException error) {
        act(Action.DISCONNECT);
        leaveSession();
        phase = Phase.STOPPED;
        fetch.clear();
        // A start in the same process reads the store, so the stop repeats a failed write.
        if (isDirty || isWriteOwed) {
            persist();
        }
        act(Action.stop(error));
    }

    /** Resets what belongs to one connection. */
    private void leaveSession() {
        if (!deliveries.isEmpty()) {
            act(Action.WITHDRAW);
        }
        reader.reset();
        deliveries.leaveSession();
        pingSentAt = NEVER;
        heartbeats.leaveSession();
        reports.leaveSession();
        fetch.leaveSession();
        settings.leaveSession();
        upstream.leaveSession();
        names.leaveSession();
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
        hello.timestamp = state.nextTimestamp(clock.wallMillis());
        byte[] key;
        if (state.isRegistered()) {
            key = state.deviceSecret;
            hello.cid = state.cid;
            hello.queueEpoch = state.queueEpoch;
            hello.positions = state.positions();
            int count = Math.min(Limits.OPENED_PER_HELLO_COUNT, state.unreportedOpened.size());
            hello.opened = new ArrayList<>(state.unreportedOpened.subList(0, count));
        } else {
            key = configuration.registrationKey().getBytes(StandardCharsets.UTF_8);
            hello.isRegistration = true;
            hello.registrationToken = configuration.registrationToken();
            // All devices of an app prove their registration with the same secret. Without a nonce, two equal Hellos of
            // one millisecond would be refused as a replay.
            hello.nonce = Handshake.randomBytes(16);
        }
        settings.fill(hello, heartbeats.learnt());
        // Stored before it is sent, so that a timestamp is never reused after a crash.
        state.lastTimestamp = hello.timestamp;
        persist();
        byte[] body = hello.body();
        send(Frames.hello(body, Handshake.proof(key, body)), now);
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
            names.registered();
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
        settings.confirm();
        persist();

        phase = Phase.READY;
        welcomedAt = now;
        reconnects.welcomed();
        long seconds = welcome.heartbeatSeconds == 0 ? Limits.DEFAULT_HEARTBEAT_SECONDS : welcome.heartbeatSeconds;
        heartbeats.agree(seconds);
        fetch.welcomed(now);
        Identifier cid = state.cid;
        report(listener -> listener.onWelcomed(new WelcomeDetails(welcome, cid)));

        settings.sendChanges(now);
        reports.resume(now);
        upstream.resume(now);
        names.resume(now);
    }

    // Incoming frames.

    void receive(byte[] bytes, int count, long now) {
        if (phase != Phase.GREETING && phase != Phase.READY) {
            return;
        }
        // Any received byte proves that the connection works.
        pingSentAt = NEVER;
        fetch.received(now);
        long seconds = heartbeats.received(now);
        if (seconds != 0) {
            settings.sendHeartbeat(seconds, now);
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
            reconnects.receive(Frames.Close.decode(reader.body()), now);
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
                reports.settle(nonce, now);
                break;
            }
            case FrameType.DELIVER: deliveries.receive(Frames.decodeDeliver(reader.body()), now); break;
            case FrameType.REVOKE: deliveries.receive(Frames.Revoke.decode(reader.body()), now); break;
            case FrameType.UPDATE_RESULT: settings.receive(Frames.UpdateResult.decode(reader.body()), now); break;
            case FrameType.UPSTREAM_RESULT: upstream.receive(Frames.UpstreamResult.decode(reader.body()), now); break;
            case FrameType.DEVICE_NAMES_RESULT: names.receive(Frames.decodeNamesResult(reader.body()), now); break;
            case FrameType.WELCOME: violate(CloseCode.UNEXPECTED_FRAME, "a second Welcome", now); break;
            default: violate(CloseCode.UNEXPECTED_FRAME, "a gateway does not send " + FrameType.name(type), now);
        }
    }

    /** Closes the connection with a protocol error, and reconnects after the backoff. */
    void violate(int code, String reason, long now) {
        send(Frames.close(code, reason), now);
        act(Action.DISCONNECT);
        report(listener -> listener.onDisconnected("the gateway broke the protocol: " + reason));
        reconnects.retry(new LongwireException(LongwireException.Code.PROTOCOL_VIOLATION, reason), now);
    }

    // The app's calls, and the gateway's replies to them.

    void perform(Command command, long now) {
        command.perform(this, now);
    }

    /** Sets the app's state; a fetch in progress then does not change it at its end. */
    void setApplicationState(ApplicationState state, boolean isKeptRunning, long now) {
        fetch.stateSet();
        settings.setApplicationState(state, isKeptRunning, now);
    }

    boolean isReady() {
        return phase == Phase.READY;
    }

    /** Whether the app has messages without a verdict. */
    boolean hasOpenMessages() {
        return !deliveries.isEmpty();
    }

    Heartbeats heartbeats() {
        return heartbeats;
    }

    DeviceSettings settings() {
        return settings;
    }

    Reports reports() {
        return reports;
    }

    Upstream upstream() {
        return upstream;
    }

    OwnNames names() {
        return names;
    }

    /** Shortens a reconnect delay, or tests the connection with a Ping, because the app runs again. */
    void resume(long now) {
        if (phase == Phase.READY) {
            if (pingSentAt == NEVER) {
                sendPing(now);
            }
        } else {
            endWaitSoon(now);
        }
    }

    void setHeartbeat(long seconds, long now) {
        heartbeats.forget();
        settings.setHeartbeat(seconds, now);
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

    // Fetching.

    void beginFetch(long milliseconds, long now) {
        fetch.begin(milliseconds, now);
        if (phase == Phase.WAITING && !isWaitNamed) {
            connect(now);
        }
    }

    void countFetched() {
        fetch.countMessage();
    }

    // Waiting and reconnecting.

    /**
     * Handles a network that became usable: loads the heartbeat learnt on it, and shortens a backoff or tests the
     * connection.
     *
     * <p>A delay that the gateway requested is kept. The shortened backoff still has jitter, because a network returns
     * for many devices at once.
     */
    void networkChanged(String name, long now) {
        heartbeats.change(name);
        if (phase == Phase.WAITING && !isWaitNamed) {
            reconnects.backoff().reset();
            endWaitSoon(now);
        } else if (phase == Phase.READY && pingSentAt == NEVER) {
            sendPing(now);
        }
    }

    /** Shortens the current backoff to at most the base delay, but not a delay that the gateway requested. */
    private void endWaitSoon(long now) {
        if (phase == Phase.WAITING && !isWaitNamed) {
            phaseEnd = Math.min(phaseEnd, now + reconnects.backoff().within(0, reconnects.backoff().base()));
        }
    }

    void await(long milliseconds, boolean isNamed, Endpoint next, long now) {
        leaveSession();
        endpoint = next;
        isWaitNamed = isNamed;
        phase = Phase.WAITING;
        phaseEnd = now + milliseconds;
        report(listener -> listener.onRetrying(milliseconds));
    }
}
