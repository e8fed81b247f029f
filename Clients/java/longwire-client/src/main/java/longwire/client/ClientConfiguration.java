package longwire.client;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Executor;

/**
 * The settings of a client; {@link LongwireClient#start} checks them.
 *
 * <p>The client copies the configuration when it is created. Later changes to this object have no effect.
 */
public final class ClientConfiguration implements Cloneable {
    private final String host;
    private final int port;
    private final String appId;
    private String appSecret = "";
    private String registrationToken = "";
    private boolean usesTls = true;
    private File trustedCertificates;
    private List<byte[]> pinnedCertificates = Collections.emptyList();
    private String clientName = "longwire-java/1";
    private long heartbeatSeconds;
    private long window;
    private ApplicationState applicationState = ApplicationState.FOREGROUND;
    private boolean keepsRunning;
    private Integer badge;
    private List<VendorToken> tokens = new ArrayList<>();
    private DeviceAttributes attributes = DeviceAttributes.ofSystem();
    private boolean replaysOpened;
    private boolean reconnects = true;
    private Executor executor;
    private ClientClock clock = ClientClock.SYSTEM;
    private Wakeups wakeups;
    private long firstDelay = Limits.BACKOFF_BASE;
    private long greatestDelay = Limits.BACKOFF_CAP;
    private long namesTime = Limits.NAMES_TIME;
    /** The last value of {@link LongwireClient#setPushModeOff}, or {@code null}. */
    private Boolean isPushModeOff;

    /**
     * Creates the settings of a connection over TLS.
     *
     * @param host the gateway's host name, or a numeric address
     * @param port the gateway's device port
     * @param appId the id of the app at the gateway
     */
    public ClientConfiguration(String host, int port, String appId) {
        this.host = host;
        this.port = port;
        this.appId = appId;
    }

    ClientConfiguration copy() {
        try {
            ClientConfiguration copy = (ClientConfiguration) clone();
            // All other values are immutable, or they are objects of the app.
            copy.tokens = new ArrayList<>(tokens);
            return copy;
        } catch (CloneNotSupportedException error) {
            throw new IllegalStateException("this class is cloneable", error);
        }
    }

    /**
     * Sets the app's secret, which is needed only until the device is registered.
     *
     * @param secret the appSecret
     * @return this
     */
    public ClientConfiguration setAppSecret(String secret) {
        appSecret = secret;
        return this;
    }

    /**
     * Sets a token of the app's server, which registers the device without an appSecret.
     *
     * <p>After each start the client also binds the alias in the token's {@code sub}, unless the app binds or unbinds
     * an alias itself. For a later start or user: {@link LongwireClient#setRegistrationToken}, {@link
     * LongwireClient#bindAliasWithToken}.
     *
     * @param token a JSON Web Token with the appId in {@code aud} and an end in {@code exp}, at most 2,048 bytes; an
     *     empty text for none
     * @return this
     */
    public ClientConfiguration setRegistrationToken(String token) {
        registrationToken = token;
        return this;
    }

    /**
     * Turns TLS on or off; it is on by default.
     *
     * <p>A gateway rejects the registration of a remote device without TLS, unless the gateway's configuration allows it.
     *
     * @param isUsed false for plain TCP in a trusted network
     * @return this
     */
    public ClientConfiguration setTls(boolean isUsed) {
        usesTls = isUsed;
        return this;
    }

    /**
     * Sets a PEM file of trusted certificates that replaces the system's, for a gateway with a self-signed or private
     * certificate.
     *
     * @param file the file, or {@code null} for the system's certificates
     * @return this
     */
    public ClientConfiguration setTrustedCertificates(File file) {
        trustedCertificates = file;
        return this;
    }

    /**
     * Sets the SHA-256 digests of pinned certificates (DER).
     *
     * <p>The usual verification still applies. In addition, one certificate of the verified chain must have one of
     * these digests. Pin the authority's certificate and a spare one: the gateway's own certificate is renewed more
     * often than apps are updated.
     *
     * @param digests 32 bytes each; none disables pinning
     * @return this
     */
    public ClientConfiguration setPinnedCertificates(byte[]... digests) {
        List<byte[]> copies = new ArrayList<>();
        for (byte[] digest : digests) {
            copies.add(digest.clone());
        }
        pinnedCertificates = copies;
        return this;
    }

