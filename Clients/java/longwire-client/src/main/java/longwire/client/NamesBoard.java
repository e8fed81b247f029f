package longwire.client;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The unanswered requests about names of one run. Each request is answered exactly once. */
final class NamesBoard {
    private final Set<Long> waiting = new LinkedHashSet<>();
    private boolean isClosed;

    /** Adds a request; returns false if the run has ended. */
    synchronized boolean add(long request) {
        return !isClosed && waiting.add(request);
    }

    /** Removes a request; returns false if the request was answered before. */
    synchronized boolean remove(long request) {
        return waiting.remove(request);
    }

    /** Ends the run, and returns the unanswered requests in the order of the calls. */
    synchronized List<Long> close() {
        isClosed = true;
        List<Long> rest = new ArrayList<>(waiting);
        waiting.clear();
        return rest;
    }
}
