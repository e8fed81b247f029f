package longwire.client;

import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.function.LongFunction;

/**
 * A device of a Longwire gateway.
 *
 * <p>It registers, stays connected, and hands each message to the app exactly once. The app ends each message; the
 * client then stores the message's sequence durably, and acks it after that.
 *
 * <p>The client has one thread. It reconnects with exponential backoff and full jitter, or as the gateway's Close
 * requests. Methods do not wait for the network, except {@link #awaitStop}. All may be called from any thread, also
 * from a callback.
 */
public final class LongwireClient {
    private final Object lock = new Object();
    /**
     * The configuration with all later changes by the app, which also apply to the next start; guarded by {@code lock}.
     */
    private final ClientConfiguration configuration;
    private final StateStore store;
    private final Listener listener;
    private final CallBoard calls;
    private final FetchBoard fetches = new FetchBoard();
    private final History history;
    /** The unanswered requests about names of the current or last run; guarded by {@code lock}. */
    private NamesBoard names = new NamesBoard();
    /** The number of the last request about names; guarded by {@code lock}. */
    private long lastNamesRequest;
    /** Opens when the running client has ended; guarded by {@code lock}. */
    private CountDownLatch ended = new CountDownLatch(0);
    private volatile Identifier cid = Identifier.NONE;
    private ThreadFactory threads = task -> new Thread(task, "longwire");

    /**
     * Creates a client, which is idle until {@link #start}.
     *
     * @param configuration the settings, checked by {@code start}
     * @param store the store of the device's state. No other client may use it.
     * @param listener the app's callbacks
     */
    public LongwireClient(ClientConfiguration configuration, StateStore store, Listener listener) {
        this.configuration = configuration.copy();
        this.store = store;
        this.listener = listener;
        calls = new CallBoard(store, configuration.appId());
        history = new History(calls, configuration.appId());
    }

    /** Replaces the factory of the client's thread, for tests. */
    void setThreads(ThreadFactory maker) {
        threads = maker;
    }

    /**
     * Reads the state and starts to connect.
     *
     * @throws LongwireException {@code BAD_CONFIGURATION}, {@code STATE_UNREADABLE}, {@code STATE_DAMAGED}, {@code
     *     SYSTEM_RESOURCE}, or {@code WRONG_STATE} when the client already runs. The client can be started again after
     *     any of them.
     */
    public void start() throws LongwireException {
        start(Collections.emptyList());
    }

    /**
     * Reads the state and starts to connect, when a tap on a notification has launched the app.
     *
     * @param tapped the messages of the tapped notifications. The first Hello reports them as opened, so that the gateway
     *     does not deliver them again.
     * @throws LongwireException as {@link #start()} does
     */
    public void start(List<Identifier> tapped) throws LongwireException {
        synchronized (lock) {
            if (calls.isRunning()) {
                throw new LongwireException(
                    LongwireException.Code.WRONG_STATE, "the client runs already; stop it first and await its end");
            }
            configuration.validate();
            for (Identifier id : tapped) {
                markOpened(id);
            }
            Mailbox mailbox = new Mailbox();
            ClientState state = calls.run(mailbox, this::loadState);
            CountDownLatch latch = new CountDownLatch(1);
            boolean isStarted = false;
            try {
                start(mailbox, state, latch);
                ended = latch;
                isStarted = true;
            } finally {
                if (!isStarted) {
                    calls.release();
                }
            }
        }
    }

    private void start(Mailbox mailbox, ClientState state, CountDownLatch latch) throws LongwireException {
        cid = state == null ? Identifier.NONE : state.cid;
        history.note(state);
        long seed = new SecureRandom().nextLong();
        ClientCore core = new ClientCore(configuration.copy(), state, seed);
        names = new NamesBoard();
        ClientRunner runner = new ClientRunner(
            core, mailbox, store, new Watcher(names), fetches, history.copies(),
            (message, verdict, reason) -> calls.postOrKeep(new Command.Finish(message, verdict, reason)),
            lastEvent -> {
                if (core.owesWrite()) {
                    history.forgetOpened();
                }
                calls.release();
                try {
                    lastEvent.run();
                } finally {
                    latch.countDown();
                }
            });
        try {
            threads.newThread(runner).start();
        } catch (OutOfMemoryError error) {
            runner.discard();
            throw new LongwireException(
                LongwireException.Code.SYSTEM_RESOURCE, "the system could not start a thread", error);
        }
    }

