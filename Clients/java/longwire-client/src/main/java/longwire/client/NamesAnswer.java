package longwire.client;

import java.util.Collections;
import java.util.List;

/** An answer to a request about the device's own alias and tags. */
public final class NamesAnswer {
    /** The client's own code for a request that its stop ended. The change may have been made; a repeat is harmless. */
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
     * @return 0 for success; below 100 the request is refused permanently, and from 100 on the app may repeat it later.
     *     {@link #STOPPED} always comes from the client itself, and 102 sometimes.
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
     * Returns the alias that a query has found.
     *
     * @return the device's alias of the type in the query, or an empty text
     */
    public String alias() {
        return alias;
    }

    /**
     * Returns the tags that a query has found.
     *
     * @return the device's tags, a list that cannot be changed
     */
    public List<String> tags() {
        return tags;
    }
}
