package android.content.pm;

import android.content.Intent;

public abstract class PackageManager {
    public static final int GET_META_DATA = 128;

    public static class NameNotFoundException extends Exception {
        private static final long serialVersionUID = 1;
    }

    public abstract ApplicationInfo getApplicationInfo(String packageName, int flags) throws NameNotFoundException;

    public abstract PackageInfo getPackageInfo(String packageName, int flags) throws NameNotFoundException;

    public abstract Intent getLaunchIntentForPackage(String packageName);
}
