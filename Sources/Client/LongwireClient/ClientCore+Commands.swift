internal import Wire

// The app's calls, and the gateway's replies to them.
extension ClientCore {
    /// Whether the system may freeze the app with its socket open; the gateway treats such a device as offline.
    var isSuspended: Bool { configuration.applicationState != .foreground && !configuration.keepsRunning }

    package mutating func perform(_ command: ClientCommand, at now: ClientTime) {
        switch command {
        case .stop: stop(at: now)
        case .applicationState(let applicationState, let keepsRunning):
            let wasSuspended = isSuspended
            configuration.applicationState = applicationState
            configuration.keepsRunning = keepsRunning
            fetch?.ownsRunning = false
            update(at: now) {
                $0.applicationState = applicationState
                $0.keepsRunning = keepsRunning
            }
            // From this update on, deliveries are dropped until the gateway confirms the update that ends the suspension.
            if isSuspended {
                dropRule = .untilNextUpdate
                // Messages that the app has not received yet would appear as new after the suspension. The client withdraws them,
                // and the gateway delivers them again with a new offline flag.
                if !handling.isEmpty { actions.append(.withdraw) }
            } else if wasSuspended {
                resume(at: now)
            }
        case .finish(let message, let verdict): finish(message, verdict)
        case .badge(let badge):
            pendingBadge = badge
            update(at: now) { $0.badge = badge }
        case .token(let token):
            configuration.set(token)
            if !token.token.isEmpty, phase != .ready { renewedTokens = renewedTokens.filter { $0 != token } + [token] }
            if state.note(token) { isDirty = true }
            update(at: now) { $0.tokens = [token] }
        case .pushModeOff(let isOff):
            pushModeOff = isOff
            update(at: now) { $0.pushModeOff = isOff }
        case .heartbeat(let seconds):
            configuration.heartbeatSeconds = seconds
            heartbeat.forget()
            keepHeartbeat()
            update(at: now) { $0.heartbeatSeconds = seconds }
        case .opened(let id): open(id, at: now)
        case .tapped(let tap):
            state.keep(tap)
            open(tap.messageID, at: now)
        case .tapsTaken(let ids):
            state.forgetTaps(of: ids)
            isDirty = true
        case .networkChanged(let name): networkChanged(to: name, at: now)
        // The next Hello sends the attributes.
        case .attributes(let attributes): configuration.attributes = attributes
        case .checkConnection: resume(at: now)
        case .report(let report): note(report, at: now)
        case .send(let payload, let task): send(payload, answering: task, at: now)
        case .names(let names): ask(names, at: now)
        case .fetch(let milliseconds): beginFetch(within: milliseconds, at: now)
        }
    }

    /// Sends a DeviceUpdate; does nothing without a session, because the next Hello carries the values.
    mutating func update(at now: ClientTime, _ fill: (inout DeviceUpdate) -> Void) {
        guard phase == .ready else { return }
        // Messages handled before the change are acked before it. Otherwise the gateway would redeliver them with other flags.
        endTurn(at: now)
        var update = DeviceUpdate()
        fill(&update)
        update.request = nextRequest
        nextRequest = nextRequest == .max ? 1 : nextRequest + 1
        pendingUpdates[update.request] = update
        if dropRule == .untilNextUpdate { dropRule = .untilResult(of: update.request) }
        send(update, at: now)
    }

    mutating func receive(_ result: UpdateResult, at now: ClientTime) {
        let update = pendingUpdates.removeValue(forKey: result.request)
        if result.code == 0, let update {
            if let isOff = update.pushModeOff, pushModeOff == isOff { pushModeOff = nil }
            // A badge that the app set again after this update is still unconfirmed, even if the value is equal.
            if update.badge == pendingBadge, !pendingUpdates.values.contains(where: { $0.badge != nil }) {
                pendingBadge = nil
            }
            confirmRemovals(update)
        }
        if result.heartbeatSeconds != 0 {
            heartbeatMilliseconds = Int64(result.heartbeatSeconds) * 1_000
            heartbeat.agreed(result.heartbeatSeconds)
        }
        if dropRule == .untilResult(of: result.request) { dropRule = isSuspended ? .untilNextUpdate : .none }
        actions.append(.report(.updated(request: result.request, code: result.code, reason: result.reason)))
    }

