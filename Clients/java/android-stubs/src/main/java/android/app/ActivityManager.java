package android.app;

public class ActivityManager {
    /** The importance that the stub reports; a test changes it. */
    public static volatile int importance = RunningAppProcessInfo.IMPORTANCE_CACHED;

    private ActivityManager() {}

    public static class RunningAppProcessInfo {
        public static final int IMPORTANCE_FOREGROUND = 100;
        public static final int IMPORTANCE_CACHED = 400;
        public int importance;

        public RunningAppProcessInfo() {}
    }

    public static void getMyMemoryState(RunningAppProcessInfo outState) {
        outState.importance = importance;
    }
}
