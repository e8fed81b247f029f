package longwire.android;

import android.app.Application;
import android.content.Context;
import android.content.Intent;
import android.os.Handler;
import android.os.Looper;
import android.os.SystemClock;
import java.io.File;
import java.util.Map;
import longwire.client.ApplicationState;
import longwire.client.ClientClock;
import longwire.client.ClientConfiguration;
import longwire.client.FileStateStore;
import longwire.client.Identifier;
import longwire.client.LongwireClient;
import longwire.client.LongwireException;
import longwire.client.MessageReport;
import longwire.client.ReceivedMessage;
import longwire.client.VendorPush;

/**
 * The device of an Android app: a {@link LongwireClient} with its state in the app's folder, which follows the app's
 * activities, the network, Doze and the vendors' tokens.
 *
 * <p>One device exists in a process. {@code Application.onCreate} starts it; {@link LongwireService} keeps the process
 * running if the app wants that. Callbacks run on the main thread.
 */
public final class LongwireDevice {
    private static volatile LongwireDevice current;

    private final Application application;
    private final LongwireClient client;
    private final FileStateStore store;
    private final TapCheck taps;
    private final DeviceListener listener;
    private final MessageNotifications notifications;
    private final AppWatch appWatch;
    private final NetworkWatch networkWatch;
    private final DozeWatch dozeWatch;
    private final HeartbeatAlarm alarm;
    private final VendorTokens tokens;
    private final boolean keepsRunning;
    private final boolean reportsAttributes;
    /** Whether the last start was refused because of the settings. */
    private boolean isRefused;
    /** Whether {@code stop} was called after the last start. */
    private volatile boolean isStopped;

    private LongwireDevice(
        Application application, ClientConfiguration configuration, Options options, DeviceListener listener,
        AppWatch appWatch
    ) {
        this.appWatch = appWatch;
        this.application = application;
        this.listener = listener;
        keepsRunning = options.keepsRunning;
        reportsAttributes = options.reportsAttributes;
        Handler main = new Handler(Looper.getMainLooper());
        File folder = new File(application.getNoBackupFilesDir(), "longwire");
        // A folder that cannot be created is reported by the store's first use.
        folder.mkdirs();
        store = new FileStateStore(new File(folder, "state"));
        notifications = options.notifications == null
            ? new MessageNotifications(application, "longwire", "Messages", 0) : options.notifications;
        taps = new TapCheck(new FileStateStore(new File(folder, "tap-key")));
        notifications.setTaps(taps);
        alarm = new HeartbeatAlarm(application, this::wake);
        configuration.setExecutor(main::post).setWakeups(alarm).setClock(new ClientClock() {
            @Override
            public long monotonicMillis() {
                // Unlike the runtime's clock, this one includes deep sleep.
                return SystemClock.elapsedRealtime();
            }

            @Override
            public long wallMillis() {
                return System.currentTimeMillis();
            }
        });
        boolean isVisible = appWatch.isVisible();
        configuration.setApplicationState(applicationState(isVisible), !isVisible && keepsRunning);
        if (reportsAttributes) {
            configuration.setAttributes(AndroidAttributes.of(application));
        }
        client = new LongwireClient(configuration, store, new DeviceCallbacks(listener, notifications, this));
        networkWatch = new NetworkWatch(application, client::networkChanged);
        dozeWatch = new DozeWatch(application, this::wake);
        tokens = new VendorTokens(main, client::setToken);
    }

    /** The optional settings of a device. */
    public static final class Options {
        private boolean keepsRunning;
        private MessageNotifications notifications;
        private boolean reportsAttributes = true;

        /** Creates the default settings. */
        public Options() {}

        /**
         * Sets whether the app keeps its connection in the background, for example by {@link LongwireService}.
         *
         * @param isKept if false, the gateway uses the vendor's channel while no activity is visible
         * @return this
         */
        public Options setKeepsRunning(boolean isKept) {
            keepsRunning = isKept;
            return this;
        }

