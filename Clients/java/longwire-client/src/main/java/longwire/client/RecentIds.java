package longwire.client;

import java.util.Collection;
import java.util.Iterator;
import java.util.LinkedHashSet;

/** The most recently added ids, at most {@code Limits.SEEN_COUNT}. */
final class RecentIds {
    /** The ids, oldest first; guarded by this object's monitor. */
    private final LinkedHashSet<Identifier> ids = new LinkedHashSet<>();

    synchronized void add(Identifier id) {
        if (ids.add(id) && ids.size() > Limits.SEEN_COUNT) {
            Iterator<Identifier> oldest = ids.iterator();
            oldest.next();
            oldest.remove();
        }
    }

    synchronized void addAll(Collection<Identifier> more) {
        for (Identifier id : more) {
            add(id);
        }
    }

    synchronized void clear() {
        ids.clear();
    }

    synchronized boolean contains(Identifier id) {
        return ids.contains(id);
    }
}