    private ClientState loadState() throws LongwireException {
        byte[] bytes = store.load();
        ClientState state = bytes == null ? null : ClientState.parse(bytes);
        if (state != null && !isOwn(state) && state.isRegistered()) {
            throw new LongwireException(
                LongwireException.Code.STATE_UNREADABLE,
                "the state belongs to the app " + state.appId + ", not to " + configuration.appId()
                    + "; use another one");
        }
        if ((state == null || !state.isRegistered()) && configuration.registrationKey().isEmpty()) {
            throw new LongwireException(
                LongwireException.Code.BAD_CONFIGURATION,
                "this device is not registered yet; give a registrationToken or an appSecret");
        }
        if (store instanceof FileStateStore) {
            ((FileStateStore) store).removeDrafts();
        }
        return state == null || isOwn(state) ? state : null;
    }

    private boolean isOwn(ClientState state) {
        return state.appId.equals(configuration.appId());
    }

    /**
     * Disconnects and stops the client. {@code onStopped} is the last event. Does nothing when the client does not run.
     */
    public void stop() {
        calls.post(new Command.Stop());
    }

    /**
     * Waits until the client has stopped, through {@link #stop} or because the gateway refused it.
     *
     * <p>Do not call this from a callback on the client's thread: it would wait for itself.
     *
     * @param milliseconds the longest time to wait
     * @return false when the client still runs
     * @throws InterruptedException when the thread is interrupted
     */
    public boolean awaitStop(long milliseconds) throws InterruptedException {
        CountDownLatch latch;
        synchronized (lock) {
            latch = ended;
        }
        return latch.await(milliseconds, TimeUnit.MILLISECONDS);
    }

    /**
     * Returns whether the client runs, connected or not.
     *
     * @return true between a start and the end
     */
    public boolean isRunning() {
        return calls.isRunning();
    }

    /**
     * Returns the id of this device.
     *
     * @return the cid, or {@link Identifier#NONE} before the first start has read it, or without a registration
     */
    public Identifier cid() {
        return cid;
    }

    /** Looks at the clock and the connection now, for example when an alarm of {@link Wakeups} has fired. */
    public void wake() {
        calls.wake();
    }

    // The changes below also apply to the next start, even when they return false because the client does not run.

    /**
     * Reports the app's state to the gateway.
     *
     * <p>Call this with {@code BACKGROUND} before the system suspends the app, and with {@code FOREGROUND} as soon as
     * the app runs again. Messages read in between stay un-acked, and the gateway delivers them again with a new
     * offline flag. The app therefore does not present a message as new after its notification was shown.
     *
     * @param state the app's state
     * @param keepsRunning whether the app keeps its socket open in the background
     * @return false when the client does not run
     */
    public boolean setApplicationState(ApplicationState state, boolean keepsRunning) {
        synchronized (lock) {
            configuration.setApplicationState(state, keepsRunning);
            return post((core, now) -> core.setApplicationState(state, keepsRunning, now));
        }
    }

    /**
     * Sets the badge number that the gateway continues from.
     *
     * @param badge the number
     * @return false when the client does not run
     */
    public boolean setBadge(int badge) {
        synchronized (lock) {
            configuration.setBadge(badge);
            return post((core, now) -> core.settings().setBadge(badge, now));
        }
    }

    /**
     * Adds or replaces a vendor token. An empty token removes the tokens of its channel, also at the gateway.
     *
     * <p>A removal is kept across restarts until the gateway has confirmed it. Before {@code start} and after {@code
     * stop} it goes into the state store at once.
     *
     * @param token the token
     * @return false when the client does not run; for a removal, false when it could not be kept
     */
    public boolean setToken(VendorToken token) {
        synchronized (lock) {
            configuration.setToken(token);
            if (token.token().isEmpty()) {
                return calls.postOrKeep(new Command.RemoveTokens(token.channel()));
            }
            return post((core, now) -> core.settings().setToken(token, now));
        }
    }

    /**
     * Turns all pushes to this device off or on, both over the connection and through the vendor.
     *
     * @param isOff whether pushes are off
     * @return false when the client does not run
     */
    public boolean setPushModeOff(boolean isOff) {
        synchronized (lock) {
            configuration.setPushModeOff(isOff);
            return post((core, now) -> core.settings().setPushModeOff(isOff, now));
        }
    }