    /**
     * Sets the product and version for the gateway's logs.
     *
     * @param name up to 64 bytes of UTF-8
     * @return this
     */
    public ClientConfiguration setClientName(String name) {
        clientName = name;
        return this;
    }

    /**
     * Sets the requested heartbeat.
     *
     * @param seconds 30 to 1800, or 0 for the gateway's default
     * @return this
     */
    public ClientConfiguration setHeartbeatSeconds(long seconds) {
        heartbeatSeconds = seconds;
        return this;
    }

    /**
     * Sets the requested maximum of un-acked messages in flight.
     *
     * @param messages the maximum, or 0 for the gateway's default
     * @return this
     */
    public ClientConfiguration setWindow(long messages) {
        window = messages;
        return this;
    }

    /**
     * Sets the state of the app that the first Hello reports.
     *
     * @param state the state
     * @param isKeptRunning whether the app keeps its socket open in the background; the device is then reachable there
     * @return this
     */
    public ClientConfiguration setApplicationState(ApplicationState state, boolean isKeptRunning) {
        applicationState = state;
        keepsRunning = isKeptRunning;
        return this;
    }

    /**
     * Sets the badge number that the gateway continues from.
     *
     * @param number the badge, or {@code null} to leave the gateway's number unchanged
     * @return this
     */
    public ClientConfiguration setBadge(Integer number) {
        badge = number;
        return this;
    }

    /**
     * Adds a vendor token of this device, or replaces the one of the same channel.
     *
     * @param token the token; an empty one removes the channel's tokens from this configuration. {@link
     *     LongwireClient#setToken} removes them at the gateway.
     * @return this
     */
    public ClientConfiguration setToken(VendorToken token) {
        tokens.removeIf(other -> other.isReplacedBy(token));
        if (!token.token().isEmpty()) {
            tokens.add(token);
            if (tokens.size() > Limits.TOKEN_COUNT) {
                tokens.remove(0);
            }
        }
        return this;
    }

    /**
     * Sets the attributes of the device, in place of {@link DeviceAttributes#ofSystem}.
     *
     * @param values the attributes, or {@code null} to send none
     * @return this
     */
    public ClientConfiguration setAttributes(DeviceAttributes values) {
        attributes = values;
        return this;
    }

    /**
     * Sets whether messages that the user opened from a notification are delivered over the connection as well, as
     * Getui does.
     *
     * @param isReplayed false by default
     * @return this
     */
    public ClientConfiguration setReplaysOpened(boolean isReplayed) {
        replaysOpened = isReplayed;
        return this;
    }

    /**
     * Sets whether the client reconnects.
     *
     * @param isReconnecting if false, the client stops when its first connection ends, for any reason
     * @return this
     */
    public ClientConfiguration setReconnects(boolean isReconnecting) {
        reconnects = isReconnecting;
        return this;
    }

    /**
     * Sets the executor of the callbacks.
     *
     * @param serial an executor that runs one task at a time and in order, such as {@code
     *     Executors.newSingleThreadExecutor()} or an Android {@code Handler::post}; {@code null}, the default, stands
     *     for the client's own thread
     * @return this
     */
    public ClientConfiguration setExecutor(Executor serial) {
        executor = serial;
        return this;
    }

    /**
     * Sets the clocks.
     *
     * @param source the clocks; {@link ClientClock#SYSTEM} by default
     * @return this
     */
    public ClientConfiguration setClock(ClientClock source) {
        clock = source;
        return this;
    }

    /**
     * Sets a receiver of the times when the client must run, for a system whose processor sleeps.
     *
     * @param receiver the receiver, or {@code null} for a system whose threads always wake
     * @return this
     */
    public ClientConfiguration setWakeups(Wakeups receiver) {
        wakeups = receiver;
        return this;
    }

    /**
     * Sets the bounds of the reconnect delays, for tests. The protocol's are 1 s and 120 s.
     *
     * @param first the longest first delay, in milliseconds
     * @param greatest the longest delay, in milliseconds
     * @return this
     */
    public ClientConfiguration setReconnectDelays(long first, long greatest) {
        firstDelay = first;
        greatestDelay = greatest;
        return this;
    }

    /** Sets the wait for the result of a request about names, for tests. */
    void setNamesTime(long milliseconds) {
        namesTime = milliseconds;
    }

    void setPushModeOff(boolean isOff) {
        isPushModeOff = isOff;
    }

