package android.content;

import java.io.File;
import android.content.pm.PackageManager;

public class ContextWrapper extends Context {
    private Context base;

    public ContextWrapper(Context base) {
        this.base = base;
    }

    protected void attachBaseContext(Context newBase) {
        base = newBase;
    }

    @Override
    public Context getApplicationContext() {
        return base.getApplicationContext();
    }

    @Override
    public String getPackageName() {
        return base.getPackageName();
    }

    @Override
    public PackageManager getPackageManager() {
        return base.getPackageManager();
    }

    @Override
    public File getNoBackupFilesDir() {
        return base.getNoBackupFilesDir();
    }

    @Override
    public Object getSystemService(String name) {
        return base.getSystemService(name);
    }

    @Override
    public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter) {
        return base.registerReceiver(receiver, filter);
    }

    @Override
    public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter, int flags) {
        return base.registerReceiver(receiver, filter, flags);
    }

    @Override
    public void unregisterReceiver(BroadcastReceiver receiver) {
        base.unregisterReceiver(receiver);
    }

    @Override
    public boolean bindService(Intent service, ServiceConnection connection, int flags) {
        return base.bindService(service, connection, flags);
    }

    @Override
    public ComponentName startForegroundService(Intent service) {
        return base.startForegroundService(service);
    }
}
