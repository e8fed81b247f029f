package longwire.client;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** The proof of a Hello, and the random bytes that the client needs. */
final class Handshake {
    private static final byte[] LABEL = "longwire hello 1".getBytes(StandardCharsets.US_ASCII);

    private Handshake() {}

    /** Returns HMAC-SHA256 over the label and the body without its proof. */
    static byte[] proof(byte[] key, byte[] body) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            mac.update(LABEL);
            return mac.doFinal(body);
        } catch (GeneralSecurityException error) {
            // Each Java runtime and each Android version has HmacSHA256, and accepts a key that is not empty.
            throw new IllegalStateException("this Java runtime has no HmacSHA256", error);
        }
    }

    static byte[] randomBytes(int count) {
        byte[] bytes = new byte[count];
        new SecureRandom().nextBytes(bytes);
        return bytes;
    }
}
