package longwire.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The settings of the device, which Hello and later updates report: app state, badge, tokens, push mode, heartbeat. */
final class DeviceSettings {
    /** The rule for dropping deliveries without an ack (docs/Semantics.md, "Reachability and fallback"). */
    private enum DropRule { NONE, UNTIL_NEXT_UPDATE, UNTIL_RESULT }

    /** The values of the last Hello, which its Welcome confirms. */
    private static final class Greeting {
        long timestamp;
        List<Identifier> opened = Collections.emptyList();
        Integer badge;
        ApplicationState applicationState = ApplicationState.FOREGROUND;
        boolean keepsRunning;
        List<VendorToken> tokens = Collections.emptyList();
    }

    private final ClientCore core;
    private Greeting greeted = new Greeting();
    private DropRule dropRule = DropRule.NONE;
    private long dropRequest;
    private long nextRequest = 1;
    /** Updates in flight. Values that Hello lacks are sent again after a reconnect. */
    private final Map<Long, Frames.DeviceUpdate> pendingUpdates = new HashMap<>();
    private Integer pendingBadge;
    private Boolean pushModeOff;
    private ApplicationState applicationState;
    private boolean keepsRunning;
    private DeviceAttributes attributes;
    private long requestedHeartbeat;
    /** Tokens that the app set, until the gateway has confirmed an update with them. */
    private final List<VendorToken> renewedTokens = new ArrayList<>();

    DeviceSettings(ClientCore core) {
        this.core = core;
    }

    /** Copies the settings of the configuration. */
    void begin() {
        pushModeOff = core.configuration.isPushModeOff();
        pendingBadge = core.configuration.badge();
        applicationState = core.configuration.applicationState();
        keepsRunning = core.configuration.keepsRunning();
        attributes = core.configuration.attributes();
        requestedHeartbeat = core.configuration.heartbeatSeconds();
    }

    /** Adds the settings to a Hello, and records them for {@link #confirm}. */
    void fill(Frames.Hello hello, long learntHeartbeat) {
        hello.applicationState = applicationState;
        hello.keepsRunning = keepsRunning;
        hello.heartbeatSeconds = learntHeartbeat != 0 ? learntHeartbeat : requestedHeartbeat;
        hello.badge = pendingBadge;
        hello.tokens = new ArrayList<>(core.configuration.tokens());
        hello.replaysOpened = core.configuration.replaysOpened();
        hello.client = core.configuration.clientName();
        hello.window = core.configuration.window();
        hello.attributes = attributes;

        greeted = new Greeting();
        greeted.timestamp = hello.timestamp;
        greeted.opened = hello.opened;
        greeted.badge = pendingBadge;
        greeted.applicationState = applicationState;
        greeted.keepsRunning = keepsRunning;
        greeted.tokens = hello.tokens;
    }

    /** Marks the settings of the last Hello as confirmed by its Welcome. */
    void confirm() {
        core.state.acceptedTimestamp = greeted.timestamp;
        core.state.unreportedOpened.removeAll(greeted.opened);
        if (greeted.badge != null && greeted.badge.equals(pendingBadge)) {
            pendingBadge = null;
        }
        boolean wasSuspended = greeted.applicationState != ApplicationState.FOREGROUND && !greeted.keepsRunning;
        dropRule = wasSuspended ? DropRule.UNTIL_NEXT_UPDATE : DropRule.NONE;
    }

    /** Sends the settings that the Hello did not carry. */
    void sendChanges(long now) {
        sendChangesOfHello(now);
        if (pendingBadge != null) {
            sendBadge(now);
        }
        if (pushModeOff != null) {
            sendPushMode(now);
        }
    }

    /** Sends the changes that the app made between Hello and Welcome. */
    private void sendChangesOfHello(long now) {
        if (applicationState != greeted.applicationState || keepsRunning != greeted.keepsRunning) {
            setApplicationState(applicationState, keepsRunning, now);
        }
        List<VendorToken> changes = new ArrayList<>();
        // A Hello removes no tokens. An update does, and has the newer tokens of the same vendor behind the removal.
        for (VendorToken.Channel channel : core.state.removedTokens) {
            changes.add(new VendorToken(channel, ""));
        }
        // A Hello does not renew a token that the gateway already has. Tokens that the app set are therefore sent
        // again, because the vendor has just reissued them.
        for (VendorToken token : core.configuration.tokens()) {
            boolean isRemoved = core.state.removedTokens.contains(token.channel());
            if (isRemoved || renewedTokens.contains(token) || !greeted.tokens.contains(token)) {
                changes.add(token);
            }
        }
        for (int start = 0; start < changes.size(); start += Limits.TOKEN_COUNT) {
            Frames.DeviceUpdate update = new Frames.DeviceUpdate();
            update.tokens = changes.subList(start, Math.min(changes.size(), start + Limits.TOKEN_COUNT));
            update(update, now);
        }
    }

    /** Whether the system may freeze the app with its socket open; the gateway treats such a device as offline. */
    boolean isSuspended() {
        return applicationState != ApplicationState.FOREGROUND && !keepsRunning;
    }

