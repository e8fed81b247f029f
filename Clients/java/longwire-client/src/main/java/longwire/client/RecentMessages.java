package longwire.client;

import java.util.Collection;
import java.util.Iterator;
import java.util.LinkedHashSet;

/** The ids of the messages that reached the app last, through the connection or through a vendor. */
final class RecentMessages {
    /** The ids, oldest first; guarded by this object's monitor. */
    private final LinkedHashSet<Identifier> ids = new LinkedHashSet<>();

    /** Returns false when the id is already in the list. */
    synchronized boolean add(Identifier id) {
        if (!ids.add(id)) {
            return false;
        }
        if (ids.size() > Limits.SEEN_COUNT) {
            Iterator<Identifier> oldest = ids.iterator();
            oldest.next();
            oldest.remove();
        }
        return true;
    }

    synchronized void addAll(Collection<Identifier> more) {
        for (Identifier id : more) {
            add(id);
        }
    }
}