    /**
     * Sets the token of the app's server for the next registration and the next start.
     *
     * <p>A registered device takes another user's token with {@link #bindAliasWithToken}.
     *
     * @param token the token; an empty text removes it
     * @return false when nothing was changed: the token is {@code null} or has more than 2,048 bytes
     */
    public boolean setRegistrationToken(String token) {
        if (!NamesRequest.isServerToken(token)) {
            return false;
        }
        synchronized (lock) {
            configuration.setRegistrationToken(token);
            post((core, now) -> {
                core.configuration.setRegistrationToken(token);
                core.names().replaceToken(token);
            });
            return true;
        }
    }

    /**
     * Sets the attributes that the next connection reports, such as a new notification permission.
     *
     * @param attributes the attributes, or {@code null} to send none
     * @return false when the client does not run
     */
    public boolean setAttributes(DeviceAttributes attributes) {
        synchronized (lock) {
            configuration.setAttributes(attributes);
            return post((core, now) -> core.settings().setAttributes(attributes));
        }
    }

    /**
     * Requests another heartbeat.
     *
     * @param seconds 30 to 1800
     * @return false for other values, or when the client does not run
     */
    public boolean setHeartbeatSeconds(long seconds) {
        if (!ClientConfiguration.isHeartbeat(seconds)) {
            return false;
        }
        synchronized (lock) {
            configuration.setHeartbeatSeconds(seconds);
            return post((core, now) -> core.setHeartbeat(seconds, now));
        }
    }

    /**
     * Reports that the network is usable again or has changed. The client shortens its backoff, or tests its
     * connection.
     *
     * @param name the app's name for the network, of which 64 bytes are used. The client keeps the heartbeat learnt on
     *     a network under its name, also across starts. {@code null} stands for an unknown network.
     * @return false when the client does not run
     */
    public boolean networkChanged(String name) {
        String cut = name == null ? null : cut(name);
        return post((core, now) -> core.networkChanged(cut, now));
    }

    private static String cut(String name) {
        byte[] bytes = name.getBytes(StandardCharsets.UTF_8);
        if (bytes.length <= Limits.NETWORK_NAME_BYTE_COUNT) {
            return name;
        }
        return new String(Arrays.copyOf(bytes, Limits.NETWORK_NAME_BYTE_COUNT), StandardCharsets.UTF_8);
    }

    // Notifications, reports and messages to the server.

    /**
     * Records that the user opened this message from its notification.
     *
     * <p>The message is not shown again, and the gateway is informed now or with the next Hello. Before {@code start}
     * and after {@code stop} the record goes into the state store at once. A second call for the same message has no
     * effect.
     *
     * @param messageId the message
     * @return false when the record is not stored yet, because the store cannot be written. The next call or start
     *     tries again, so that the record is lost only with the process.
     */
    public boolean markOpened(Identifier messageId) {
        if (wasOpened(messageId)) {
            return true;
        }
        boolean isKept = calls.postOrKeep(new Command.Open(messageId));
        if (isKept) {
            history.opened().add(messageId);
        }
        return isKept;
    }

    /**
     * Returns whether the app has marked the message as opened, in this run or an earlier one.
     *
     * @param messageId the message's id; the last 256 opened messages are remembered
     * @return whether {@link #markOpened} was called for the message
     */
    public boolean wasOpened(Identifier messageId) {
        return history.opened().contains(messageId);
    }

    /**
     * Returns whether the app has a message: it arrived through a vendor, or the app has processed it in this run.
     *
     * @param messageId the message's id; the last 256 processed messages are remembered
     * @return false if the message has not arrived, so that the id may be forged
     */
    public boolean isKnown(Identifier messageId) {
        return history.copies().isKnown(messageId);
    }

    /**
     * Passes a message that arrived through a vendor to {@link Listener#onVendorMessage}, unless the app has it already.
     *
     * <p>The callback runs on the same executor or thread as all callbacks. {@link VendorMessage#processed} records the
     * message. If the vendor's copy was complete, the copy on the connection is held until the verdict. The last 256
     * messages are compared.
     *
     * @param push the vendor's push
     * @return false if no callback can run, because the client has no executor and does not run
     */
    public boolean receivedFromVendor(VendorPush push) {
        VendorMessage message = new VendorMessage(push, this::finishVendorMessage);
        return dispatch(() -> offer(message));
    }

    private void offer(VendorMessage message) {
        if (!history.copies().begin(message.push().messageId())) {
            return;
        }
        try {
            listener.onVendorMessage(message);
        } catch (RuntimeException error) {
            message.deferred();
            listener.onCallbackFailed(error);
        }
    }

