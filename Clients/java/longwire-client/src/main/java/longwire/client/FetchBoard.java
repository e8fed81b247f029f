package longwire.client;

import java.util.ArrayList;
import java.util.List;

/** The callers of {@code fetch} that wait for the end. */
final class FetchBoard {
    /** A function that makes a callback on the app's executor. */
    interface Caller {
        void call(Event event);
    }

    private List<FetchCallback> waiting = new ArrayList<>();

    /** Returns false when too many callers wait. */
    synchronized boolean add(FetchCallback callback) {
        return waiting.size() < Limits.FETCH_COUNT && waiting.add(callback);
    }

    synchronized void remove(FetchCallback callback) {
        waiting.remove(callback);
    }

    void end(FetchResult result, Caller caller) {
        List<FetchCallback> ended;
        synchronized (this) {
            ended = waiting;
            waiting = new ArrayList<>();
        }
        for (FetchCallback callback : ended) {
            caller.call(listener -> callback.fetched(result));
        }
    }
}
