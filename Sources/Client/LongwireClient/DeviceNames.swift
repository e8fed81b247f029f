internal import Wire

/// The alias and tags of a device.
public struct OwnNames: Equatable, Sendable {
    /// The device's alias of the requested type, or `nil`.
    public var alias: String?
    /// The device's tags.
    public var tags: [String] = []
    /// Creates the names of a device.
    public init(alias: String? = nil, tags: [String] = []) { (self.alias, self.tags) = (alias, tags) }
}

/// The answer to a request about the device's alias and tags.
public struct NamesAnswer: Equatable, Sendable {
    /// The number that the client gave to the request; 0 for the alias of the configuration's token.
    public var request: UInt32
    /// The result code; 0 for success (docs/use/Errors.md, "DeviceNamesResult codes").
    public var code: UInt32
    /// The reason for a refusal, or empty.
    public var reason: String
    /// The device's names after a successful query, otherwise `nil`.
    public var names: OwnNames?

    init(_ result: DeviceNamesResult, isQuery: Bool) {
        (request, code, reason) = (result.request, result.code, result.reason)
        if isQuery, code == 0 {
            names = OwnNames(alias: result.alias.isEmpty ? nil : result.alias, tags: result.tags)
        }
    }

    fileprivate func checked() throws(LongwireClientError) -> OwnNames {
        guard code != 0 else { return names ?? OwnNames() }
        throw LongwireClientError(code: code < Limits.firstRetriedCode ? .namesRefused : .tryLater, message: reason)
    }
}

extension LongwireClient {
    /// Binds an alias to this device, in place of the device's alias of the same type.
    ///
    /// The app's setting `deviceMay` must allow the calls for aliases or tags. A call returns after the gateway's answer,
    /// possibly after reconnects. Calls are sent one at a time, in order. A repeated call is cheap, because the gateway writes
    /// nothing. Cancelling the task throws `tryLater`; the gateway may still make the change.
    ///
    /// - Parameters:
    ///   - alias: letters, digits, `_` and Chinese characters, at most 39 by default.
    ///   - type: the kind of the alias, or empty.
    /// - Throws: `namesRefused`, `tryLater`, or `wrongState` when the client does not run or stops.
    public func bindAlias(_ alias: String, type: String = "") async throws(LongwireClientError) {
        try await request(.bindAlias) { ($0.alias, $0.aliasType) = (alias, type) }
    }

    /// Binds the alias in the `sub` of a token of the app's server.
    ///
    /// `deviceMay` need not allow this. Call it when the user of a registered device has changed. The client binds the alias of
    /// the configuration's token itself, once after each start, unless the app binds or unbinds an alias first.
    ///
    /// - Throws: The errors of `bindAlias`. An invalid or expired token causes `namesRefused`.
    public func bindAlias(token: String) async throws(LongwireClientError) {
        try await request(.bindAlias) { $0.token = token }
    }

    /// Unbinds an alias from this device; other devices keep it.
    ///
    /// Unbinding an alias that the device does not have succeeds.
    ///
    /// - Throws: The errors of `bindAlias`.
    public func unbindAlias(_ alias: String, type: String = "") async throws(LongwireClientError) {
        try await request(.unbindAlias) { ($0.alias, $0.aliasType) = (alias, type) }
    }

    /// Replaces all tags of this device.
    ///
    /// - Throws: The errors of `bindAlias`.
    public func setTags(_ tags: [String]) async throws(LongwireClientError) {
        try await request(.setTags) { $0.tags = tags }
    }

    /// Adds tags to this device.
    ///
    /// - Throws: The errors of `bindAlias`.
    public func addTags(_ tags: [String]) async throws(LongwireClientError) {
        try await request(.addTags) { $0.tags = tags }
    }

    /// Removes tags from this device.
    ///
    /// - Throws: The errors of `bindAlias`.
    public func removeTags(_ tags: [String]) async throws(LongwireClientError) {
        try await request(.removeTags) { $0.tags = tags }
    }

    /// Returns this device's alias of a type, and its tags.
    ///
    /// - Throws: The errors of `bindAlias`.
    public func ownNames(aliasType: String = "") async throws(LongwireClientError) -> OwnNames {
        try await request(.query) { $0.aliasType = aliasType }
    }

