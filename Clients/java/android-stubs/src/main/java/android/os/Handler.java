package android.os;

import java.util.concurrent.Executor;

/** A stub that gives posted tasks to an executor, by default at once, and keeps delayed ones for a test. */
public class Handler {
    public static volatile Executor executor = Runnable::run;
    public Runnable delayed;

    public Handler(Looper looper) {}

    public final boolean post(Runnable task) {
        executor.execute(task);
        return true;
    }

    public final boolean postDelayed(Runnable task, long milliseconds) {
        delayed = task;
        return true;
    }
}
