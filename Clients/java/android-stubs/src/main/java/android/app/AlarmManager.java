package android.app;

public class AlarmManager {
    public static final int ELAPSED_REALTIME_WAKEUP = 2;

    public long at = -1;
    public int count;

    public void setAndAllowWhileIdle(int type, long time, PendingIntent operation) {
        at = time;
        count++;
    }

    public void cancel(PendingIntent operation) {
        at = -1;
    }
}
