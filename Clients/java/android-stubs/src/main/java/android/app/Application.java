package android.app;

import android.content.ContextWrapper;
import android.os.Bundle;

public class Application extends ContextWrapper {
    public interface ActivityLifecycleCallbacks {
        void onActivityCreated(Activity activity, Bundle state);

        void onActivityStarted(Activity activity);

        void onActivityResumed(Activity activity);

        void onActivityPaused(Activity activity);

        void onActivityStopped(Activity activity);

        void onActivitySaveInstanceState(Activity activity, Bundle state);

        void onActivityDestroyed(Activity activity);
    }

    public ActivityLifecycleCallbacks callbacks;

    public Application() {
        super(null);
    }

    public void onCreate() {}

    public void registerActivityLifecycleCallbacks(ActivityLifecycleCallbacks newCallbacks) {
        callbacks = newCallbacks;
    }

    public void unregisterActivityLifecycleCallbacks(ActivityLifecycleCallbacks oldCallbacks) {
        callbacks = null;
    }
}
