package longwire.client;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;

/** The filter of messages that come twice: through a vendor and over the connection. */
final class VendorCopies {
    /** The result for a copy on the connection. */
    enum Copy {
        /** The app does not have the message. */
        NEW,
        /** The app has processed the message. */
        PROCESSED,
        /** The app has the vendor's copy without a verdict; this copy waits for the verdict. */
        HELD
    }

    private final RecentIds processed = new RecentIds();
    /**
     * The vendor's messages without a verdict, each with the copy on the connection or {@code null}; guarded by this
     * object's monitor.
     */
    private final Map<Identifier, ReceivedMessage> open = new HashMap<>();

    void add(Identifier id) {
        processed.add(id);
    }

    void addAll(Collection<Identifier> ids) {
        processed.addAll(ids);
    }

    /** Whether the app has the message, with or without a verdict. */
    synchronized boolean isKnown(Identifier id) {
        return processed.contains(id) || open.containsKey(id);
    }

    /**
     * Begins the app's work on a vendor's message; returns false when the app has the message already.
     *
     * <p>It also returns false when too many messages are without a verdict. The connection brings the message then.
     */
    synchronized boolean begin(Identifier id) {
        if (isKnown(id) || open.size() >= Limits.SEEN_COUNT) {
            return false;
        }
        open.put(id, null);
        return true;
    }

    /** Compares a copy on the connection with the vendor's one. */
    synchronized Copy compare(ReceivedMessage message) {
        // Without this flag the vendor's copy lacked a part of the message.
        if (!message.isCarriedByVendor) {
            return Copy.NEW;
        }
        if (open.containsKey(message.messageId)) {
            open.put(message.messageId, message);
            return Copy.HELD;
        }
        return processed.contains(message.messageId) ? Copy.PROCESSED : Copy.NEW;
    }

    /** Ends the app's work on a vendor's message; returns the copy on the connection that waited, or {@code null}. */
    synchronized ReceivedMessage end(Identifier id, boolean isProcessed) {
        if (isProcessed) {
            add(id);
        }
        return open.remove(id);
    }
}
