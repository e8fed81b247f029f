package longwire.client;

import java.io.IOException;
import java.nio.channels.Selector;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Consumer;

/** The client's thread: waits for the transport, the clock and the app, feeds the core, and performs its actions. */
final class ClientRunner implements Runnable {
    private final ClientCore core;
    private final Mailbox mailbox;
    private final StateStore store;
    private final Listener listener;
    private final FetchBoard fetches;
    private final VendorCopies copies;
    private final Executor executor;
    private final ClientClock clock;
    private final Wakeups wakeups;
    private final Selector selector;
    private final ReceivedMessage.VerdictSink sink;
    private final Consumer<Runnable> whenEnded;
    private final byte[] buffer = new byte[Limits.READ_BYTE_COUNT];
    private Transport.Maker maker;
    private TlsSettings tls;
    private Transport transport;
    private Thread thread;
    /** Messages that wait for the executor, oldest first. */
    private final Deque<ReceivedMessage> offered = new ArrayDeque<>();
    private long lastWakeup = -1;
    /** The cause of the stop, or {@code null}. */
    private LongwireException stopCause;

    ClientRunner(
        ClientCore core, Mailbox mailbox, StateStore store, Listener listener, FetchBoard fetches,
        VendorCopies copies, ReceivedMessage.VerdictSink later, Consumer<Runnable> whenEnded
    ) throws LongwireException {
        this.core = core;
        this.mailbox = mailbox;
        this.store = store;
        this.listener = listener;
        this.fetches = fetches;
        this.copies = copies;
        this.whenEnded = whenEnded;
        executor = core.configuration.executor();
        clock = core.configuration.clock();
        wakeups = core.configuration.wakeups();
        try {
            selector = Selector.open();
        } catch (IOException error) {
            throw new LongwireException(
                LongwireException.Code.SYSTEM_RESOURCE, "the system gave no selector: " + error.getMessage(), error);
        }
        mailbox.setWake(selector::wakeup);
        maker = this::connect;
        sink = (message, verdict, reason) -> {
            if (verdict == ReceivedMessage.Verdict.PROCESSED) {
                copies.add(message.messageId);
            }
            // A verdict within the callback needs no queue.
            if (Thread.currentThread() == thread) {
                core.finish(message, verdict, reason);
                return true;
            }
            return later.finish(message, verdict, reason);
        };
    }

    /** Replaces the sockets, for tests. */
    void setMaker(Transport.Maker maker) {
        this.maker = maker;
    }

    @Override
    public void run() {
        thread = Thread.currentThread();
        try {
            core.start(now());
            finishTurn();
            while (!core.isStopped()) {
                waitForSomething();
                for (Command command : mailbox.take()) {
                    core.perform(command, now());
                }
                serveTransport();
                core.wake(now());
                finishTurn();
            }
            // Taps and reports that arrived after the stop are kept for the next session.
            for (Command command : mailbox.shut()) {
                core.perform(command, now());
            }
            finishTurn();
        } catch (IOException error) {
            core.halt(failure("the system's selector failed: " + error.getMessage(), error));
            finishTurn();
        } catch (RuntimeException | Error error) {
            stopCause = failure("the client failed: " + error, error);
            throw error;
        } finally {
            thread = null;
            closeTransport();
            announceWakeup(Long.MAX_VALUE);
            discard();
            fetches.end(new FetchResult(0, false), this::call);
            // The client can be started again before the last event, so that the app can do so in its callback.
            whenEnded.accept(() -> call(target -> target.onStopped(stopCause)));
        }
    }

    /** Closes the selector of a client that does not run. */
    void discard() {
        try {
            selector.close();
        } catch (IOException error) {
            // All registrations with the selector have ended.
            transport = null;
        }
    }

    private static LongwireException failure(String reason, Throwable cause) {
        return new LongwireException(LongwireException.Code.SYSTEM_RESOURCE, reason, cause);
    }

    private long now() {
        return clock.monotonicMillis();
    }

    private void waitForSomething() throws IOException {
        if (transport != null && transport.hasMoreToRead() || !mailbox.isEmpty()) {
            return;
        }
        long deadline = core.deadline();
        if (transport != null) {
            deadline = Math.min(deadline, transport.deadline());
            transport.prepareToWait();
        }
        announceWakeup(deadline);
        if (deadline == Long.MAX_VALUE) {
            selector.select();
        } else {
            long time = deadline - now();
            if (time > 0) {
                selector.select(time);
            } else {
                selector.selectNow();
            }
        }
        selector.selectedKeys().clear();
        // An interrupt would end each later wait at once.
        Thread.interrupted();
    }

    private void announceWakeup(long deadline) {
        if (wakeups == null || deadline == lastWakeup) {
            return;
        }
        // Each ack moves the deadline a little. An alarm that fires some seconds early costs less than a new one for each.
        boolean isNear = deadline > lastWakeup && deadline - lastWakeup < Limits.WAKEUP_SLACK && lastWakeup > now();
        if (!isNear) {
            lastWakeup = deadline;
            wakeups.nextWakeup(deadline);
        }
    }