        /**
         * Sets whether the gateway gets the phone's attributes: model, versions, locale, time zone and notification
         * permission.
         *
         * @param isReported true by default; if false, the configuration's attributes are used
         * @return this
         */
        public Options setReportsAttributes(boolean isReported) {
            reportsAttributes = isReported;
            return this;
        }

        /**
         * Sets the display of notifications.
         *
         * @param display the display
         * @return this
         */
        public Options setNotifications(MessageNotifications display) {
            notifications = display;
            return this;
        }
    }

    /**
     * Starts the device of this process, or returns the one that runs.
     *
     * @param application the app
     * @param configuration the gateway and the app; the executor, the clock and the wake-ups are set here
     * @param options the other settings
     * @param listener the app's callbacks
     * @return the device
     * @throws LongwireException as {@link LongwireClient#start()} does. After {@code BAD_CONFIGURATION} a call with
     *     corrected settings starts the device; all other calls use the settings of the first one. A device whose token
     *     of the app's server was refused gets another one by {@link LongwireClient#setRegistrationToken} before the
     *     call. After {@code WRONG_STATE} the client still ends; await it with {@code awaitStop}. After {@code
     *     STATE_UNREADABLE}, such as on a phone that was not unlocked yet, call this again later. After {@code
     *     STATE_DAMAGED} the app decides about {@link #setStateAside}.
     */
    public static synchronized LongwireDevice start(
        Application application, ClientConfiguration configuration, Options options, DeviceListener listener
    ) throws LongwireException {
        LongwireDevice device = current;
        if (device != null && device.client.isRunning() && !device.isStopped) {
            return device;
        }
        if (device == null || device.isRefused) {
            AppWatch watch = device == null ? new AppWatch() : device.appWatch;
            device = new LongwireDevice(application, configuration, options, listener, watch);
            // Published before the start, so that taps of the first activity find it.
            current = device;
            watch.follow(device, application);
        }
        device.run();
        return device;
    }

    private void run() throws LongwireException {
        try {
            client.start();
        } catch (LongwireException error) {
            isRefused = error.code() == LongwireException.Code.BAD_CONFIGURATION;
            throw error;
        }
        isStopped = false;
        try {
            networkWatch.begin();
            dozeWatch.begin();
        } catch (RuntimeException error) {
            // For example, the manifest may lack a permission.
            stop();
            throw error;
        }
    }

    /**
     * Returns the device of this process.
     *
     * @return the device, or {@code null} before its start
     */
    public static LongwireDevice current() {
        return current;
    }

    /** Stops the client. The gateway keeps the tokens. A later {@link #start} starts the client again. */
    public void stop() {
        isStopped = true;
        networkWatch.end();
        dozeWatch.end();
        client.stop();
    }

    /**
     * Renames a damaged state, so that the next start registers a new device.
     *
     * @throws LongwireException {@code STATE_UNWRITABLE}
     */
    public void setStateAside() throws LongwireException {
        store.setAside();
    }

    /**
     * Returns the client, for all other calls.
     *
     * @return the client
     */
    public LongwireClient client() {
        return client;
    }

    /**
     * Returns the display of notifications.
     *
     * @return the display
     */
    public MessageNotifications notifications() {
        return notifications;
    }

    Application application() {
        return application;
    }

    private void wake() {
        client.wake();
    }

    void setVisible(boolean isVisible) {
        if (isVisible && reportsAttributes) {
            // The user may have changed the permission while the app was hidden.
            client.setAttributes(AndroidAttributes.of(application));
        }
        client.setApplicationState(applicationState(isVisible), !isVisible && keepsRunning);
    }

    private static ApplicationState applicationState(boolean isVisible) {
        return isVisible ? ApplicationState.FOREGROUND : ApplicationState.BACKGROUND;
    }

    // Vendors.

    /**
     * Requests the token of the first vendor that this phone has, and repeats the request if it fails.
     *
     * @param adapters the app's vendors, the preferred one first
     */
    public void useVendors(VendorAdapter... adapters) {
        tokens.request(application, adapters);
    }

