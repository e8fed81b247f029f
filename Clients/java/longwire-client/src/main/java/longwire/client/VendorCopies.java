package longwire.client;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;

/** The filter of messages that arrive twice: through a vendor and over the connection. */
final class VendorCopies {
    /** The result for a copy on the connection. */
    enum Copy {
        /** The app does not have the message. */
        NEW,
        /** The app has processed the message. */
        PROCESSED,
        /** The app has not decided on the vendor's copy yet, so this copy is held until the verdict. */
        HELD
    }

    private final RecentIds processed = new RecentIds();
    /**
     * The vendor's messages without a verdict, each with its copy on the connection or {@code null}. Guarded by this
     * object's monitor.
     */
    private final Map<Identifier, ReceivedMessage> open = new HashMap<>();

    void add(Identifier id) {
        processed.add(id);
    }

    void addAll(Collection<Identifier> ids) {
        processed.addAll(ids);
    }

    /** Returns whether the message has reached the app, with or without a verdict. */
    synchronized boolean isKnown(Identifier id) {
        return processed.contains(id) || open.containsKey(id);
    }

    /**
     * Records a vendor's message as passed to the app; returns false if the app has the message already.
     *
     * <p>It also returns false if too many messages have no verdict. The message then arrives over the connection.
     */
    synchronized boolean begin(Identifier id) {
        if (isKnown(id) || open.size() >= Limits.SEEN_COUNT) {
            return false;
        }
        open.put(id, null);
        return true;
    }

    /** Compares a copy on the connection with the messages from vendors. */
    synchronized Copy compare(ReceivedMessage message) {
        // Without this flag the vendor's copy was incomplete, so the app needs this one.
        if (!message.isCarriedByVendor) {
            return Copy.NEW;
        }
        if (open.containsKey(message.messageId)) {
            open.put(message.messageId, message);
            return Copy.HELD;
        }
        return processed.contains(message.messageId) ? Copy.PROCESSED : Copy.NEW;
    }

    /** Records the verdict on a vendor's message; returns its held copy on the connection, or {@code null}. */
    synchronized ReceivedMessage end(Identifier id, boolean isProcessed) {
        if (isProcessed) {
            add(id);
        }
        return open.remove(id);
    }
}
