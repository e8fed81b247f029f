package longwire.client;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The requests about names of one run that have no answer yet, so that each gets exactly one. */
final class NamesBoard {
    private final Set<Long> waiting = new LinkedHashSet<>();
    private boolean isClosed;

    /** Returns false when the run has ended. */
    synchronized boolean add(long request) {
        return !isClosed && waiting.add(request);
    }

    /** Returns false when the request has been answered. */
    synchronized boolean remove(long request) {
        return waiting.remove(request);
    }

    /** Ends the run, and returns the requests without an answer in the order of the calls. */
    synchronized List<Long> close() {
        isClosed = true;
        List<Long> rest = new ArrayList<>(waiting);
        waiting.clear();
        return rest;
    }
}