    /**
     * Passes on a token that a vendor's SDK has just issued, from its callback.
     *
     * @param adapter the vendor
     * @param token the token
     */
    public void onVendorToken(VendorAdapter adapter, String token) {
        tokens.received(adapter, token);
    }

    /**
     * Passes on a data message of a vendor, such as {@code RemoteMessage.getData()} of FCM, from any thread.
     *
     * <p>The listener's {@code onVendorMessage} receives the message on the main thread.
     *
     * @param data the message's map
     * @return true if the message is from the gateway
     */
    public boolean onVendorMessage(Map<String, String> data) {
        return onVendorMessage(VendorPush.of(data));
    }

    /**
     * Passes on a data message of a vendor in JSON, such as {@code RemoteMessage.getData()} of HMS, from any thread.
     *
     * @param json the message's text
     * @return true if the message is from the gateway
     */
    public boolean onVendorMessage(String json) {
        return onVendorMessage(VendorPush.ofJson(json));
    }

    private boolean onVendorMessage(VendorPush push) {
        if (push == null) {
            return false;
        }
        client.receivedFromVendor(push);
        return true;
    }

    // Taps.

    /**
     * Reads a tapped notification, of this client or of a vendor, from an activity's intent.
     *
     * <p>The device calls this itself for each created and resumed activity. An existing activity receives its tap in
     * {@code onNewIntent}: call {@code setIntent(intent)} there. A tap is reported once for each message, even if the
     * system repeats its intent in a new process.
     *
     * <p>Another app can start an exported activity with any intent. A tap therefore counts only if this library made its
     * intent, or if its message has arrived. Other taps go to {@link DeviceListener#onUnconfirmedTap} first, and count
     * when their messages arrive.
     *
     * @param intent the activity's intent
     * @return the push, or {@code null} if the intent is not a tap, or if the tap is unconfirmed or was counted before
     */
    public synchronized VendorPush handleTap(Intent intent) {
        if (intent == null) {
            return null;
        }
        String ids = intent.getStringExtra(VendorPush.IDS_KEY);
        String payload = intent.getStringExtra(VendorPush.PAYLOAD_KEY);
        VendorPush push = VendorPush.of(ids, payload);
        if (push == null) {
            return null;
        }
        // The system repeats an activity's intent when it creates the activity anew.
        intent.removeExtra(VendorPush.IDS_KEY);
        if (client.wasOpened(push.messageId())) {
            return null;
        }
        boolean isConfirmed = taps.isSealed(ids, payload, intent.getStringExtra(TapCheck.SEAL_KEY))
            || client.isKnown(push.messageId()) || taps.isReceivedOrWaits(push.messageId());
        if (!isConfirmed) {
            listener.onUnconfirmedTap(push);
            return null;
        }
        countTap(push);
        return push;
    }

    private void countTap(VendorPush push) {
        client.markOpened(push.messageId());
        notifications.remove(push.taskId());
        listener.onNotificationTapped(push);
    }

    /** Counts the unconfirmed tap of a message that has arrived, with the message's payload. */
    synchronized void confirmTap(ReceivedMessage message) {
        if (taps.receive(message.messageId()) && !client.wasOpened(message.messageId())) {
            countTap(VendorPush.of(message.taskId().taskText() + ":" + message.messageId(), message.text()));
        }
    }

    /**
     * Reports that the app showed a message.
     *
     * @param messageId the message
     */
    public void reportShown(Identifier messageId) {
        client.report(MessageReport.shown(messageId));
    }

    /**
     * Sets the number on the app's icon, here and at the gateway.
     *
     * @param number the number of unread messages
     * @param adapters the phone's launchers, if the app has adapters for them
     */
    public void setBadge(int number, BadgeAdapter... adapters) {
        client.setBadge(number);
        notifications.setNumber(number);
        Context context = application;
        for (BadgeAdapter adapter : adapters) {
            adapter.show(context, number);
        }
    }
}