    private boolean finishVendorMessage(Identifier messageId, boolean isProcessed) {
        // Without room for the record the copy on the connection is handed over as well: twice is better than never.
        boolean isKept = !isProcessed || calls.postOrKeep(new Command.Seen(messageId));
        ReceivedMessage held = history.copies().end(messageId, isProcessed);
        if (held != null) {
            boolean isTaken = dispatch(() -> {
                if (isProcessed) {
                    ClientRunner.suppress(held, listener);
                } else {
                    ClientRunner.offer(held, listener);
                }
            });
            if (!isTaken) {
                held.deferred();
            }
        }
        return isKept;
    }

    /** Runs a task on the thread of the callbacks; returns false if none is available. */
    private boolean dispatch(Runnable task) {
        Executor executor = configuration.executor();
        if (executor == null) {
            return post((core, now) -> task.run());
        }
        try {
            executor.execute(task);
            return true;
        } catch (RejectedExecutionException error) {
            // The app has shut down its executor.
            return false;
        }
    }

    /**
     * Reports a shown message or an action to the publisher's statistics.
     *
     * <p>The report is kept across restarts until the gateway has confirmed it. Before {@code start} and after {@code
     * stop} it goes into the state store at once.
     *
     * @param report the report
     * @return false when the report is not stored yet, as for {@link #markOpened}
     */
    public boolean report(MessageReport report) {
        boolean isKept = calls.postOrKeep(new Command.Report(report));
        if (isKept && report.action == 0) {
            history.shown().add(report.messageId);
        }
        return isKept;
    }

    /**
     * Returns whether the app has reported the message as shown, in this run or an earlier one.
     *
     * <p>A message that the app defers arrives again. It needs no second notification.
     *
     * @param messageId the message's id; the last 256 shown messages are remembered
     * @return whether {@link #report} was called with {@link MessageReport#shown}. After a restart this is false for a
     *     processed message, which does not arrive again.
     */
    public boolean wasShown(Identifier messageId) {
        return history.shown().contains(messageId);
    }

    /**
     * Sends a message to the app's server, through the gateway.
     *
     * <p>The client keeps messages across restarts until the gateway has them on disk, and sends them in the order of
     * the calls. {@code onMessageTaken} confirms a message. Before {@code start} and after {@code stop} a message goes
     * into the state store at once. At most 128 messages and 512 KiB are kept; a running client reports {@code
     * onMessageRefused} beyond these limits, and if it cannot store the message.
     *
     * @param payload 1 byte to 16 KiB of any content
     * @param task the id of the task that this message answers, or {@link Identifier#NONE}
     * @return false for a payload of another size, or when the message can be neither sent nor stored; it is not sent
     *     later then
     */
    public boolean send(byte[] payload, Identifier task) {
        if (payload.length == 0 || payload.length > Limits.OUTGOING_PAYLOAD_BYTE_COUNT) {
            return false;
        }
        return calls.postOrKeep(new Command.Send(payload.clone(), task));
    }

    /**
     * Receives the queued messages, for example after a vendor's silent push.
     *
     * <p>A client that backs off reconnects at once, unless the gateway requested the delay. A device in the background
     * counts as running until the fetch ends.
     *
     * @param milliseconds the longest duration, at most one hour
     * @param callback receives the end
     * @return false when the client does not run or 64 fetches wait; the callback is not called then
     */
    public boolean fetch(long milliseconds, FetchCallback callback) {
        long time = Math.max(0, Math.min(milliseconds, Limits.FETCH_TIME));
        if (!fetches.add(callback)) {
            return false;
        }
        if (post((core, now) -> core.beginFetch(time, now))) {
            return true;
        }
        fetches.remove(callback);
        return false;
    }

    // The device's own names.

    /**
     * Binds an alias to this device, in place of the device's alias of the same type.
     *
     * <p>The app's setting {@code deviceMay} must allow the requests about aliases or tags. They are queued, also across
     * reconnects, and sent one at a time in the order of the calls. The queue holds 32; a further request is answered
     * with code 102. {@link Listener#onNames} receives the answer, possibly on another thread before this method returns.
     * Requests are idempotent.
     *
     * @param alias letters, digits, {@code _} and Chinese characters, at most 39 by default
     * @param type the kind of the alias, or an empty text
     * @return the number of the request, or 0 if the client does not run or the names are too long. A name has at most
     *     256 bytes in UTF-8, and all names of a request have at most 28 KiB.
     */
    public long bindAlias(String alias, String type) {
        return ask(NamesRequest.Operation.BIND_ALIAS, alias, type, Collections.emptyList());
    }

