package longwire.android;

import android.app.NotificationManager;
import android.content.Context;
import android.content.pm.PackageManager;
import android.os.Build;
import longwire.client.DeviceAttributes;

/** The attributes of an Android device. */
final class AndroidAttributes {
    private AndroidAttributes() {}

    static DeviceAttributes of(Context context) {
        NotificationManager manager = (NotificationManager) context.getSystemService(Context.NOTIFICATION_SERVICE);
        return DeviceAttributes.ofSystem().withPlatform(DeviceAttributes.Platform.ANDROID)
            .withBrand(Build.MANUFACTURER).withModel(Build.MODEL).withSystemVersion(Build.VERSION.RELEASE)
            .withAppVersion(appVersion(context))
            .withNotifications(manager == null ? null : (Boolean) manager.areNotificationsEnabled());
    }

    private static String appVersion(Context context) {
        try {
            return context.getPackageManager().getPackageInfo(context.getPackageName(), 0).versionName;
        } catch (PackageManager.NameNotFoundException error) {
            return "";
        }
    }
}
