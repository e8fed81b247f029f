package longwire.client;

import java.util.Collections;
import java.util.List;

/** An answer to a request about the device's own alias and tags. */
public final class NamesAnswer {
    /** The code of a request that was unanswered when the client stopped. The gateway may have made the change. */
    public static final long STOPPED = 1_000;

    private final long request;
    private final long code;
    private final String reason;
    private final String alias;
    private final List<String> tags;

    NamesAnswer(long request, long code, String reason, String alias, List<String> tags) {
        this.request = request;
        this.code = code;
        this.reason = reason;
        this.alias = alias;
        this.tags = Collections.unmodifiableList(tags);
    }

    static NamesAnswer busy(long request) {
        return failed(
            request, Limits.BUSY_CODE,
            Limits.NAMES_COUNT + " requests about names wait for the gateway already; call again later");
    }

    static NamesAnswer stopped(long request) {
        return failed(request, STOPPED, "the client has stopped; start it and call again");
    }

    private static NamesAnswer failed(long request, long code, String reason) {
        return new NamesAnswer(request, code, reason, "", Collections.emptyList());
    }

    /**
     * Returns the number of the request.
     *
     * @return the number that the call returned
     */
    public long request() {
        return request;
    }

    /**
     * Returns the result (docs/use/Errors.md, "DeviceNamesResult codes").
     *
     * @return 0 for success. A code below 100 is a permanent refusal. From 100 on, the app may repeat the request later.
     *     The client itself reports {@link #STOPPED}, and 102 if its queue is full.
     */
    public long code() {
        return code;
    }

    /**
     * Returns the reason for a failure.
     *
     * @return a text in English, or an empty text
     */
    public String reason() {
        return reason;
    }

    /**
     * Returns the alias from a query.
     *
     * @return the device's alias of the type in the query, or an empty text
     */
    public String alias() {
        return alias;
    }

    /**
     * Returns the tags from a query.
     *
     * @return the device's tags, as an unmodifiable list
     */
    public List<String> tags() {
        return tags;
    }
}
