package longwire.android;

import android.app.Notification;
import android.app.NotificationChannel;
import android.app.NotificationManager;
import android.app.Service;
import android.content.Context;
import android.content.Intent;
import android.os.Binder;
import android.os.IBinder;

/**
 * A service that keeps the app's process and its connection in the background.
 *
 * <p>Started with {@link #startForeground(Context)} it is a foreground service with a quiet notification. Bound by
 * another component of the app, it lives as long as the binding. The device itself is started by the app's {@code
 * Application}, which exists before any service.
 */
public class LongwireService extends Service {
    private static final String CHANNEL = "longwire.connection";
    private static final int ID = 0x4c57;

    private final LocalBinder binder = new LocalBinder();

    /** Creates the service; the system calls this. */
    public LongwireService() {}

    /** The access of a component that is bound to the service. */
    public static final class LocalBinder extends Binder {
        private LocalBinder() {}

        /**
         * Returns the device.
         *
         * @return the device of this process, or {@code null} before its start
         */
        public LongwireDevice device() {
            return LongwireDevice.current();
        }
    }

    /**
     * Starts the service in the foreground. Android 12 and later allow this only while the app is visible, and in a few
     * other cases.
     *
     * @param context the app
     * @return false when the system does not allow the start now
     */
    public static boolean startForeground(Context context) {
        try {
            context.startForegroundService(new Intent(context, LongwireService.class));
            return true;
        } catch (IllegalStateException error) {
            // ForegroundServiceStartNotAllowedException of Android 12 is one.
            return false;
        }
    }

    @Override
    public IBinder onBind(Intent intent) {
        return binder;
    }

    @Override
    public int onStartCommand(Intent intent, int flags, int startId) {
        NotificationManager manager = (NotificationManager) getSystemService(Context.NOTIFICATION_SERVICE);
        manager.createNotificationChannel(
            new NotificationChannel(CHANNEL, channelName(), NotificationManager.IMPORTANCE_LOW));
        startForeground(ID, notification(new Notification.Builder(this, CHANNEL)));
        return START_STICKY;
    }

    /**
     * Returns the name of the quiet notification's channel.
     *
     * @return a text for the system's settings
     */
    protected String channelName() {
        return "Connection";
    }

    /**
     * Builds the quiet notification of the foreground service.
     *
     * @param builder a builder of the channel
     * @return the notification
     */
    protected Notification notification(Notification.Builder builder) {
        // android.R.drawable.stat_notify_sync_noanim
        return builder.setSmallIcon(0x01080078).setContentTitle("Connected").setContentText("Receiving messages")
            .build();
    }
}
