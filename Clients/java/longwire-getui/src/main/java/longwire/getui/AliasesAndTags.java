package longwire.getui;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import longwire.client.LongwireClient;
import longwire.client.NamesAnswer;

/**
 * The commands for the device's alias and tags, which convert the gateway's codes to Getui's.
 *
 * <p>A command returns {@code PushConsts.SUCCESS} if it was submitted, and its result follows later. Otherwise it returns
 * the code of the failure, and no result follows.
 */
final class AliasesAndTags {
    /** A receiver of a command's result. */
    interface Done {
        void done(int code, List<String> tags);
    }

    /** The codes of docs/use/Errors.md, "DeviceNamesResult codes". */
    private static final int NOT_ALLOWED = 1;
    private static final int BAD_NAME = 2;
    private static final int TOO_MANY = 4;
    private static final int TOO_OFTEN = 100;
    private static final int BUSY = 102;
    private static final int STOPPED = (int) NamesAnswer.STOPPED;
    /** The maximum length of a name in the client. */
    private static final int NAME_BYTE_COUNT = 256;
    /** The bytes of the longest token of the app's server that the client takes. */
    static final int TOKEN_BYTE_COUNT = 2_048;

    private interface Receiver {
        void receive(NamesAnswer answer);
    }

    /** The receivers by the number of the request; guarded by the map's monitor. */
    private final Map<Long, Receiver> waiting = new HashMap<>();

    int bindAlias(LongwireClient client, String alias, Done done) {
        return changeAlias(client, isTooLong(alias), done, it -> it.bindAlias(alias, ""));
    }

    int bindAliasWithToken(LongwireClient client, String token, Done done) {
        boolean isTooLong = byteCount(token) > TOKEN_BYTE_COUNT;
        return changeAlias(client, isTooLong, done, it -> it.bindAliasWithToken(token));
    }

    /** Unbinds the alias from this device only. */
    int unbindAlias(LongwireClient client, String alias, Done done) {
        return changeAlias(client, isTooLong(alias), done, it -> it.unbindAlias(alias, ""));
    }

    private int changeAlias(
        LongwireClient client, boolean isTooLong, Done done, ToLongFunction<LongwireClient> call
    ) {
        if (isTooLong) {
            return PushConsts.ALIAS_INVALID;
        }
        if (submit(client, call, answer -> done.done(aliasCode(answer.code()), answer.tags()))) {
            return PushConsts.SUCCESS;
        }
        return client.isRunning() ? PushConsts.ALIAS_UNKNOWN_EXCEPTION : PushConsts.ALIAS_CONNECT_LOST;
    }

    int setTags(LongwireClient client, String[] tags, Done done) {
        for (String tag : tags) {
            if (isTooLong(tag)) {
                return PushConsts.SETTAG_TAG_ILLEGAL;
            }
        }
        return callTags(client, done, it -> it.setTags(Arrays.asList(tags)));
    }

    int queryTags(LongwireClient client, Done done) {
        return callTags(client, done, it -> it.queryNames(""));
    }

    private int callTags(LongwireClient client, Done done, ToLongFunction<LongwireClient> call) {
        if (submit(client, call, answer -> done.done(tagCode(answer.code()), answer.tags()))) {
            return PushConsts.SUCCESS;
        }
        return client.isRunning() ? PushConsts.SETTAG_ERROR_EXCEPTION : PushConsts.SETTAG_NOTONLINE;
    }

    private boolean submit(LongwireClient client, ToLongFunction<LongwireClient> call, Receiver receiver) {
        // The answer may arrive before the call returns. The monitor delays it until its receiver is registered.
        synchronized (waiting) {
            long request = call.applyAsLong(client);
            if (request != 0) {
                waiting.put(request, receiver);
            }
            return request != 0;
        }
    }

    void receive(NamesAnswer answer) {
        Receiver receiver;
        synchronized (waiting) {
            receiver = waiting.remove(answer.request());
        }
        // An answer without a receiver belongs to a request that the app made through the client itself.
        if (receiver != null) {
            receiver.receive(answer);
        }
    }

    private static boolean isTooLong(String name) {
        return byteCount(name) > NAME_BYTE_COUNT;
    }

    private static int byteCount(String text) {
        return text.getBytes(StandardCharsets.UTF_8).length;
    }

    static int aliasCode(long code) {
        switch ((int) code) {
            case 0: return PushConsts.SUCCESS;
            case NOT_ALLOWED: return PushConsts.ALIAS_REQUEST_FILTER;
            case BAD_NAME: return PushConsts.ALIAS_INVALID;
            case TOO_OFTEN:
            case BUSY: return PushConsts.ALIAS_ERROR_FREQUENCY;
            case STOPPED: return PushConsts.ALIAS_CONNECT_LOST;
            default: return PushConsts.ALIAS_UNKNOWN_EXCEPTION;
        }
    }

    static int tagCode(long code) {
        switch ((int) code) {
            case 0: return PushConsts.SUCCESS;
            case NOT_ALLOWED: return PushConsts.SETTAG_IN_BLACKLIST;
            case BAD_NAME: return PushConsts.SETTAG_TAG_ILLEGAL;
            case TOO_MANY: return PushConsts.SETTAG_ERROR_COUNT;
            case TOO_OFTEN: return PushConsts.SETTAG_ERROR_FREQUENCY;
            case STOPPED: return PushConsts.SETTAG_NOTONLINE;
            default: return PushConsts.SETTAG_ERROR_EXCEPTION;
        }
    }
}
