package android.os;

import java.util.concurrent.Executor;

/** A stub that runs posted tasks on an executor, by default at once, and keeps delayed tasks for a test. */
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