    /** All calls are non-blocking, so the result of the selector is not needed. */
    private void serveTransport() {
        if (transport == null) {
            return;
        }
        try {
            if (!transport.isOpen()) {
                transport.serve();
                if (!transport.isOpen()) {
                    return;
                }
                core.connected(now());
            }
            // Reads first: if the gateway has closed, its Close frame is more useful than a write error.
            for (int reads = 0; reads < Limits.TURN_READ_COUNT; reads++) {
                int count = transport.read(buffer);
                if (count == 0) {
                    break;
                }
                core.receive(buffer, count, now());
                if (!transport.hasMoreToRead()) {
                    break;
                }
            }
            transport.serve();
        } catch (TransportException error) {
            closeTransport();
            core.disconnected(error.getMessage(), now());
        }
    }

    private void closeTransport() {
        if (transport != null) {
            transport.close();
            transport = null;
        }
    }

    private void finishTurn() {
        do {
            perform(core.takeActions());
            core.endTurn(now());
        } while (core.hasActions());
    }

    private void perform(List<Action> actions) {
        for (int index = 0; index < actions.size(); index++) {
            Action action = actions.get(index);
            switch (action.kind) {
                case CONNECT: connect(action); break;
                case SEND: send((byte[]) action.value); break;
                case DISCONNECT:
                    if (transport != null) {
                        transport.closeGracefully();
                        transport = null;
                    }
                    break;
                case PERSIST: {
                    LongwireException error = persist();
                    if (error != null) {
                        // The actions after a failed store, such as an ack, must not run.
                        core.persistFailed(error, actions.subList(index + 1, actions.size()), now());
                        return;
                    }
                    core.persisted();
                    break;
                }
                case HANDLE: handle(action); break;
                case WITHDRAW: withdraw(); break;
                case REVOKE: revoke(action); break;
                case STOP: stopCause = (LongwireException) action.value; break;
                case FETCHED: fetches.end((FetchResult) action.value, this::call); break;
                default: call((Event) action.value);
            }
        }
    }

    private LongwireException persist() {
        try {
            store.save(core.state.serialize());
            return null;
        } catch (LongwireException error) {
            return error;
        } catch (RuntimeException error) {
            return new LongwireException(
                LongwireException.Code.STATE_UNWRITABLE, "the state store failed: " + error, error);
        }
    }

    private void connect(Action action) {
        try {
            transport = maker.connect((Endpoint) action.value);
        } catch (TransportException error) {
            core.disconnected(error.getMessage(), now());
        }
    }

    private Transport connect(Endpoint endpoint) throws TransportException {
        ClientConfiguration configuration = core.configuration;
        if (configuration.usesTls() && tls == null) {
            tls = new TlsSettings(configuration.trustedCertificates(), configuration.pinnedCertificates());
        }
        return new SocketTransport(selector, endpoint, tls, clock, mailbox::wake);
    }

    private void send(byte[] frame) {
        if (transport == null) {
            return;
        }
        try {
            transport.write(frame);
            core.sent(now());
        } catch (TransportException error) {
            closeTransport();
            core.disconnected(error.getMessage(), now());
        }
    }

    // The app's callbacks.

    private boolean execute(Runnable task) {
        if (executor == null) {
            task.run();
            return true;
        }
        try {
            executor.execute(task);
            return true;
        } catch (RejectedExecutionException error) {
            // The app has shut its executor down, and wants no more callbacks.
            return false;
        }
    }

    private void call(Event event) {
        execute(() -> guarded(() -> event.report(listener)));
    }

    private void guarded(Runnable callback) {
        try {
            callback.run();
        } catch (RuntimeException error) {
            listener.onCallbackFailed(error);
        }
    }

    private void handle(Action action) {
        ReceivedMessage message = (ReceivedMessage) action.value;
        message.sink = sink;
        if (executor != null) {
            while (!offered.isEmpty() && offered.peekFirst().isTaken()) {
                offered.removeFirst();
            }
            offered.addLast(message);
        }
        if (!execute(() -> handle(message))) {
            offered.remove(message);
            core.skip(action);
        }
    }

    private void handle(ReceivedMessage message) {
        if (!message.take()) {
            return;
        }
        switch (copies.compare(message)) {
            case HELD: break;
            case PROCESSED: suppress(message, listener); break;
            default: offer(message, listener);
        }
    }

    /** Passes a message to the app, and defers the message if the callback throws. */
    static void offer(ReceivedMessage message, Listener listener) {
        try {
            listener.onMessage(message);
        } catch (RuntimeException error) {
            message.deferred();
            listener.onCallbackFailed(error);
        }
    }

    /** Acks a message whose copy the app has processed, and reports that it was suppressed. */
    static void suppress(ReceivedMessage message, Listener listener) {
        message.processed();
        try {
            listener.onSuppressed(message.messageId, message.sequence, message.wasOpened);
        } catch (RuntimeException error) {
            listener.onCallbackFailed(error);
        }
    }

    private void withdraw() {
        for (ReceivedMessage message : offered) {
            if (message.withdraw()) {
                core.finish(message, ReceivedMessage.Verdict.DEFERRED, "");
            }
        }
        offered.clear();
    }

    private void revoke(Action action) {
        Identifier task = (Identifier) action.value;
        long sequence = action.sequence;
        boolean isTaken = execute(() -> {
            guarded(() -> listener.onRevoked(task));
            if (Thread.currentThread() == thread) {
                core.finishRevoke(sequence);
            } else {
                mailbox.post(new Command.FinishRevoke(sequence));
            }
        });
        if (!isTaken) {
            core.skip(action);
        }
    }
}
