package longwire.client;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;

/** A request about the device's own alias and tags. */
final class NamesRequest {
    /** The maximum number of a request, because the field has 32 bits. */
    static final long GREATEST_NUMBER = 0xFFFF_FFFFL;
    /** The number of the client's own request, which binds the alias of the registration token. */
    static final long OWN_NUMBER = 0;

    enum Operation {
        QUERY(0), BIND_ALIAS(1), UNBIND_ALIAS(2), SET_TAGS(3), ADD_TAGS(4), REMOVE_TAGS(5);

        private final int number;

        Operation(int number) {
            this.number = number;
        }

        int number() {
            return number;
        }
    }

    final long request;
    final Operation operation;
    final String alias;
    final String aliasType;
    final List<String> tags;
    /** A token of the app's server whose alias is bound, or an empty text. */
    final String token;

    NamesRequest(long request, Operation operation, String alias, String aliasType, List<String> tags) {
        this(request, operation, alias, aliasType, tags, "");
    }

    private NamesRequest(
        long request, Operation operation, String alias, String aliasType, List<String> tags, String token
    ) {
        this.request = request;
        this.operation = operation;
        this.alias = alias;
        this.aliasType = aliasType;
        this.tags = tags;
        this.token = token;
    }

    static NamesRequest ofToken(long request, String token) {
        return new NamesRequest(request, Operation.BIND_ALIAS, "", "", Collections.emptyList(), token);
    }

    boolean changesAlias() {
        return operation == Operation.BIND_ALIAS || operation == Operation.UNBIND_ALIAS;
    }

    /** Whether the request fits the protocol. A gateway refuses requests above its own, lower limits with a reason. */
    boolean isWithinLimits() {
        if (tags.size() > Limits.TAG_COUNT || !isShort(alias) || !isShort(aliasType) || !isServerToken(token)) {
            return false;
        }
        int byteCount = byteCount(alias) + byteCount(aliasType);
        for (String tag : tags) {
            if (!isShort(tag)) {
                return false;
            }
            byteCount += byteCount(tag);
        }
        return byteCount <= Limits.NAMES_BYTE_COUNT;
    }

    /** Whether a gateway can read the token of the app's server; an empty one stands for none. */
    static boolean isServerToken(String token) {
        return token != null && byteCount(token) <= Limits.SERVER_TOKEN_BYTE_COUNT;
    }

    private static boolean isShort(String name) {
        return byteCount(name) <= Limits.NAME_BYTE_COUNT;
    }

    private static int byteCount(String name) {
        return name.getBytes(StandardCharsets.UTF_8).length;
    }
}
