package longwire.android;

import android.app.AlarmManager;
import android.app.Application;
import android.app.NotificationManager;
import android.content.BroadcastReceiver;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.IntentFilter;
import android.content.ServiceConnection;
import android.content.pm.ApplicationInfo;
import android.content.pm.PackageInfo;
import android.content.pm.PackageManager;
import android.net.ConnectivityManager;
import android.os.Bundle;
import android.os.PowerManager;
import java.io.File;
import java.util.HashMap;
import java.util.Map;

/** A context with the stubs' services, for one app. */
public final class FakePhone extends Context {
    /** The app. */
    public static final class App extends Application {
        App(Context base) {
            attachBaseContext(base);
        }
    }

    public final App app = new App(this);
    public final AlarmManager alarms = new AlarmManager();
    public final PowerManager power = new PowerManager();
    public final ConnectivityManager connectivity = new ConnectivityManager();
    public final NotificationManager notifications = new NotificationManager();
    public final Map<String, BroadcastReceiver> receivers = new HashMap<>();
    public final Bundle metaData = new Bundle();
    public Intent bound;
    private final File folder;

    public FakePhone(File folder) {
        this.folder = folder;
    }

    @Override
    public Context getApplicationContext() {
        return app;
    }

    @Override
    public String getPackageName() {
        return "com.example.app";
    }

    @Override
    public PackageManager getPackageManager() {
        return new PackageManager() {
            @Override
            public ApplicationInfo getApplicationInfo(String packageName, int flags) {
                ApplicationInfo info = new ApplicationInfo();
                info.metaData = metaData;
                return info;
            }

            @Override
            public PackageInfo getPackageInfo(String packageName, int flags) {
                PackageInfo info = new PackageInfo();
                info.versionName = "2.7.0";
                return info;
            }

            @Override
            public Intent getLaunchIntentForPackage(String packageName) {
                return new Intent("main");
            }
        };
    }

    @Override
    public File getNoBackupFilesDir() {
        return folder;
    }

    @Override
    public Object getSystemService(String name) {
        switch (name) {
            case ALARM_SERVICE: return alarms;
            case POWER_SERVICE: return power;
            case CONNECTIVITY_SERVICE: return connectivity;
            default: return notifications;
        }
    }

    @Override
    public synchronized Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter) {
        receivers.put(filter.actions.get(0), receiver);
        return null;
    }

    @Override
    public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter, int flags) {
        return registerReceiver(receiver, filter);
    }

    @Override
    public synchronized void unregisterReceiver(BroadcastReceiver receiver) {
        receivers.values().remove(receiver);
    }

    @Override
    public boolean bindService(Intent service, ServiceConnection connection, int flags) {
        bound = service;
        return true;
    }

    @Override
    public ComponentName startForegroundService(Intent service) {
        throw new IllegalStateException("the app is in the background");
    }
}