    @discardableResult
    private func request(
        _ operation: DeviceNames.Operation, _ fill: (inout DeviceNames) -> Void
    ) async throws(LongwireClientError) -> OwnNames {
        var names = DeviceNames()
        names.operation = operation
        fill(&names)
        let texts = names.tags + [names.alias, names.aliasType]
        guard names.tags.count <= Wire.Limits.deviceTagCount,
            texts.allSatisfy({ $0.utf8.count <= Wire.Limits.nameByteCount }),
            texts.reduce(0, { $0 + $1.utf8.count }) <= Limits.namesByteCount,
            names.token.utf8.count <= Wire.Limits.webTokenByteCount
        else {
            throw LongwireClientError(
                code: .namesRefused,
                message: """
                    a name has at most \(Wire.Limits.nameByteCount) bytes, a device at most \
                    \(Wire.Limits.deviceTagCount) tags, a call at most \(Limits.namesByteCount) bytes of names, and a \
                    token at most \(Wire.Limits.webTokenByteCount) bytes
                    """)
        }
        return try await ask(names).checked()
    }

    private func ask(_ names: DeviceNames) async throws(LongwireClientError) -> NamesAnswer {
        let (calls, board) = (calls, namesBoard)
        var names = names
        names.request = board.nextRequest()
        let request = names
        let outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                guard board.add(request.request, continuation) else { return }
                switch calls.isRunning {
                case true where calls.post(.names(request)): break
                case true:
                    board.end(
                        request.request, .failed(.tryLater, "the client has too many calls to make; call again later"))
                case false:
                    board.end(request.request, .failed(.wrongState, "the client does not run; start it and call again"))
                }
            }
        } onCancel: {
            board.cancel(request.request)
        }
        switch outcome {
        case .answered(let answer): return answer
        case .failed(let code, let message): throw LongwireClientError(code: code, message: message)
        }
    }
}

/// The calls about aliases and tags that wait for their answers.
final class NamesBoard: Sendable {
    enum Outcome: Sendable {
        case answered(NamesAnswer)
        case failed(LongwireClientError.Code, String)
    }

    private enum Entry {
        /// The call has a number but does not wait yet.
        case numbered
        case cancelled
        case waiting(CheckedContinuation<Outcome, Never>)
    }

    private struct State {
        var last: UInt32 = 0
        var entries: [UInt32: Entry] = [:]
    }

    private static let cancelled = Outcome.failed(
        .tryLater, "the call was cancelled; the gateway may still make the change")
    private static let stopped = Outcome.failed(
        .wrongState, "the client has stopped before the gateway answered; start it and call again")

    private let state = Guarded(State())

    func nextRequest() -> UInt32 {
        state.withValue { state in
            repeat { state.last = state.last == .max ? 1 : state.last + 1 } while state.entries[state.last] != nil
            state.entries[state.last] = .numbered
            return state.last
        }
    }

    /// Registers the call's continuation.
    ///
    /// If the call was cancelled before, resumes it and returns false.
    func add(_ request: UInt32, _ continuation: CheckedContinuation<Outcome, Never>) -> Bool {
        let isCancelled = state.withValue { state in
            guard case .cancelled? = state.entries[request] else {
                state.entries[request] = .waiting(continuation)
                return false
            }
            state.entries[request] = nil
            return true
        }
        if isCancelled { continuation.resume(returning: Self.cancelled) }
        return !isCancelled
    }

    func cancel(_ request: UInt32) {
        let continuation = state.withValue { state -> CheckedContinuation<Outcome, Never>? in
            switch state.entries[request] {
            case .waiting(let continuation):
                state.entries[request] = nil
                return continuation
            case .numbered: state.entries[request] = .cancelled
            case .cancelled, nil: break
            }
            return nil
        }
        continuation?.resume(returning: Self.cancelled)
    }

    func note(_ event: ClientEvent) {
        switch event {
        case .namesAnswered(let answer): end(answer.request, .answered(answer))
        case .stopped:
            let requests = state.withValue { Array($0.entries.keys) }
            for request in requests { end(request, Self.stopped) }
        default: break
        }
    }

