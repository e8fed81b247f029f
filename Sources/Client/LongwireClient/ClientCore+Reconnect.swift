internal import Wire

// What a Close means for coming back. The hundreds carry the rule, so that a code of a newer gateway is understood.
//
// The address: the configured one, unless a Close of 2xx names an alternate. An alternate serves one visit: however that
// ends, the client comes back to the configured address, which may name an alternate again.
extension ClientCore {
    /// The configured address.
    var home: Endpoint { Endpoint(host: configuration.host, port: configuration.port) }

    mutating func receive(_ close: Close, at now: ClientTime) {
        actions.append(.report(.closed(code: close.code, reason: close.reason)))
        actions.append(.disconnect)
        let error = LongwireClientError(
            code: .refused, message: "the gateway closed with code \(close.code): \(close.reason)",
            closeCode: close.code)
        let (wasWelcomed, wasSteady) = (phase == .ready, forgiveFailures(at: now))
        let next = close.code / 100 == 2 ? Self.endpoint(close.alternate).flatMap { $0 == endpoint ? nil : $0 } : nil
        // Sent on by the configured address, before a session: the attempt goes on elsewhere.
        let isSentOn = next != nil && !wasWelcomed && endpoint == home
        guard configuration.reconnects || isSentOn || isCorrection(close.code) else { return halt(error) }

        switch close.code / 100 {
        case 2:
            guard let next else { return leave(by: close, at: now) }
            // At once, but once: gateways that send a client round in a circle must not keep it busy.
            let pause = endpoint == home || wasSteady ? 0 : backoff.next()
            let window = window(of: close)
            wait(max(window ?? 0, pause), at: now, isNamed: window != nil, thenAt: next)
        case 3...4 where endpoint != home && !wasWelcomed && close.code != CloseCode.clockSkew.rawValue:
            // What an alternate refuses says nothing about the configured gateway.
            wait(backoff.next(), at: now)
        case 3: correct(close, error, at: now)
        case 4:
            // Only `replaced` lets a client come back by itself, and not soon: two that share a cid would fight.
            guard close.code == CloseCode.replaced.rawValue else { return halt(error) }
            wait(Limits.replacedMilliseconds + backoff.next(), at: now, isNamed: true)
        default: leave(by: close, at: now)
        }
    }

    private mutating func leave(by close: Close, at now: ClientTime) {
        guard let window = window(of: close) else { return wait(backoff.next(), at: now) }
        // Windows of next to nothing, one after the other, must not make a client hammer at the gateway.
        let isShort = window < Limits.backoffBaseMilliseconds
        wait(isShort ? max(window, backoff.next()) : window, at: now, isNamed: true)
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
        case .waiting where !isWaitNamed:
            backoff.reset()
            endWaitSoon(at: now)
        case .ready: if pingSentAt == nil { sendPing(at: now) }
        default: break
        }
    }

    /// Within a second, unless the gateway named the time.
    mutating func endWaitSoon(at now: ClientTime) {
        guard case .waiting(let until) = phase, !isWaitNamed else { return }
        let soon = now.monotonic + backoff.next(in: 0...Limits.backoffBaseMilliseconds)
        phase = .waiting(until: min(until, soon))
    }

    /// Remembers what the network has taught; stored with the next change of the state, at the latest with the next Hello.
    mutating func keepHeartbeat() { state.keep(heartbeat, on: network) }

    /// A session that lasted makes the next failure the first one again.
    ///
    /// False: there is none.
    @discardableResult
    private mutating func forgiveFailures(at now: ClientTime) -> Bool {
        guard phase == .ready, now.monotonic - welcomedAt >= Limits.steadyMilliseconds else { return false }
        backoff.reset()
        (skewRetryCount, lossCount) = (0, 0)
        return true
    }

    /// After a failure without a Close.
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

    /// 3xx: put the named thing right, come back once; twice in a row means it is not the named thing.
    private mutating func correct(_ close: Close, _ error: LongwireClientError, at now: ClientTime) {
        switch close.code {
        case CloseCode.clockSkew.rawValue:
            if close.serverTime > 0, let serverTime = Int64(exactly: close.serverTime) {
                state.clockOffset = serverTime.subtractingReportingOverflow(now.wall).partialValue
            }
            // The refused timestamp was never recorded there. Without this a clock that was once far ahead would keep
            // the device out until that time has come.
            state.lastTimestamp = state.acceptedTimestamp
            isDirty = true
            skewRetryCount += 1
            wait(skewRetryCount == 1 ? 0 : backoff.next(), at: now, thenAt: phase == .ready ? nil : endpoint)
        case CloseCode.unknownDevice.rawValue:
            correctionCount += 1
            guard correctionCount == 1, state.isRegistered, !configuration.appSecret.isEmpty else { return halt(error) }
            actions.append(.report(.registrationLost(state.cid)))
            state.forgetRegistration()
            isDirty = true
            lossCount += 1
            // A gateway that forgets each device it has just registered is not asked as fast as it answers.
            wait(lossCount == 1 ? 0 : backoff.next(), at: now)
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
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let digits = text[text.index(after: colon)...]
        guard digits.utf8.allSatisfy({ (48...57).contains($0) }), let port = UInt16(digits), port > 0 else {
            return nil
        }
        var host = text[..<colon]
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
        if isBracketed { host = host.dropFirst().dropLast() }
        // A name reaches the system's resolver and the certificate's check: letters, digits and what else names have.
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