    /** Throws {@code BAD_CONFIGURATION} for the first invalid value, and names the value. */
    void validate() throws LongwireException {
        check(host != null && !host.isEmpty(), "the host is empty");
        check(port > 0 && port <= 65_535, "the port is " + port + "; name the gateway's device port");
        check(appId != null && !appId.isEmpty(), "the appId is empty");
        check(byteCount(appId) <= Limits.APP_ID_BYTE_COUNT, "the appId is longer than 64 bytes");
        check(appSecret != null, "the appSecret is null; use \"\" for a registered device");
        check(NamesRequest.isServerToken(registrationToken),
            "the registrationToken is null or longer than " + Limits.SERVER_TOKEN_BYTE_COUNT + " bytes");
        check(clientName != null && byteCount(clientName) <= Limits.CLIENT_NAME_BYTE_COUNT,
            "the client name is missing or longer than 64 bytes");
        check(heartbeatSeconds == 0 || isHeartbeat(heartbeatSeconds),
            "the heartbeat is " + heartbeatSeconds + " s; it must be 0 or 30 to 1800");
        check(window >= 0 && window <= Integer.MAX_VALUE, "the window is " + window + "; it must not be negative");
        check(applicationState != null, "the application state is null");
        check(clock != null, "the clock is null");
        check(firstDelay > 0 && greatestDelay >= firstDelay && greatestDelay <= Limits.RETRY_WINDOW,
            "the reconnect delays must be positive, at most an hour, and the first one must not be above the greatest");
        for (byte[] digest : pinnedCertificates) {
            check(digest.length == 32, "a pinned certificate is named by the 32 bytes of its SHA-256 digest");
        }
        check(usesTls || pinnedCertificates.isEmpty(), "pinned certificates need TLS");
        check(usesTls || trustedCertificates == null, "trusted certificates need TLS");
    }

    private static int byteCount(String text) {
        return text.getBytes(StandardCharsets.UTF_8).length;
    }

    static boolean isHeartbeat(long seconds) {
        return seconds >= Limits.LEAST_HEARTBEAT_SECONDS && seconds <= Limits.GREATEST_HEARTBEAT_SECONDS;
    }

    private static void check(boolean isValid, String message) throws LongwireException {
        if (!isValid) {
            throw new LongwireException(LongwireException.Code.BAD_CONFIGURATION, message);
        }
    }

    /**
     * Returns the gateway's host.
     *
     * @return the host name or numeric address
     */
    public String host() {
        return host;
    }

    /**
     * Returns the gateway's device port.
     *
     * @return the port
     */
    public int port() {
        return port;
    }

    /**
     * Returns the id of the app.
     *
     * @return the appId
     */
    public String appId() {
        return appId;
    }

    String appSecret() {
        return appSecret;
    }

    String registrationToken() {
        return registrationToken;
    }

    /** Returns the key of a registration's proof, or an empty text if the device cannot register. */
    String registrationKey() {
        return registrationToken.isEmpty() ? appSecret : registrationToken;
    }

    boolean usesTls() {
        return usesTls;
    }

    File trustedCertificates() {
        return trustedCertificates;
    }

    List<byte[]> pinnedCertificates() {
        return pinnedCertificates;
    }

    String clientName() {
        return clientName;
    }

    long heartbeatSeconds() {
        return heartbeatSeconds;
    }

    long window() {
        return window;
    }

    ApplicationState applicationState() {
        return applicationState;
    }

    boolean keepsRunning() {
        return keepsRunning;
    }

    Integer badge() {
        return badge;
    }

    List<VendorToken> tokens() {
        return tokens;
    }

    DeviceAttributes attributes() {
        return attributes;
    }

    boolean replaysOpened() {
        return replaysOpened;
    }

    boolean reconnects() {
        return reconnects;
    }

    Executor executor() {
        return executor;
    }

    ClientClock clock() {
        return clock;
    }

    Wakeups wakeups() {
        return wakeups;
    }

    long firstDelay() {
        return firstDelay;
    }

    long greatestDelay() {
        return greatestDelay;
    }

    long namesTime() {
        return namesTime;
    }

    Boolean isPushModeOff() {
        return isPushModeOff;
    }

    /** Returns the address and the app; secrets stay out of logs. */
    @Override
    public String toString() {
        return appId + " at " + new Endpoint(host, port) + (usesTls ? " over TLS" : " over TCP") + ", heartbeat "
            + heartbeatSeconds + " s, " + Arrays.asList(tokens.toArray());
    }
}
