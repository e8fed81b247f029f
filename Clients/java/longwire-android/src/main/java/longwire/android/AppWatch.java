package longwire.android;

import android.app.Activity;
import android.app.Application;
import android.os.Bundle;

/** Follows the app's activities: visible ones make the app a foreground app, and their intents may be taps. */
final class AppWatch implements Application.ActivityLifecycleCallbacks {
    private LongwireDevice device;
    private int startedCount;

    /** Reports to this device from now on, in place of an earlier one whose settings were refused. */
    void follow(LongwireDevice newDevice, Application application) {
        boolean isFirst = device == null;
        device = newDevice;
        if (isFirst) {
            application.registerActivityLifecycleCallbacks(this);
        } else if (startedCount > 0) {
            device.setVisible(true);
        }
    }

    @Override
    public void onActivityCreated(Activity activity, Bundle state) {
        device.handleTap(activity.getIntent());
    }

    @Override
    public void onActivityStarted(Activity activity) {
        startedCount++;
        if (startedCount == 1) {
            device.setVisible(true);
        }
    }

    @Override
    public void onActivityResumed(Activity activity) {
        // After `setIntent` in `onNewIntent`.
        device.handleTap(activity.getIntent());
    }

    @Override
    public void onActivityPaused(Activity activity) {}

    @Override
    public void onActivityStopped(Activity activity) {
        startedCount--;
        if (startedCount == 0) {
            device.setVisible(false);
        }
    }

    @Override
    public void onActivitySaveInstanceState(Activity activity, Bundle state) {}

    @Override
    public void onActivityDestroyed(Activity activity) {}
}
