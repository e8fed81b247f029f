internal import Wire

// Reconnecting after a Close. The hundreds digit of the code selects the rule, so codes of newer gateways work, too.
//
// The client connects to the configured address, unless a Close of 2xx names an alternate. It uses an alternate for one
// connection. After that it returns to the configured address, which may name an alternate again.
extension ClientCore {
    var home: Endpoint { Endpoint(host: configuration.host, port: configuration.port) }

    mutating func receive(_ close: Close, at now: ClientTime) {
        actions.append(.report(.closed(code: close.code, reason: close.reason)))
        actions.append(.disconnect)
        let error = LongwireClientError(
            code: .refused, message: "the gateway closed with code \(close.code): \(close.reason)",
            closeCode: close.code)
        let (wasWelcomed, wasSteady) = (phase == .ready, forgiveFailures(at: now))
        let next = close.code / 100 == 2 ? Self.endpoint(close.alternate).flatMap { $0 == endpoint ? nil : $0 } : nil
        // The configured address redirected the client before a session began. The connection attempt continues at the
        // alternate.
        let isSentOn = next != nil && !wasWelcomed && endpoint == home
        guard configuration.reconnects || isSentOn || isCorrection(close.code) else { return halt(error) }

        switch close.code / 100 {
        case 2:
            guard let next else { return leave(by: close, at: now) }
            // The first redirect is immediate. Later ones back off, so that gateways that redirect in a circle cannot cause a
            // busy loop.
            let pause = endpoint == home || wasSteady ? 0 : backoff.next()
            let window = window(of: close)
            wait(max(window ?? 0, pause), at: now, isNamed: window != nil, thenAt: next)
        case 3...4 where endpoint != home && !wasWelcomed && close.code != CloseCode.clockSkew.rawValue:
            // A refusal by an alternate gateway does not change the backoff of the configured one.
            wait(backoff.next(), at: now)
        case 3: correct(close, error, at: now)
        case 4:
            // The client reconnects only after `replaced`, and after a long delay. Otherwise two processes with the same cid
            // would replace each other continuously.
            guard close.code == CloseCode.replaced.rawValue else { return halt(error) }
            wait(Limits.replacedMilliseconds + backoff.next(), at: now, isNamed: true)
        default: leave(by: close, at: now)
        }
    }

    private mutating func leave(by close: Close, at now: ClientTime) {
        guard let window = window(of: close) else { return wait(backoff.next(), at: now) }
        // A delay below one second is raised to the backoff, so that repeated short delays do not flood the gateway with
        // connections.
        let isShort = window < Limits.backoffBaseMilliseconds
        wait(isShort ? max(window, backoff.next()) : window, at: now, isNamed: true)
    }

    /// Handles a network that became usable: loads the heartbeat learnt on it, and shortens a backoff or tests the connection.
    ///
    /// A delay that the gateway requested is kept. The shortened backoff still has jitter, because a network returns for many
    /// devices at once.
    mutating func networkChanged(to name: String?, at now: ClientTime) {
        if let name {
            network = name
            heartbeat = state.heartbeat(on: name)
        } else {
            network = ""
            heartbeat.forget()
        }
        keepHeartbeat()
        switch phase {
        case .waiting where !isWaitNamed:
            backoff.reset()
            endWaitSoon(at: now)
        case .ready: if pingSentAt == nil { sendPing(at: now) }
        default: break
        }
    }

    /// Shortens a backoff to at most one second; a delay that the gateway requested is kept.
    mutating func endWaitSoon(at now: ClientTime) {
        guard case .waiting(let until) = phase, !isWaitNamed else { return }
        let soon = now.monotonic + backoff.next(in: 0...Limits.backoffBaseMilliseconds)
        phase = .waiting(until: min(until, soon))
    }

    /// Records the heartbeat of the current network in the state.
    ///
    /// It is stored with the next state change, at the latest with the next Hello.
    mutating func keepHeartbeat() { state.keep(heartbeat, on: network) }

