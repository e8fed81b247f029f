package longwire.android;

import android.app.Activity;
import android.app.ActivityManager;
import android.app.Application;
import android.os.Bundle;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;

/**
 * Follows the app's activities: visible ones make the app a foreground app, and their intents may be taps.
 *
 * <p>The device may be started while activities are visible already. The system does not report their start.
 */
final class AppWatch implements Application.ActivityLifecycleCallbacks {
    private final Set<Activity> started = Collections.newSetFromMap(new IdentityHashMap<>());
    private LongwireDevice device;
    private volatile boolean isVisible = isProcessInForeground();

    private static boolean isProcessInForeground() {
        ActivityManager.RunningAppProcessInfo process = new ActivityManager.RunningAppProcessInfo();
        ActivityManager.getMyMemoryState(process);
        return process.importance == ActivityManager.RunningAppProcessInfo.IMPORTANCE_FOREGROUND;
    }

    boolean isVisible() {
        return isVisible;
    }

    /** Reports to this device from now on, in place of an earlier one whose settings were refused. */
    void follow(LongwireDevice newDevice, Application application) {
        boolean isFirst = device == null;
        device = newDevice;
        if (isFirst) {
            application.registerActivityLifecycleCallbacks(this);
        } else {
            device.setVisible(isVisible);
        }
    }

    private void add(Activity activity) {
        started.add(activity);
        if (!isVisible) {
            isVisible = true;
            device.setVisible(true);
        }
    }

    private void remove(Activity activity) {
        started.remove(activity);
        if (isVisible && started.isEmpty()) {
            isVisible = false;
            device.setVisible(false);
        }
    }

    @Override
    public void onActivityCreated(Activity activity, Bundle state) {
        device.handleTap(activity.getIntent());
    }

    @Override
    public void onActivityStarted(Activity activity) {
        add(activity);
    }

    @Override
    public void onActivityResumed(Activity activity) {
        // The activity may have been visible before the start of the device.
        add(activity);
        // After `setIntent` in `onNewIntent`.
        device.handleTap(activity.getIntent());
    }

    @Override
    public void onActivityPaused(Activity activity) {}

    @Override
    public void onActivityStopped(Activity activity) {
        remove(activity);
    }

    @Override
    public void onActivitySaveInstanceState(Activity activity, Bundle state) {}

    @Override
    public void onActivityDestroyed(Activity activity) {
        // An activity that finishes while it is created is never started or stopped.
        remove(activity);
    }
}
