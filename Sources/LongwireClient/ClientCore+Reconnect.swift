internal import Wire

// What a Close means for coming back. The hundreds carry the rule, so that a code of a newer gateway is understood.
extension ClientCore {
    mutating func receive(_ close: Close, at now: ClientTime) {
        actions.append(.report(.closed(code: close.code, reason: close.reason)))
        actions.append(.disconnect)
        let error = LongwireClientError(
            code: .refused, message: "the gateway closed with code \(close.code): \(close.reason)",
            closeCode: close.code)
        guard configuration.reconnects || isCorrection(close.code) else { return halt(error) }
        forgiveFailures(at: now)

        switch close.code / 100 {
        case 2:
            if let alternate = Self.endpoint(close.alternate) { endpoint = alternate }
            leave(by: close, at: now)
        case 3: correct(close, error, at: now)
        case 4:
            // Only `replaced` lets a client come back by itself, and not soon: two that share a cid would fight.
            guard close.code == CloseCode.replaced.rawValue else { return halt(error) }
            wait(Limits.replacedMilliseconds + backoff.next(), at: now, isNamed: true)
        default: leave(by: close, at: now)
        }
    }

    private mutating func leave(by close: Close, at now: ClientTime) {
        let window = window(of: close)
        wait(window ?? backoff.next(), at: now, isNamed: window != nil)
    }

    /// The system has a network, maybe another one: what the old one taught does not count, and a long wait ends.
    ///
    /// A wait that the gateway named is kept. The rest of the jitter is kept, too: a network returns for many at once.
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
        case .waiting(let until) where !isWaitNamed:
            backoff.reset()
            phase = .waiting(until: min(until, now.monotonic + backoff.next()))
        case .ready: if pingSentAt == nil { sendPing(at: now) }
        default: break
        }
    }

    /// Remembers what the network has taught; stored with the next change of the state, at the latest with the next Hello.
    mutating func keepHeartbeat() { state.keep(heartbeat, on: network) }

    /// A session that lasted makes the next failure the first one again.
    private mutating func forgiveFailures(at now: ClientTime) {
        if phase == .ready, now.monotonic - welcomedAt >= Limits.steadyMilliseconds { backoff.reset() }
    }

    /// After a failure without a Close.
    mutating func retry(at now: ClientTime, error: LongwireClientError) {
        guard configuration.reconnects else { return halt(error) }
        forgiveFailures(at: now)
        // An alternate that does not answer is forgotten.
        if phase != .ready { endpoint = Endpoint(host: configuration.host, port: configuration.port) }
        wait(backoff.next(), at: now)
    }

    private mutating func wait(_ milliseconds: Int64, at now: ClientTime, isNamed: Bool = false) {
        leaveSession()
        isWaitNamed = isNamed
        phase = .waiting(until: now.monotonic + milliseconds)
        actions.append(.report(.retrying(afterMilliseconds: milliseconds)))
    }

    /// 3xx: put the named thing right, come back once; twice in a row means it is not the named thing.
    private mutating func correct(_ close: Close, _ error: LongwireClientError, at now: ClientTime) {
        switch close.code {
        case CloseCode.clockSkew.rawValue:
            if close.serverTime > 0, close.serverTime < UInt64(Int64.max) {
                state.clockOffset = Int64(close.serverTime) - now.wall
            }
            // The refused timestamp was never recorded there. Without this a clock that was once far ahead would keep
            // the device out until that time has come.
            state.lastTimestamp = state.acceptedTimestamp
            isDirty = true
            skewRetryCount += 1
            wait(skewRetryCount == 1 ? 0 : backoff.next(), at: now)
        case CloseCode.unknownDevice.rawValue:
            correctionCount += 1
            guard correctionCount == 1, state.isRegistered, !configuration.appSecret.isEmpty else { return halt(error) }
            actions.append(.report(.registrationLost(state.cid)))
            state.forgetRegistration()
            isDirty = true
            wait(0, at: now)
        default:
            correctionCount += 1
            guard correctionCount == 1 else { return halt(error) }
            leave(by: close, at: now)
        }
    }

    /// A correction is part of one attempt: it happens even where the client is not to reconnect.
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

    /// Reads host:port, with an IPv6 address in brackets; `nil` for anything else.
    static func endpoint(_ text: String) -> Endpoint? {
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]), port > 0 else {
            return nil
        }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
        } else if host.contains(":") {
            return nil
        }
        return host.isEmpty ? nil : Endpoint(host: String(host), port: port)
    }
}