    func end(_ request: UInt32, _ outcome: Outcome) {
        let continuation = state.withValue { state -> CheckedContinuation<Outcome, Never>? in
            guard case .waiting(let continuation)? = state.entries[request] else { return nil }
            state.entries[request] = nil
            return continuation
        }
        continuation?.resume(returning: outcome)
    }
}

extension ClientCore {
    /// The requests about names, and whether the first is in flight.
    struct Names {
        var waiting: [DeviceNames] = []
        /// The deadline of the request in flight, in monotonic milliseconds, or `nil` if no request is in flight.
        var answerDeadline: Int64?
        /// Whether this run must still bind the alias of the configuration's token.
        var owesTokensAlias: Bool
        /// Whether the app has bound or unbound an alias in this run; its choice then overrides the token's alias.
        var hasAppsAlias = false
        /// The time of the next attempt to bind the token's alias.
        var retryAt: Int64?

        init(token: String) { owesTokensAlias = !token.isEmpty }

        /// The next deadline; while a request is in flight, a due retry waits for its answer.
        var deadline: Int64? { answerDeadline ?? retryAt }

        /// Notes that a new device was registered, which has no alias yet.
        mutating func registered(token: String) {
            if !hasAppsAlias { owesTokensAlias = !token.isEmpty }
        }

        /// Clears the timers of the ended session.
        ///
        /// The next session sends the request at the head of `waiting` again.
        mutating func leaveSession() { (answerDeadline, retryAt) = (nil, nil) }
    }

    mutating func ask(_ names: DeviceNames, at now: ClientTime) {
        guard self.names.waiting.count < Limits.namesCount else {
            var result = DeviceNamesResult()
            (result.request, result.code) = (names.request, Limits.busyCode)
            result.reason = "\(Limits.namesCount) requests about names wait for the gateway already; call again later"
            return actions.append(.report(.namesAnswered(NamesAnswer(result, isQuery: false))))
        }
        // An explicit call of the app takes precedence over the configuration's token.
        if names.operation == .bindAlias || names.operation == .unbindAlias {
            (self.names.owesTokensAlias, self.names.hasAppsAlias, self.names.retryAt) = (false, true, nil)
            if self.names.answerDeadline == nil { self.names.waiting.removeAll { $0.request == 0 } }
        }
        self.names.waiting.append(names)
        sendNames(at: now)
    }

    /// Sends the first waiting request if none is in flight, so that changes are made in the order of the calls.
    ///
    /// An unanswered request is sent again after a reconnect. Requests are idempotent, so a repeat is harmless.
    mutating func sendNames(at now: ClientTime) {
        guard phase == .ready, names.answerDeadline == nil else { return }
        if names.owesTokensAlias, names.retryAt ?? .min <= now.monotonic, names.waiting.first?.request != 0 {
            names.retryAt = nil
            // The app's calls have numbers from 1; 0 marks the client's own request.
            var request = DeviceNames()
            (request.operation, request.token) = (.bindAlias, configuration.registrationToken)
            names.waiting.insert(request, at: 0)
        }
        guard let first = names.waiting.first else { return }
        names.answerDeadline = now.monotonic + Limits.namesMilliseconds
        send(first, at: now)
    }

    mutating func receive(_ result: DeviceNamesResult, at now: ClientTime) {
        guard names.answerDeadline != nil, let first = names.waiting.first, first.request == result.request else {
            return
        }
        names.answerDeadline = nil
        names.waiting.removeFirst()
        if first.request == 0 {
            if result.code < Limits.firstRetriedCode {
                names.owesTokensAlias = false
            } else if names.owesTokensAlias {
                names.retryAt = now.monotonic + Limits.fullRetryMilliseconds
            }
        }
        actions.append(.report(.namesAnswered(NamesAnswer(result, isQuery: first.operation == .query))))
        sendNames(at: now)
    }

    /// Retries the alias of the configuration's token, or abandons the connection when a request times out.
    mutating func wakeNames(at now: ClientTime) {
        guard let deadline = names.deadline, now.monotonic >= deadline else { return }
        guard names.answerDeadline.map({ now.monotonic < $0 }) ?? true else {
            return abandon("no DeviceNamesResult within \(Limits.namesMilliseconds / 1_000) s", at: now)
        }
        sendNames(at: now)
    }
}
