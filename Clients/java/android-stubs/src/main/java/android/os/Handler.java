package android.os;

/** A stub that runs posted tasks at once, and keeps delayed ones for a test. */
public class Handler {
    public Runnable delayed;

    public Handler(Looper looper) {}

    public final boolean post(Runnable task) {
        task.run();
        return true;
    }

    public final boolean postDelayed(Runnable task, long milliseconds) {
        delayed = task;
        return true;
    }
}