    /// Forgets removed tokens once the gateway confirms their update, unless a later update also removes them.
    private mutating func confirmRemovals(_ update: DeviceUpdate) {
        let later = pendingUpdates.values.flatMap(\.tokens)
        let count = state.removedTokens.count
        state.removedTokens.removeAll { removed in
            update.tokens.contains { $0.isRemoval(removed) } && !later.contains { $0.isRemoval(removed) }
        }
        if state.removedTokens.count != count { isDirty = true }
    }

    /// Tests the connection with a Ping, or shortens a reconnect delay.
    ///
    /// Called when the app runs again, or when a push has shown that a message did not arrive.
    private mutating func resume(at now: ClientTime) {
        if phase == .ready {
            if pingSentAt == nil { sendPing(at: now) }
        } else {
            endWaitSoon(at: now)
        }
    }

    private mutating func open(_ id: MessageID, at now: ClientTime) {
        state.noteOpened(id)
        // Stored at once, because the system may end the app at any moment.
        persist()
        sendReports(at: now)
    }

    /// Keeps the report, across sessions and restarts, until the gateway has confirmed it.
    private mutating func note(_ report: MessageReport, at now: ClientTime) {
        guard state.note(report) else { return }
        isDirty = true
        sendReports(at: now)
    }

    // MARK: Fetching

    private mutating func beginFetch(within milliseconds: Int64, at now: ClientTime) {
        var fetch = fetch ?? Fetch(until: 0)
        fetch.until = max(fetch.until, now.monotonic + milliseconds)
        if phase == .ready { fetch.quietAt = now.monotonic + Limits.fetchQuietMilliseconds }
        let wasSuspended = isSuspended
        self.fetch = fetch
        if wasSuspended {
            perform(.applicationState(configuration.applicationState, keepsRunning: true), at: now)
            self.fetch?.ownsRunning = true
        }
        if case .waiting = phase, !isWaitNamed { connect(at: now) }
    }

    mutating func endFetch(at now: ClientTime) {
        guard let fetch else { return }
        if !handling.isEmpty, now.monotonic < fetch.until {
            // The gateway is silent, but the app has not returned its verdicts yet, so the fetch continues.
            self.fetch?.quietAt = now.monotonic + Limits.fetchQuietMilliseconds
            return
        }
        self.fetch = nil
        if fetch.ownsRunning {
            perform(.applicationState(configuration.applicationState, keepsRunning: false), at: now)
        }
        let isComplete = phase == .ready && now.monotonic < fetch.until
        actions.append(.report(.fetched(messages: fetch.messageCount, isComplete: isComplete)))
    }
}

extension ClientConfiguration {
    /// Replaces the token of the same channel, kind and activity; an empty token removes such tokens.
    mutating func set(_ token: VendorToken) {
        tokens.removeAll {
            $0.isOfSameUse(as: token) && ($0.topic == token.topic || token.token.isEmpty || $0.topic.isEmpty)
        }
        guard !token.token.isEmpty else { return }
        tokens.append(token)
        // Tokens of Live Activities are short-lived, so they are evicted before the app's own tokens.
        if tokens.count(where: { $0.kind == .liveActivity }) > Limits.activityTokenCount
            || tokens.count > Limits.tokenCount
        {
            tokens.remove(at: tokens.dropLast().firstIndex { $0.kind == .liveActivity } ?? 0)
        }
    }
}

extension VendorToken {
    /// Whether both tokens are for the same channel, kind and activity; an empty token without an activity matches every
    /// activity.
    func isOfSameUse(as other: VendorToken) -> Bool {
        guard channel == other.channel, kind == other.kind else { return false }
        return activity == other.activity || other.token.isEmpty && other.activity.isEmpty
    }
}
