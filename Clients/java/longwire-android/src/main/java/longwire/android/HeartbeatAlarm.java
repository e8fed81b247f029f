package longwire.android;

import android.app.AlarmManager;
import android.app.PendingIntent;
import android.content.BroadcastReceiver;
import android.content.Context;
import android.content.Intent;
import android.content.IntentFilter;
import android.os.Build;
import android.os.PowerManager;
import longwire.client.Wakeups;

/**
 * An alarm for the client's next deadline, since a sleeping processor runs no thread.
 *
 * <p>The alarm is inexact and fires in Doze, where the system allows one in about nine minutes. A wake lock of ten
 * seconds covers the Ping and its Pong.
 */
final class HeartbeatAlarm extends BroadcastReceiver implements Wakeups {
    static final String ACTION = "longwire.android.HEARTBEAT";
    /** The time for a Ping and its Pong, after which the client drops the connection. */
    static final long AWAKE_MILLIS = 10_000;
    /** {@code Context.RECEIVER_NOT_EXPORTED} is required from Android 13 on. */
    private static final int ANDROID_13 = 33;

    private final Context context;
    private final AlarmManager alarms;
    private final PowerManager power;
    private final PendingIntent operation;
    private final Runnable wake;
    private boolean isRegistered;

    HeartbeatAlarm(Context context, Runnable wake) {
        this.context = context;
        this.wake = wake;
        alarms = (AlarmManager) context.getSystemService(Context.ALARM_SERVICE);
        power = (PowerManager) context.getSystemService(Context.POWER_SERVICE);
        Intent intent = new Intent(ACTION).setPackage(context.getPackageName());
        operation = PendingIntent.getBroadcast(
            context, 0, intent, PendingIntent.FLAG_UPDATE_CURRENT | PendingIntent.FLAG_IMMUTABLE);
    }

    @Override
    public synchronized void nextWakeup(long monotonicMillis) {
        if (monotonicMillis == Long.MAX_VALUE) {
            alarms.cancel(operation);
            if (isRegistered) {
                isRegistered = false;
                context.unregisterReceiver(this);
            }
            return;
        }
        if (!isRegistered) {
            isRegistered = true;
            IntentFilter filter = new IntentFilter(ACTION);
            if (Build.VERSION.SDK_INT >= ANDROID_13) {
                context.registerReceiver(this, filter, Context.RECEIVER_NOT_EXPORTED);
            } else {
                context.registerReceiver(this, filter);
            }
        }
        // A new alarm replaces the one before it, because both have the same operation.
        alarms.setAndAllowWhileIdle(AlarmManager.ELAPSED_REALTIME_WAKEUP, monotonicMillis, operation);
    }

    @Override
    public void onReceive(Context receiverContext, Intent intent) {
        power.newWakeLock(PowerManager.PARTIAL_WAKE_LOCK, "longwire:heartbeat").acquire(AWAKE_MILLIS);
        wake.run();
    }
}
