package longwire.client;

import java.nio.charset.StandardCharsets;

/**
 * A device's push token from a vendor.
 *
 * <p>The vendor's SDK issues it; the gateway uses it while the device is not connected.
 */
public final class VendorToken {
    /** The vendor that issued a token. */
    public enum Channel {
        /** Apple. */
        APNS(0),
        /** Google's Firebase Cloud Messaging. */
        FCM(1),
        /** Huawei with EMUI or HarmonyOS up to 4. */
        HMS(2),
        /** HarmonyOS 5 and later. */
        HARMONY(3),
        /** Honor. */
        HONOR(4),
        /** Xiaomi and Redmi. */
        XIAOMI(5),
        /** OPPO, realme and OnePlus. */
        OPPO(6),
        /** vivo and iQOO. */
        VIVO(7),
        /** Meizu. */
        MEIZU(8),
        /** Web Push. */
        WEB_PUSH(9);

        private final int number;

        Channel(int number) {
            this.number = number;
        }

        int number() {
            return number;
        }
    }

    private final Channel channel;
    private final String token;
    private final String topic;

    /**
     * Creates a token.
     *
     * <p>Blanks and line ends around the token, for example of a copied text, are removed.
     *
     * @param channel the vendor
     * @param token the token in the vendor's form, 1 to 1,024 visible ASCII characters; empty to remove the channel's
     *     tokens
     * @param topic the app's package name, at most 255 visible ASCII characters; empty for the configured one
     * @throws IllegalArgumentException for a text that is too long or has other characters
     */
    public VendorToken(Channel channel, String token, String topic) {
        if (channel == null || token == null || topic == null) {
            throw new IllegalArgumentException(
                "a vendor token needs a channel, a token and a topic; use \"\" for none");
        }
        this.channel = channel;
        this.token = clean(token);
        this.topic = clean(topic);
        if (this.token.isEmpty() && !token.isEmpty()) {
            throw new IllegalArgumentException("the token has only blanks; use \"\" to remove the channel's tokens");
        }
        check("token", this.token, Limits.TOKEN_BYTE_COUNT);
        check("topic", this.topic, Limits.TOPIC_BYTE_COUNT);
        if (channel == Channel.WEB_PUSH && !this.token.isEmpty() && !isSubscription(this.token)) {
            throw new IllegalArgumentException("a Web Push token is not ENDPOINT#P256DH.AUTH with an https endpoint");
        }
    }

    /**
     * Creates a token of the configured topic.
     *
     * @param channel the vendor
     * @param token the token in the vendor's form; empty to remove the channel's tokens
     * @throws IllegalArgumentException for a text that is too long or has other characters
     */
    public VendorToken(Channel channel, String token) {
        this(channel, token, "");
    }

    private static String clean(String text) {
        StringBuilder kept = new StringBuilder(text.length());
        for (int index = 0; index < text.length(); index++) {
            char character = text.charAt(index);
            boolean isBracket = character == '<' || character == '>';
            if (!Character.isWhitespace(character) && !Character.isSpaceChar(character) && !isBracket) {
                kept.append(character);
            }
        }
        return kept.toString();
    }

    private static void check(String name, String text, int limit) {
        if (text.length() > limit) {
            throw new IllegalArgumentException("the " + name + " has more than " + limit + " characters");
        }
        for (int index = 0; index < text.length(); index++) {
            if (text.charAt(index) < 0x21 || text.charAt(index) > 0x7E) {
                throw new IllegalArgumentException("the " + name + " has characters other than visible ASCII");
            }
        }
    }

    private static boolean isSubscription(String text) {
        int hash = text.indexOf('#');
        String keys = text.substring(hash + 1);
        if (hash <= 8 || !text.startsWith("https://") || keys.length() != 110 || keys.charAt(87) != '.') {
            return false;
        }
        for (int index = 0; index < keys.length(); index++) {
            char character = keys.charAt(index);
            boolean isLetter = character >= 'a' && character <= 'z' || character >= 'A' && character <= 'Z';
            boolean isDigit = character >= '0' && character <= '9';
            if (index != 87 && !isLetter && !isDigit && character != '-' && character != '_') {
                return false;
            }
        }
        return true;
    }

    /**
     * Returns the vendor.
     *
     * @return the channel
     */
    public Channel channel() {
        return channel;
    }

    /**
     * Returns the token.
     *
     * @return the token, or an empty text that removes the channel's tokens
     */
    public String token() {
        return token;
    }

    /**
     * Returns the app's package name.
     *
     * @return the topic, or an empty text
     */
    public String topic() {
        return topic;
    }

    /** Whether setting {@code other} replaces or removes this token. */
    boolean isReplacedBy(VendorToken other) {
        return channel == other.channel && (topic.equals(other.topic) || other.token.isEmpty() || topic.isEmpty());
    }

    ProtoWriter encoded() {
        ProtoWriter out = new ProtoWriter();
        out.text(3, topic);
        out.text(4, token);
        out.number(5, channel.number());
        return out;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof VendorToken && ((VendorToken) other).channel == channel
            && ((VendorToken) other).token.equals(token) && ((VendorToken) other).topic.equals(topic);
    }

    @Override
    public int hashCode() {
        return 31 * (31 * channel.hashCode() + token.hashCode()) + topic.hashCode();
    }

    /** Returns the channel and the topic; the token stays out of logs. */
    @Override
    public String toString() {
        int count = token.getBytes(StandardCharsets.UTF_8).length;
        return channel + " token of " + count + " bytes" + (topic.isEmpty() ? "" : " for " + topic);
    }
}
