package android.content;

import java.io.File;
import android.content.pm.PackageManager;

public abstract class Context {
    public static final int BIND_AUTO_CREATE = 1;
    public static final String CONNECTIVITY_SERVICE = "connectivity";
    public static final String POWER_SERVICE = "power";
    public static final String ALARM_SERVICE = "alarm";
    public static final String NOTIFICATION_SERVICE = "notification";
    public static final int RECEIVER_NOT_EXPORTED = 4;

    public abstract Context getApplicationContext();

    public abstract String getPackageName();

    public abstract PackageManager getPackageManager();

    public abstract File getNoBackupFilesDir();

    public abstract Object getSystemService(String name);

    public abstract Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter);

    public abstract Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter, int flags);

    public abstract void unregisterReceiver(BroadcastReceiver receiver);

    public abstract boolean bindService(Intent service, ServiceConnection connection, int flags);

    public abstract ComponentName startForegroundService(Intent service);
}
