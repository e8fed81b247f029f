package longwire.android;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import longwire.client.Identifier;
import longwire.client.LongwireException;
import longwire.client.StateStore;

/**
 * The check that an intent is a genuine tap, because any app can start an exported activity with a forged intent.
 *
 * <p>Intents of this library have a seal: an HMAC with a key that never leaves the app. A vendor's intent has no seal, so
 * its message must have arrived.
 */
final class TapCheck {
    /** The name of the intent's extra with the seal. */
    static final String SEAL_KEY = "longwire.seal";
    private static final int KEY_BYTE_COUNT = 32;
    private static final int RECEIVED_COUNT = 256;
    private static final int WAITING_COUNT = 16;

    private final byte[] key;
    /** The most recently received messages; guarded by this object's monitor. */
    private final Map<Identifier, Boolean> received = new Recent<>(RECEIVED_COUNT);
    /** The tapped messages that have not arrived yet; guarded by this object's monitor. */
    private final Map<Identifier, Boolean> waiting = new Recent<>(WAITING_COUNT);

    private static final class Recent<Value> extends LinkedHashMap<Identifier, Value> {
        private static final long serialVersionUID = 1;
        private final int limit;

        Recent(int limit) {
            this.limit = limit;
        }

        @Override
        protected boolean removeEldestEntry(Map.Entry<Identifier, Value> eldest) {
            return size() > limit;
        }
    }

    TapCheck(StateStore store) {
        key = key(store);
    }

    /** Reads the key, or creates one. A key that cannot be stored is used until the process ends. */
    private static byte[] key(StateStore store) {
        byte[] fresh = new byte[KEY_BYTE_COUNT];
        new SecureRandom().nextBytes(fresh);
        try {
            byte[] stored = store.load();
            if (stored != null && stored.length == KEY_BYTE_COUNT) {
                return stored;
            }
            store.save(fresh);
        } catch (LongwireException error) {
            // Taps of notifications that outlive the process then count only after their messages have arrived.
            return fresh;
        }
        return fresh;
    }

    /** Returns the seal of an intent's values. */
    String seal(String ids, String payload) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            byte[] digest = mac.doFinal((ids + "\n" + payload).getBytes(StandardCharsets.UTF_8));
            StringBuilder hex = new StringBuilder(2 * digest.length);
            for (byte part : digest) {
                hex.append(Character.forDigit(part >> 4 & 15, 16)).append(Character.forDigit(part & 15, 16));
            }
            return hex.toString();
        } catch (GeneralSecurityException error) {
            // Not reached: every version of Android has HmacSHA256.
            throw new IllegalStateException("this system has no HmacSHA256", error);
        }
    }

    boolean isSealed(String ids, String payload, String seal) {
        return seal != null && MessageDigest.isEqual(
            seal(ids, payload).getBytes(StandardCharsets.UTF_8), seal.getBytes(StandardCharsets.UTF_8));
    }

    /** Returns whether the message has arrived over the connection; if not, records the tap until it arrives. */
    synchronized boolean isReceivedOrWaits(Identifier id) {
        if (received.containsKey(id)) {
            return true;
        }
        waiting.put(id, true);
        return false;
    }

    /** Records a message of the connection; returns whether a tap was waiting for it. */
    synchronized boolean receive(Identifier id) {
        received.put(id, true);
        return waiting.remove(id) != null;
    }
}