    void setApplicationState(ApplicationState newState, boolean isKeptRunning, long now) {
        boolean wasSuspended = isSuspended();
        applicationState = newState;
        keepsRunning = isKeptRunning;
        if (isSuspended() && core.hasOpenMessages()) {
            // Messages that wait for the app would appear as new after the suspension. They are withdrawn first, and the
            // gateway delivers them again.
            core.act(Action.WITHDRAW);
        }
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.applicationState = newState;
        update.keepsRunning = isKeptRunning;
        update(update, now);
        // The suspension starts with this update. Deliveries are dropped until the gateway confirms the update that ends
        // the suspension.
        if (isSuspended()) {
            dropRule = DropRule.UNTIL_NEXT_UPDATE;
        } else if (wasSuspended) {
            core.resume(now);
        }
    }

    void setBadge(int badge, long now) {
        pendingBadge = badge;
        sendBadge(now);
    }

    private void sendBadge(long now) {
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.badge = pendingBadge;
        update(update, now);
    }

    void setToken(VendorToken token, long now) {
        core.configuration.setToken(token);
        renewedTokens.removeIf(other -> other.isReplacedBy(token));
        renewedTokens.add(token);
        if (renewedTokens.size() > Limits.TOKEN_COUNT) {
            renewedTokens.remove(0);
        }
        sendToken(token, now);
    }

    /** Removes the tokens of a vendor; the removal is kept until the gateway has confirmed it. */
    void removeTokens(VendorToken.Channel channel, long now) {
        VendorToken none = new VendorToken(channel, "");
        core.configuration.setToken(none);
        renewedTokens.removeIf(other -> other.isReplacedBy(none));
        core.state.removedTokens.add(channel);
        // The state is stored at once, because the system may kill the app after the user has logged out.
        core.persist();
        sendToken(none, now);
    }

    private void sendToken(VendorToken token, long now) {
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.tokens = Collections.singletonList(token);
        update(update, now);
    }

    /** Sets the attributes of the next Hello. */
    void setAttributes(DeviceAttributes values) {
        attributes = values;
    }

    void setPushModeOff(boolean isOff, long now) {
        pushModeOff = isOff;
        sendPushMode(now);
    }

    private void sendPushMode(long now) {
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.isPushModeOff = pushModeOff;
        update(update, now);
    }

    void setHeartbeat(long seconds, long now) {
        requestedHeartbeat = seconds;
        sendHeartbeat(seconds, now);
    }

    void sendHeartbeat(long seconds, long now) {
        Frames.DeviceUpdate update = new Frames.DeviceUpdate();
        update.heartbeatSeconds = seconds;
        update(update, now);
    }

    ApplicationState applicationState() {
        return applicationState;
    }

    /** Whether deliveries are dropped without an ack. */
    boolean isDropping() {
        return dropRule != DropRule.NONE;
    }

    /** Discards the updates in flight of the ended session. */
    void leaveSession() {
        pendingUpdates.clear();
    }

    /** Sends a DeviceUpdate; does nothing without a session, because the next Hello carries the values. */
    void update(Frames.DeviceUpdate update, long now) {
        if (!core.isReady()) {
            return;
        }
        // Messages that were handled before the change are acked first. Otherwise the gateway would redeliver them with
        // other flags.
        core.endTurn(now);
        update.request = nextRequest;
        nextRequest = nextRequest == 0xFFFF_FFFFL ? 1 : nextRequest + 1;
        pendingUpdates.put(update.request, update);
        if (dropRule == DropRule.UNTIL_NEXT_UPDATE) {
            dropRule = DropRule.UNTIL_RESULT;
            dropRequest = update.request;
        }
        core.send(update.frame(), now);
    }

    void receive(Frames.UpdateResult result, long now) {
        Frames.DeviceUpdate update = pendingUpdates.remove(result.request);
        if (result.code == 0 && update != null) {
            if (update.isPushModeOff != null && update.isPushModeOff.equals(pushModeOff)) {
                pushModeOff = null;
            }
            // A badge that the app set again after this update is still unconfirmed, even if the value is equal.
            if (update.badge != null && update.badge.equals(pendingBadge) && !isBadgePending()) {
                pendingBadge = null;
            }
            confirmTokens(update.tokens);
        }
        if (result.heartbeatSeconds != 0) {
            core.heartbeats().agree(result.heartbeatSeconds);
        }
        if (dropRule == DropRule.UNTIL_RESULT && dropRequest == result.request) {
            dropRule = isSuspended() ? DropRule.UNTIL_NEXT_UPDATE : DropRule.NONE;
        }
        core.report(listener -> listener.onUpdated(result.request, result.code, result.reason));
    }

    private void confirmTokens(List<VendorToken> tokens) {
        for (VendorToken token : tokens) {
            boolean isPending = false;
            for (Frames.DeviceUpdate update : pendingUpdates.values()) {
                isPending |= update.tokens.contains(token);
            }
            if (isPending) {
                continue;
            }
            if (!token.token().isEmpty()) {
                renewedTokens.remove(token);
            } else if (core.state.removedTokens.remove(token.channel())) {
                core.markDirty();
            }
        }
    }

    private boolean isBadgePending() {
        for (Frames.DeviceUpdate update : pendingUpdates.values()) {
            if (update.badge != null) {
                return true;
            }
        }
        return false;
    }
}
