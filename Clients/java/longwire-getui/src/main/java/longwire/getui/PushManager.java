package longwire.getui;

import android.app.Application;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.ServiceConnection;
import android.content.pm.PackageManager;
import android.os.Bundle;
import android.os.Handler;
import android.os.IBinder;
import android.os.Looper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import longwire.android.DeviceListener;
import longwire.android.LongwireDevice;
import longwire.client.ClientConfiguration;
import longwire.client.Identifier;
import longwire.client.LongwireException;
import longwire.client.MessageReport;
import longwire.client.NamesAnswer;
import longwire.client.ReceivedMessage;
import longwire.client.VendorMessage;
import longwire.client.VendorPush;
import longwire.client.WelcomeDetails;

/**
 * Getui's calls on a {@link LongwireDevice}, so that an app of Getui's moves by changing its imports.
 *
 * <p>Callbacks run on the main thread. Initialize on the main thread; the other calls may come from any thread. README
 * lists the calls that differ.
 */
public final class PushManager {
    /**
     * The names in the manifest's {@code meta-data}: the address of the gateway as host:port, and {@code false} for
     * plain TCP.
     */
    static final String ADDRESS = "LONGWIRE_ADDRESS";
    static final String TLS = "LONGWIRE_TLS";
    /** The class of the app's {@link GTIntentService}. */
    static final String INTENT_SERVICE = "LONGWIRE_INTENT_SERVICE";
    /** The names of the app's id and secret, which two generations of Getui's SDK use. */
    private static final String[] APP_ID = {"GETUI_APPID", "PUSH_APPID"};
    private static final String[] APP_SECRET = {"GETUI_APPSECRET", "PUSH_APPSECRET"};
    private static final int TAG_COUNT = 100;
    /** Callbacks that wait for the app's service. The gateway's window bounds messages, and other callbacks are few. */
    private static final int WAITING_COUNT = 2_048;

    private static final PushManager INSTANCE = new PushManager();

    private final Handler main = new Handler(Looper.getMainLooper());
    private volatile LongwireDevice device;
    private volatile Application application;
    private ServiceConnection connection;
    private final AliasesAndTags commands = new AliasesAndTags();
    private volatile String appId = "";
    /** The token of the app's server, or an empty text. */
    private volatile String registrationToken = "";
    private volatile boolean isOnline;
    private volatile boolean isTurnedOn = true;
    /** Callbacks that wait for the app's service, oldest first; guarded by its own monitor. */
    private final Deque<Callback> waiting = new ArrayDeque<>();
    /** The app's service, or {@code null}; guarded by the monitor of {@code waiting}. */
    private GTIntentService service;

    private interface Callback {
        void call(GTIntentService receiver);
    }

    private PushManager() {}

    /**
     * Returns the manager of this process.
     *
     * @return the manager
     */
    public static PushManager getInstance() {
        return INSTANCE;
    }

