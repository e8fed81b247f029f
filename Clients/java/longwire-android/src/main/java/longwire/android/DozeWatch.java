package longwire.android;

import android.content.BroadcastReceiver;
import android.content.Context;
import android.content.Intent;
import android.content.IntentFilter;
import android.os.PowerManager;

/** Wakes the client when the phone leaves Doze, in which it has no network and delayed alarms. */
final class DozeWatch extends BroadcastReceiver {
    private final Context context;
    private final PowerManager power;
    private final Runnable wake;
    private boolean isRegistered;

    DozeWatch(Context context, Runnable wake) {
        this.context = context;
        this.wake = wake;
        power = (PowerManager) context.getSystemService(Context.POWER_SERVICE);
    }

    synchronized void begin() {
        if (!isRegistered) {
            context.registerReceiver(this, new IntentFilter(PowerManager.ACTION_DEVICE_IDLE_MODE_CHANGED));
            isRegistered = true;
        }
    }

    synchronized void end() {
        if (isRegistered) {
            isRegistered = false;
            context.unregisterReceiver(this);
        }
    }

    @Override
    public void onReceive(Context receiverContext, Intent intent) {
        if (!power.isDeviceIdleMode()) {
            wake.run();
        }
    }
}
