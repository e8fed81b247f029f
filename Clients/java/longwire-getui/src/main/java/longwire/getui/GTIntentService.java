package longwire.getui;

import android.app.Service;
import android.content.Context;
import android.content.Intent;
import android.os.Binder;
import android.os.IBinder;

/**
 * The app's callbacks. The app declares its subclass as a service in its manifest, not exported.
 *
 * <p>{@link PushManager} binds to the service, so that the system creates it. Callbacks run on the main thread. A
 * message whose callback returns is recorded and acked; a message whose callback throws is delivered again in a later
 * session.
 */
public abstract class GTIntentService extends Service {
    /** Creates the service; the system calls this. */
    public GTIntentService() {}

    @Override
    public void onCreate() {
        super.onCreate();
        PushManager.getInstance().attach(this);
    }

    @Override
    public void onDestroy() {
        PushManager.getInstance().detach(this);
        super.onDestroy();
    }

    @Override
    public IBinder onBind(Intent intent) {
        return new Binder();
    }

    /**
     * Receives the process that pushes arrive in.
     *
     * @param context the app
     * @param pid the process's id
     */
    public void onReceiveServicePid(Context context, int pid) {}

    /**
     * Receives the device's id, after each login.
     *
     * @param context the app
     * @param clientid the cid
     */
    public abstract void onReceiveClientId(Context context, String clientid);

    /**
     * Receives a message.
     *
     * @param context the app
     * @param message the message
     */
    public abstract void onReceiveMessageData(Context context, GTTransmitMessage message);

    /**
     * Reports that the device logged in or lost its session.
     *
     * @param context the app
     * @param online whether it has a session
     */
    public abstract void onReceiveOnlineState(Context context, boolean online);

    /**
     * Reports that the device has stopped, and does not connect again before the next {@link PushManager#initialize}.
     *
     * <p>Getui's SDK has no such callback. The gateway may have refused the app's secret or the token of its server.
     *
     * @param context the app
     * @param closeCode the gateway's Close code (docs/use/Errors.md, "Close codes"), or 0
     * @param reason the reason in English
     */
    public void onDeviceStopped(Context context, long closeCode, String reason) {}

    /**
     * Receives the result of a command on an alias or tags.
     *
     * @param context the app
     * @param message the result
     */
    public abstract void onReceiveCommandResult(Context context, GTCmdMessage message);

    /**
     * Reports that a notification was shown.
     *
     * @param context the app
     * @param message the notification
     */
    public abstract void onNotificationMessageArrived(Context context, GTNotificationMessage message);

    /**
     * Reports that the user tapped a notification.
     *
     * @param context the app
     * @param message the notification
     */
    public abstract void onNotificationMessageClicked(Context context, GTNotificationMessage message);
}