    /// Resets the backoff if the session lasted at least `Limits.steadyMilliseconds`.
    ///
    /// Returns false after a shorter session, or without a session.
    @discardableResult
    private mutating func forgiveFailures(at now: ClientTime) -> Bool {
        guard phase == .ready, now.monotonic - welcomedAt >= Limits.steadyMilliseconds else { return false }
        backoff.reset()
        (skewRetryCount, lossCount) = (0, 0)
        return true
    }

    /// Reconnects with backoff after a failure without a Close.
    mutating func retry(at now: ClientTime, error: LongwireClientError) {
        guard configuration.reconnects else { return halt(error) }
        forgiveFailures(at: now)
        wait(backoff.next(), at: now)
    }

    private mutating func wait(
        _ milliseconds: Int64, at now: ClientTime, isNamed: Bool = false, thenAt next: Endpoint? = nil
    ) {
        leaveSession()
        endpoint = next ?? home
        isWaitNamed = isNamed
        phase = .waiting(until: now.monotonic + milliseconds)
        actions.append(.report(.retrying(afterMilliseconds: milliseconds)))
    }

    /// Handles a Close of 3xx: corrects the named problem, if possible, and reconnects.
    ///
    /// A second such Close before a Welcome stops the client, except `clockSkew`, after which the client backs off.
    private mutating func correct(_ close: Close, _ error: LongwireClientError, at now: ClientTime) {
        switch close.code {
        case CloseCode.clockSkew.rawValue:
            if close.serverTime > 0, let serverTime = Int64(exactly: close.serverTime) {
                state.clockOffset = serverTime.subtractingReportingOverflow(now.wall).partialValue
            }
            // The gateway has not recorded the refused timestamp. If the state kept it, a device whose clock was once far ahead
            // could not connect until that time.
            state.lastTimestamp = state.acceptedTimestamp
            isDirty = true
            skewRetryCount += 1
            wait(skewRetryCount == 1 ? 0 : backoff.next(), at: now, thenAt: phase == .ready ? nil : endpoint)
        case CloseCode.unknownDevice.rawValue:
            correctionCount += 1
            let mayRegister = !configuration.appSecret.isEmpty || !configuration.registrationToken.isEmpty
            guard correctionCount == 1, state.isRegistered, mayRegister else { return halt(error) }
            actions.append(.report(.registrationLost(state.cid)))
            state.forgetRegistration()
            isDirty = true
            lossCount += 1
            // The first lost registration reconnects at once. Later ones back off, in case a gateway loses every registration.
            wait(lossCount == 1 ? 0 : backoff.next(), at: now)
        default:
            correctionCount += 1
            guard correctionCount == 1 else { return halt(error) }
            leave(by: close, at: now)
        }
    }

    /// Whether the Close asks for the first correction of its kind, which the client makes even if `reconnects` is false.
    private func isCorrection(_ code: UInt32) -> Bool {
        switch code {
        case CloseCode.clockSkew.rawValue: skewRetryCount == 0
        case CloseCode.unknownDevice.rawValue: correctionCount == 0
        default: false
        }
    }

    private mutating func window(of close: Close) -> Int64? {
        let least = min(Int64(close.retryAfterMinimum), Limits.retryWindowMilliseconds)
        let most = min(Int64(close.retryAfterMaximum), Limits.retryWindowMilliseconds)
        guard least > 0 || most > 0 else { return nil }
        return backoff.next(in: least...max(least, most))
    }

    /// Parses host:port, with an IPv6 address in brackets; returns `nil` for anything else.
    static func endpoint(_ text: String) -> Endpoint? {
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let digits = text[text.index(after: colon)...]
        guard digits.utf8.allSatisfy({ (48...57).contains($0) }), let port = UInt16(digits), port > 0 else {
            return nil
        }
        var host = text[..<colon]
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
        if isBracketed { host = host.dropFirst().dropLast() }
        // The host reaches the system's resolver and the certificate check, so only letters, digits, `.`, `-`, `_` and IPv6
        // colons are accepted.
        let isName = host.utf8.allSatisfy { byte in
            switch byte {
            case 48...57, 65...90, 97...122, UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"): true
            case UInt8(ascii: ":"): isBracketed
            default: false
            }
        }
        return host.isEmpty || !isName ? nil : Endpoint(host: String(host), port: port)
    }
}
