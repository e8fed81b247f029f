package android.os;

public class PowerManager {
    public static final String ACTION_DEVICE_IDLE_MODE_CHANGED = "android.os.action.DEVICE_IDLE_MODE_CHANGED";
    public static final int PARTIAL_WAKE_LOCK = 1;

    public boolean isIdle;
    public long lockedFor;

    public class WakeLock {
        public void acquire(long milliseconds) {
            lockedFor = milliseconds;
        }
    }

    public boolean isDeviceIdleMode() {
        return isIdle;
    }

    public WakeLock newWakeLock(int level, String tag) {
        return new WakeLock();
    }
}
