internal import Wire

// The app's calls, and the gateway's answers to them.
extension ClientCore {
    /// The app is (about to be) frozen with its socket open: it counts as offline.
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
            // The update that announces the suspension is not the one that ends it.
            if isSuspended {
                dropRule = .untilNextUpdate
                // What waits for the app would be shown as fresh when it is back.
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
        case .networkChanged(let name): networkChanged(to: name, at: now)
        case .report(let report): note(report, at: now)
        case .send(let payload, let task): send(payload, answering: task, at: now)
        case .fetch(let milliseconds): beginFetch(within: milliseconds, at: now)
        }
    }

    /// Sends a DeviceUpdate; does nothing without a session, because the next Hello carries the values.
    mutating func update(at now: ClientTime, _ fill: (inout DeviceUpdate) -> Void) {
        guard phase == .ready else { return }
        // What was handled before the change is acked before it, or it would come again with other flags.
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
            // One that was set again since is still to be confirmed, though to the same value.
            if update.badge == pendingBadge, !pendingUpdates.values.contains(where: { $0.badge != nil }) {
                pendingBadge = nil
            }
        }
        if result.heartbeatSeconds != 0 {
            heartbeatMilliseconds = Int64(result.heartbeatSeconds) * 1_000
            heartbeat.agreed(result.heartbeatSeconds)
        }
        if dropRule == .untilResult(of: result.request) { dropRule = isSuspended ? .untilNextUpdate : .none }
        actions.append(.report(.updated(request: result.request, code: result.code, reason: result.reason)))
    }

    /// The app runs again: a wait ends soon, since the user may be looking, and a path that died meanwhile is found out.
    private mutating func resume(at now: ClientTime) {
        if phase == .ready {
            if pingSentAt == nil { sendPing(at: now) }
        } else {
            endWaitSoon(at: now)
        }
    }

    private mutating func open(_ id: MessageID, at now: ClientTime) {
        state.noteOpened(id)
        // Stored at once: the app may be gone the next moment.
        persist()
        sendReports(at: now)
    }

    /// Kept until the gateway is known to have it, across sessions and restarts.
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
            // The gateway is silent, but the app has not decided on what came.
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
    /// Keeps a token in place of the one of its channel, kind and activity; an empty one removes such tokens.
    mutating func set(_ token: VendorToken) {
        tokens.removeAll {
            $0.isOfSameUse(as: token) && ($0.topic == token.topic || token.token.isEmpty || $0.topic.isEmpty)
        }
        guard !token.token.isEmpty else { return }
        tokens.append(token)
        // Activities come and go: theirs make room before the app's own.
        if tokens.count(where: { $0.kind == .liveActivity }) > Limits.activityTokenCount
            || tokens.count > Limits.tokenCount
        {
            tokens.remove(at: tokens.dropLast().firstIndex { $0.kind == .liveActivity } ?? 0)
        }
    }
}

extension VendorToken {
    /// True when both are for the same channel, kind and activity; an empty token without an activity is for any.
    func isOfSameUse(as other: VendorToken) -> Bool {
        guard channel == other.channel, kind == other.kind else { return false }
        return activity == other.activity || other.token.isEmpty && other.activity.isEmpty
    }
}
