internal import Wire

extension ClientCore {
    static let transcriptPrefix = Array("longwire hello 1".utf8)

    mutating func sendHello(at now: ClientTime) {
        var hello = Hello()
        hello.appID = configuration.appID
        hello.timestamp = nextTimestamp(at: now)
        if state.isRegistered {
            hello.cid = state.cid
            hello.queueEpoch = state.queueEpoch
            hello.positions = state.streams.sorted { $0.key < $1.key }.map { $1.position(stream: $0) }
            hello.opened = Array(state.unreportedOpened.prefix(Limits.openedPerHelloCount))
        } else {
            hello.registration = true
            // All devices of an app prove their registration with the same secret. Without a nonce, two devices would send equal
            // Hellos in the same millisecond, and the gateway would refuse the second as a replay.
            hello.nonce = withUnsafeBytes(of: cryptography.randomWord()) { Array($0) }
            hello.registrationToken = configuration.registrationToken
        }
        hello.applicationState = configuration.applicationState
        hello.keepsRunning = configuration.keepsRunning
        hello.heartbeatSeconds = heartbeat.learnt ?? configuration.heartbeatSeconds
        hello.badge = pendingBadge
        hello.tokens = configuration.tokens
        hello.replayOpened = configuration.replaysOpened
        hello.client = configuration.clientName
        hello.window = configuration.window
        hello.attributes = configuration.attributes
        _ = hello.attributes?.clean()

        var transcript = Self.transcriptPrefix
        hello.appendBody(to: &transcript)
        let token = configuration.registrationToken
        let key =
            state.isRegistered ? state.deviceSecret : Array((token.isEmpty ? configuration.appSecret : token).utf8)
        hello.proof = cryptography.authenticationCode(of: transcript, key: key)

        greeted = Greeting(
            timestamp: hello.timestamp, opened: hello.opened, badge: pendingBadge,
            applicationState: hello.applicationState, keepsRunning: hello.keepsRunning, tokens: hello.tokens)
        // Stored before it is sent, so that a timestamp is never reused after a crash.
        state.lastTimestamp = hello.timestamp
        persist()
        send(hello, at: now)
    }

    private func nextTimestamp(at now: ClientTime) -> UInt64 {
        let gatewayTime = now.wall.addingReportingOverflow(state.clockOffset).partialValue
        return max(UInt64(clamping: gatewayTime), state.lastTimestamp &+ 1)
    }

    mutating func receive(_ welcome: Welcome, at now: ClientTime) {
        if !state.isRegistered {
            guard !welcome.cid.isNone, welcome.deviceSecret.count == 32 else {
                return violate(.malformed, "the Welcome of a registration has no cid or no secret", at: now)
            }
            state.cid = welcome.cid
            state.deviceSecret = welcome.deviceSecret
            state.queueEpoch = welcome.queueEpoch
            actions.append(.persist(state))
            actions.append(.report(.registered(welcome.cid)))
            names.registered(token: configuration.registrationToken)
        } else if welcome.queueEpoch != state.queueEpoch {
            // Without processed messages there are no positions to lose, so the app gets no event.
            if !state.streams.isEmpty {
                actions.append(.report(.queueReset(from: state.queueEpoch, to: welcome.queueEpoch)))
            }
            state.queueEpoch = welcome.queueEpoch
            (state.streams, state.rejections) = ([:], [])
        }
        state.acceptedTimestamp = greeted.timestamp
        state.unreportedOpened.removeAll { greeted.opened.contains($0) }
        if greeted.badge == pendingBadge { pendingBadge = nil }
        persist()

        phase = .ready
        welcomedAt = now.monotonic
        correctionCount = 0
        let heartbeat = welcome.heartbeatSeconds == 0 ? Limits.defaultHeartbeatSeconds : Int64(welcome.heartbeatSeconds)
        heartbeatMilliseconds = heartbeat * 1_000
        self.heartbeat.agreed(UInt32(clamping: heartbeat))
        fetch?.quietAt = now.monotonic + Limits.fetchQuietMilliseconds
        let saidSuspended = greeted.applicationState != .foreground && !greeted.keepsRunning
        dropRule = saidSuspended ? .untilNextUpdate : .none
        actions.append(.report(.welcomed(WelcomeDetails(welcome, cid: state.cid))))

        sayWhatChanged(at: now)
        if let pendingBadge { update(at: now) { $0.badge = pendingBadge } }
        if let pushModeOff { update(at: now) { $0.pushModeOff = pushModeOff } }
        sendReports(at: now)
        sendOutgoing(at: now)
        sendNames(at: now)
    }

    /// Sends the changes that the app made between Hello and Welcome.
    private mutating func sayWhatChanged(at now: ClientTime) {
        let (applicationState, keepsRunning) = (configuration.applicationState, configuration.keepsRunning)
        if applicationState != greeted.applicationState || keepsRunning != greeted.keepsRunning {
            perform(.applicationState(applicationState, keepsRunning: keepsRunning), at: now)
        }
        let known = greeted.tokens.map { VendorToken(channel: $0.channel, kind: $0.kind, activity: $0.activity) }
        // One remaining token of the same use prevents a removal, which would remove that token, too.
        let removed = (state.removedTokens + known.filter { !state.removedTokens.contains($0) }).filter { removal in
            !configuration.tokens.contains { removal.excludes($0) }
        }
        if state.removedTokens.contains(where: { !removed.contains($0) }) {
            state.removedTokens.removeAll { !removed.contains($0) }
            isDirty = true
        }
        // A Hello does not renew a token that the gateway already has. Tokens that the app set without a session are therefore
        // sent again: the vendor has just reissued them.
        let added = configuration.tokens.filter { !greeted.tokens.contains($0) || renewedTokens.contains($0) }
        renewedTokens = []
        let changes = removed + added
        for start in stride(from: 0, to: changes.count, by: Limits.tokenCount) {
            update(at: now) { $0.tokens = Array(changes[start...].prefix(Limits.tokenCount)) }
        }
    }

    /// Sends Feedback for the opened messages that Hello had no room for, and for later reports.
    mutating func sendReports(at now: ClientTime) {
        let (opened, others) = (state.unreportedOpened, state.unreported)
        guard phase == .ready, sentReports == nil, !opened.isEmpty || !others.isEmpty else { return }
        for id in opened { sendFeedback(.opened, id, at: now) }
        for report in others {
            switch report {
            case .shown(let id): sendFeedback(.shown, id, at: now)
            case .action(let number, let id): sendFeedback(.action, id, action: number, at: now)
            }
        }
        sentReports = (sendPing(at: now), opened, others)
    }

    private mutating func sendFeedback(
        _ kind: Feedback.Kind, _ id: MessageID, action: UInt32 = 0, at now: ClientTime
    ) {
        var feedback = Feedback()
        (feedback.kind, feedback.messageID, feedback.action) = (kind, id, action)
        send(feedback, at: now)
    }

    mutating func persist() {
        (isDirty, owesWrite) = (false, false)
        actions.append(.persist(state))
    }
}