    /**
     * Reads the manifest and starts the device.
     *
     * @param context the app
     * @throws IllegalArgumentException when the manifest lacks a value; the message names it
     * @throws IllegalStateException when the state cannot be used; the cause is a {@link LongwireException}
     */
    public void initialize(Context context) {
        application = (Application) context.getApplicationContext();
        Bundle values = metaData(application);
        String address = value(values, ADDRESS);
        int colon = address.lastIndexOf(':');
        if (colon <= 0 || !address.substring(colon + 1).matches("[0-9]{1,5}")) {
            throw new IllegalArgumentException("the manifest's " + ADDRESS + " is " + address + "; write HOST:PORT");
        }
        appId = value(values, APP_ID);
        ClientConfiguration configuration = new ClientConfiguration(
            address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)), appId);
        configuration.setRegistrationToken(registrationToken).setClientName("longwire-getui/1");
        if (registrationToken.isEmpty()) {
            configuration.setAppSecret(value(values, APP_SECRET));
        }
        configuration.setTls(!"false".equals(String.valueOf(values.get(TLS))));
        // Getui delivers a message over the connection also after its notification was opened.
        configuration.setReplaysOpened(true);
        try {
            device = LongwireDevice.start(application, configuration, new LongwireDevice.Options(), new Callbacks());
        } catch (LongwireException error) {
            throw new IllegalStateException(error.toString(), error);
        }
        Object name = values.get(INTENT_SERVICE);
        if (name != null && !isAttached()) {
            String className = name.toString();
            bind(new Intent().setClassName(
                application, className.startsWith(".") ? application.getPackageName() + className : className));
        }
    }

    /**
     * Names the app's service, instead of the manifest's {@code LONGWIRE_INTENT_SERVICE}.
     *
     * @param context the app
     * @param serviceClass the subclass of {@link GTIntentService} that the manifest declares
     */
    public void registerPushIntentService(Context context, Class<? extends GTIntentService> serviceClass) {
        application = (Application) context.getApplicationContext();
        bind(new Intent(application, serviceClass));
    }

    /** Binds to the service: unlike a start, the system allows this in the background, too. */
    private void bind(Intent intent) {
        connection = new ServiceConnection() {
            @Override
            public void onServiceConnected(ComponentName name, IBinder binder) {}

            @Override
            public void onServiceDisconnected(ComponentName name) {}
        };
        if (!application.bindService(intent, connection, Context.BIND_AUTO_CREATE)) {
            throw new IllegalArgumentException("the manifest does not declare the app's GTIntentService");
        }
    }

    private static Bundle metaData(Context context) {
        try {
            Bundle values = context.getPackageManager()
                .getApplicationInfo(context.getPackageName(), PackageManager.GET_META_DATA).metaData;
            return values == null ? new Bundle() : values;
        } catch (PackageManager.NameNotFoundException error) {
            throw new IllegalStateException("the app's own package is unknown", error);
        }
    }

    private static String value(Bundle values, String... names) {
        for (String name : names) {
            // A value of digits is a number in the manifest.
            Object value = values.get(name);
            if (value != null) {
                return value.toString();
            }
        }
        throw new IllegalArgumentException("the manifest has no meta-data " + names[0]);
    }

    // The app's service.

    void attach(GTIntentService newService) {
        synchronized (waiting) {
            service = newService;
        }
        main.post(this::drain);
    }

    private boolean isAttached() {
        synchronized (waiting) {
            return service != null;
        }
    }

    /**
     * Runs the waiting callbacks in order, on the main thread. If one throws, the next callback runs the remaining
     * ones.
     */
    private void drain() {
        while (true) {
            Callback next;
            GTIntentService receiver;
            synchronized (waiting) {
                receiver = service;
                if (receiver == null || waiting.isEmpty()) {
                    return;
                }
                next = waiting.removeFirst();
            }
            next.call(receiver);
        }
    }

    void detach(GTIntentService oldService) {
        synchronized (waiting) {
            if (service == oldService) {
                service = null;
            }
        }
    }

    /**
     * Runs a callback on the main thread, or keeps it for the app's service; returns false if too many wait. Any thread
     * may call this.
     */
    private boolean call(Callback callback) {
        synchronized (waiting) {
            if (waiting.size() >= WAITING_COUNT) {
                return false;
            }
            waiting.addLast(callback);
        }
        main.post(this::drain);
        return true;
    }

    // Calls of the app.

    /**
     * Returns the device's id.
     *
     * @param context the app
     * @return the cid, or {@code null} before the registration
     */
    public String getClientid(Context context) {
        Identifier cid = device == null ? Identifier.NONE : device.client().cid();
        return cid.isNone() ? null : cid.toString();
    }

    /**
     * Returns the version of this layer.
     *
     * @param context the app
     * @return the version
     */
    public String getVersion(Context context) {
        return "longwire-getui/1";
    }

    /**
     * Turns pushes on.
     *
     * @param context the app
     */
    public void turnOnPush(Context context) {
        setPushMode(true);
    }

    /**
     * Turns pushes off, over the connection and through vendors. Queued messages wait until they expire.
     *
     * @param context the app
     */
    public void turnOffPush(Context context) {
        setPushMode(false);
    }

    private void setPushMode(boolean isOn) {
        isTurnedOn = isOn;
        required().client().setPushModeOff(!isOn);
    }

    /**
     * Returns the last mode that this process has set.
     *
     * @param context the app
     * @return true before any call
     */
    public boolean isPushTurnedOn(Context context) {
        return isTurnedOn;
    }

    /**
     * Sets a token of the app's server, which registers the device and binds the alias in its {@code sub}.
     *
     * <p>Call this before {@link #initialize}; the manifest then needs no secret. Getui's SDK has no such call. If the
     * gateway refuses the token, {@link GTIntentService#onDeviceStopped} receives the reason. Set another token then,
     * and initialize again.
     *
     * @param context the app
     * @param token a JSON Web Token of at most 2,048 bytes; an empty text removes it
     * @return false when the token is {@code null} or too long
     */
    public boolean setRegistrationToken(Context context, String token) {
        // A device that exists has its own configuration.
        LongwireDevice known = device;
        boolean isTaken = known == null
            ? token != null && token.getBytes(StandardCharsets.UTF_8).length <= AliasesAndTags.TOKEN_BYTE_COUNT
            : known.client().setRegistrationToken(token);
        if (isTaken) {
            registrationToken = token;
        }
        return isTaken;
    }

    private LongwireDevice required() {
        if (device == null) {
            throw new IllegalStateException("call PushManager.initialize first");
        }
        return device;
    }

    /**
     * Binds an alias to the device. The result goes to {@link GTIntentService#onReceiveCommandResult}.
     *
     * @param context the app
     * @param alias the alias
     * @return whether the command was submitted
     */
    public boolean bindAlias(Context context, String alias) {
        return bindAlias(context, alias, "bindAlias_" + System.currentTimeMillis());
    }

    /**
     * Binds an alias to the device. The result goes to {@link GTIntentService#onReceiveCommandResult}.
     *
     * @param context the app
     * @param alias the alias
     * @param sn the app's number of the command
     * @return whether the command was submitted
     */
    public boolean bindAlias(Context context, String alias, String sn) {
        int fault = aliasFault(alias, sn);
        if (fault == PushConsts.SUCCESS) {
            fault = commands.bindAlias(
                required().client(), alias, (code, tags) -> result(new BindAliasCmdMessage(sn, code)));
        }
        if (fault != PushConsts.SUCCESS) {
            result(new BindAliasCmdMessage(sn, fault));
        }
        return fault == PushConsts.SUCCESS;
    }

    /**
     * Binds the alias in the {@code sub} of a token of the app's server, which needs no {@code deviceMay}. The result
     * goes to {@link GTIntentService#onReceiveCommandResult}; Getui's SDK has no such call.
     *
     * @param context the app
     * @param token the token
     * @param sn the app's number of the command
     * @return whether the command was submitted
     */
    public boolean bindAliasWithToken(Context context, String token, String sn) {
        int fault = aliasFault(token, sn);
        if (fault == PushConsts.SUCCESS) {
            fault = commands.bindAliasWithToken(
                required().client(), token, (code, tags) -> result(new BindAliasCmdMessage(sn, code)));
        }
        if (fault != PushConsts.SUCCESS) {
            result(new BindAliasCmdMessage(sn, fault));
        }
        return fault == PushConsts.SUCCESS;
    }

    /**
     * Releases an alias of this device. The result goes to {@link GTIntentService#onReceiveCommandResult}.
     *
     * @param context the app
     * @param alias the alias
     * @param isSelf true to unbind the alias from this device only. With false, for all devices, the command fails with
     *     {@link PushConsts#ALIAS_UNKNOWN_EXCEPTION}
     * @return whether the command was submitted
     */
    public boolean unBindAlias(Context context, String alias, boolean isSelf) {
        return unBindAlias(context, alias, isSelf, "unBindAlias_" + System.currentTimeMillis());
    }

    /**
     * Unbinds an alias from this device. The result goes to {@link GTIntentService#onReceiveCommandResult}.
     *
     * @param context the app
     * @param alias the alias
     * @param isSelf true to unbind the alias from this device only. With false, for all devices, the command fails with
     *     {@link PushConsts#ALIAS_UNKNOWN_EXCEPTION}
     * @param sn the app's number of the command
     * @return whether the command was submitted
     */
    public boolean unBindAlias(Context context, String alias, boolean isSelf, String sn) {
        int fault = aliasFault(alias, sn);
        if (fault == PushConsts.SUCCESS) {
            // A device cannot change the aliases of other devices.
            fault = !isSelf ? PushConsts.ALIAS_UNKNOWN_EXCEPTION
                : commands.unbindAlias(
                    required().client(), alias, (code, tags) -> result(new UnBindAliasCmdMessage(sn, code)));
        }
        if (fault != PushConsts.SUCCESS) {
            result(new UnBindAliasCmdMessage(sn, fault));
        }
        return fault == PushConsts.SUCCESS;
    }

    private int aliasFault(String alias, String sn) {
        if (alias == null || alias.isEmpty()) {
            return PushConsts.ALIAS_INVALID;
        }
        if (sn == null || sn.isEmpty()) {
            return PushConsts.ALIAS_SN_INVALID;
        }
        if (getClientid(application) == null) {
            return PushConsts.ALIAS_CID_LOST;
        }
        return isOnline ? PushConsts.SUCCESS : PushConsts.ALIAS_CONNECT_LOST;
    }

    /**
     * Replaces the device's tags. The result goes to {@link GTIntentService#onReceiveCommandResult}.
     *
     * @param context the app
     * @param tags 1 to 100 tags
     * @param sn the app's number of the command
     * @return 0 if the command was submitted, else a number of {@link PushConsts}
     */
    public int setTag(Context context, Tag[] tags, String sn) {
        if (tags == null || tags.length == 0) {
            return PushConsts.SETTAG_ERROR_NULL;
        }
        if (tags.length > TAG_COUNT) {
            return PushConsts.SETTAG_ERROR_COUNT;
        }
        if (sn == null || sn.isEmpty()) {
            return PushConsts.SETTAG_SN_NULL;
        }
        String[] names = new String[tags.length];
        for (int index = 0; index < tags.length; index++) {
            names[index] = tags[index].getName();
            if (names[index] == null || !names[index].matches("[\\u4e00-\\u9fffA-Za-z0-9+\\-*_.]+")) {
                return PushConsts.SETTAG_TAG_ILLEGAL;
            }
        }
        if (!isOnline) {
            return PushConsts.SETTAG_NOTONLINE;
        }
        return commands.setTags(
            required().client(), names, (code, known) -> result(new SetTagCmdMessage(sn, code)));
    }

    /**
     * Requests the device's tags. The result is a {@link QueryTagCmdMessage} and goes to {@link
     * GTIntentService#onReceiveCommandResult}.
     *
     * @param context the app
     * @param sn the app's number of the command
     * @return 0 if the command was submitted, else a number of {@link PushConsts}
     */
    public int queryTag(Context context, String sn) {
        if (sn == null || sn.isEmpty()) {
            return PushConsts.SETTAG_SN_NULL;
        }
        if (!isOnline) {
            return PushConsts.SETTAG_NOTONLINE;
        }
        return commands.queryTags(
            required().client(), (code, tags) -> result(new QueryTagCmdMessage(sn, code, tags)));
    }

    private void result(GTCmdMessage message) {
        call(receiver -> receiver.onReceiveCommandResult(application, message));
    }

    /**
     * Reports a custom action of the user to the publisher's statistics.
     *
     * @param context the app
     * @param taskid the message's task
     * @param messageid the message
     * @param actionid 90001 to 90999
     * @return whether the report was kept; the gateway gets it now or later
     */
    public boolean sendFeedbackMessage(Context context, String taskid, String messageid, int actionid) {
        Identifier message = Identifier.parse(messageid);
        if (message == null || Identifier.parseTask(taskid) == null || actionid < 90_001 || actionid > 90_999) {
            return false;
        }
        return required().client().report(MessageReport.action(actionid, message));
    }

    /**
     * Sends a message to the app's server.
     *
     * @param context the app
     * @param taskid the task that the message answers, or {@code null}
     * @param payload 1 byte to 16 KiB
     * @return whether the message was kept; the gateway gets it now or later
     */
    public boolean sendMessage(Context context, String taskid, byte[] payload) {
        Identifier task = taskid == null ? Identifier.NONE : Identifier.parseTask(taskid);
        return task != null && required().client().send(payload, task);
    }

    /**
     * Requests another heartbeat.
     *
     * @param context the app
     * @param interval 30 to 1800 seconds
     * @return false for another value
     */
    public boolean setHeartbeatInterval(Context context, int interval) {
        return required().client().setHeartbeatSeconds(interval);
    }

    /**
     * Sets the badge number that the gateway continues from.
     *
     * @param context the app
     * @param number the number of unread messages
     */
    public void setBadgeNum(Context context, int number) {
        required().setBadge(number);
    }

    /** The device's callbacks as Getui's. */
    private final class Callbacks implements DeviceListener {
        private String cid() {
            String cid = getClientid(application);
            return cid == null ? "" : cid;
        }

        @Override
        public void onWelcomed(WelcomeDetails details) {
            isOnline = true;
            call(receiver -> receiver.onReceiveClientId(application, details.cid().toString()));
            call(receiver -> receiver.onReceiveOnlineState(application, true));
        }

        private void lost() {
            if (isOnline) {
                isOnline = false;
                call(receiver -> receiver.onReceiveOnlineState(application, false));
            }
        }

        @Override
        public void onClosed(long code, String reason) {
            lost();
        }

        @Override
        public void onDisconnected(String reason) {
            lost();
        }

        @Override
        public void onStopped(LongwireException error) {
            lost();
            if (error != null) {
                call(receiver -> receiver.onDeviceStopped(application, error.closeCode(), error.getMessage()));
            }
        }

        @Override
        public void onNames(NamesAnswer answer) {
            commands.receive(answer);
        }

        @Override
        public void onMessage(ReceivedMessage message) {
            boolean isTaken = call(receiver -> {
                try {
                    receiver.onReceiveMessageData(
                        application, new GTTransmitMessage(appId, cid(), application.getPackageName(), message));
                } catch (RuntimeException error) {
                    message.deferred();
                    throw error;
                }
                message.processed();
            });
            if (!isTaken) {
                message.deferred();
            }
        }

        @Override
        public void onVendorMessage(VendorMessage message) {
            VendorPush push = message.push();
            if (push.payload() == null) {
                message.deferred();
                return;
            }
            byte[] payload = push.payload().getBytes(StandardCharsets.UTF_8);
            boolean isTaken = call(receiver -> {
                try {
                    receiver.onReceiveMessageData(
                        application,
                        new GTTransmitMessage(
                            appId, cid(), application.getPackageName(), push.taskId().taskText(),
                            push.messageId().toString(), payload, true));
                } catch (RuntimeException error) {
                    message.deferred();
                    throw error;
                }
                message.processed();
            });
            if (!isTaken) {
                message.deferred();
            }
        }

        @Override
        public void onNotificationShown(ReceivedMessage message) {
            call(receiver -> receiver.onNotificationMessageArrived(
                application,
                new GTNotificationMessage(
                    cid(), application.getPackageName(), message.taskId().taskText(), message.messageId().toString(),
                    message.title(), message.body(), message.text())));
        }

        @Override
        public void onNotificationTapped(VendorPush push) {
            call(receiver -> receiver.onNotificationMessageClicked(
                application,
                new GTNotificationMessage(
                    cid(), application.getPackageName(), push.taskId().taskText(), push.messageId().toString(), "", "",
                    push.payload() == null ? "" : push.payload())));
        }
    }
}