    /**
     * Binds the alias in the {@code sub} of a token of the app's server; it needs no right in {@code deviceMay}.
     *
     * <p>For another user on a registered device. The alias of {@link ClientConfiguration#setRegistrationToken} is
     * bound automatically, once after each start, unless the app binds or unbinds an alias itself. The answer's code 5
     * means that the token is not valid or has expired.
     *
     * @param token the token
     * @return the number of the request, or 0 when it cannot be taken: the client does not run, or the token is empty
     *     or has more than 2,048 bytes
     */
    public long bindAliasWithToken(String token) {
        return token.isEmpty() ? 0 : ask(request -> NamesRequest.ofToken(request, token));
    }

    /**
     * Unbinds an alias from this device; other devices keep it.
     *
     * <p>Unbinding an alias that the device does not have succeeds.
     *
     * @param alias the alias
     * @param type the kind of the alias, or an empty text
     * @return as for {@link #bindAlias}
     */
    public long unbindAlias(String alias, String type) {
        return ask(NamesRequest.Operation.UNBIND_ALIAS, alias, type, Collections.emptyList());
    }

    /**
     * Replaces all tags of this device.
     *
     * @param tags the tags; an empty list removes all
     * @return as for {@link #bindAlias}; 0 also for more than 200 tags
     */
    public long setTags(List<String> tags) {
        return ask(NamesRequest.Operation.SET_TAGS, "", "", tags);
    }

    /**
     * Adds tags to this device.
     *
     * @param tags the tags
     * @return as for {@link #setTags}
     */
    public long addTags(List<String> tags) {
        return ask(NamesRequest.Operation.ADD_TAGS, "", "", tags);
    }

    /**
     * Removes tags from this device.
     *
     * @param tags the tags; tags that the device does not have are ignored
     * @return as for {@link #setTags}
     */
    public long removeTags(List<String> tags) {
        return ask(NamesRequest.Operation.REMOVE_TAGS, "", "", tags);
    }

    /**
     * Queries this device's alias of a type, and its tags.
     *
     * @param aliasType the kind of the alias, or an empty text
     * @return as for {@link #bindAlias}
     */
    public long queryNames(String aliasType) {
        return ask(NamesRequest.Operation.QUERY, "", aliasType, Collections.emptyList());
    }

    private long ask(NamesRequest.Operation operation, String alias, String aliasType, List<String> tags) {
        List<String> copy = new ArrayList<>(tags);
        return ask(request -> new NamesRequest(request, operation, alias, aliasType, copy));
    }

    private long ask(LongFunction<NamesRequest> maker) {
        synchronized (lock) {
            long request = lastNamesRequest == NamesRequest.GREATEST_NUMBER ? 1 : lastNamesRequest + 1;
            NamesRequest asked = maker.apply(request);
            if (!asked.isWithinLimits() || !names.add(request)) {
                return 0;
            }
            if (!calls.post(new Command.Ask(asked))) {
                names.remove(request);
                return 0;
            }
            lastNamesRequest = request;
            return request;
        }
    }

    private interface Change {
        void apply(ClientCore core, long now);
    }

    private boolean post(Change change) {
        return calls.post(new Command() {
            @Override
            void perform(ClientCore core, long now) {
                change.apply(core, now);
            }
        });
    }

    /** The app's listener during one run, which also records the cid and the answered requests about names. */
    private final class Watcher extends ForwardingListener {
        private final NamesBoard asked;

        Watcher(NamesBoard asked) {
            super(listener);
            this.asked = asked;
        }

        @Override
        public void onNames(NamesAnswer answer) {
            if (answer.request() == NamesRequest.OWN_NUMBER || asked.remove(answer.request())) {
                super.onNames(answer);
            }
        }

        @Override
        public void onStopped(LongwireException error) {
            for (long request : asked.close()) {
                try {
                    super.onNames(NamesAnswer.stopped(request));
                } catch (RuntimeException failure) {
                    onCallbackFailed(failure);
                }
            }
            super.onStopped(error);
        }

        @Override
        public void onRegistered(Identifier id) {
            cid = id;
            super.onRegistered(id);
        }

        @Override
        public void onRegistrationLost(Identifier id) {
            cid = Identifier.NONE;
            super.onRegistrationLost(id);
        }
    }
}
