internal import Wire

/// The names of a device: an alias and its tags.
public struct OwnNames: Equatable, Sendable {
    /// The device's alias of the requested type, or `nil`.
    public var alias: String?
    /// The device's tags.
    public var tags: [String] = []
    /// Creates names.
    public init(alias: String? = nil, tags: [String] = []) { (self.alias, self.tags) = (alias, tags) }
}

/// An answer to a request about the device's names; also the result of the call.
public struct NamesAnswer: Equatable, Sendable {
    /// The number of the request on this client.
    public var request: UInt32
    /// 0 for success (docs/use/Errors.md, "DeviceNamesResult codes").
    public var code: UInt32
    /// The reason for a refusal, or empty.
    public var reason: String
    /// The names, for a query that succeeded.
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
    /// Binds an alias to this device; it replaces the device's alias of this type.
    ///
    /// The calls about names need the app's setting `deviceMay`. They wait for the gateway, also across reconnects, and are
    /// made one after the other. A repeated call costs no write. Cancelling the task ends the wait, not the change.
    ///
    /// - Parameters:
    ///   - alias: letters, digits, `_` and Chinese characters, at most 39 by default.
    ///   - type: the kind of the alias, or empty.
    /// - Throws: `namesRefused`, `tryLater`, or `wrongState` when the client does not run or stops.
    public func bindAlias(_ alias: String, type: String = "") async throws(LongwireClientError) {
        try await request(.bindAlias) { ($0.alias, $0.aliasType) = (alias, type) }
    }

    /// Binds the alias in the `sub` of a token of the app's server; it needs no right in `deviceMay`.
    ///
    /// For another user on a registered device. The alias of the configuration's token is bound automatically, once after each
    /// start, unless the app binds or unbinds an alias itself.
    ///
    /// - Throws: As `bindAlias`; `namesRefused` also for a token that is invalid or has expired.
    public func bindAlias(token: String) async throws(LongwireClientError) {
        try await request(.bindAlias) { $0.token = token }
    }

    /// Unbinds an alias from this device; other devices keep it.
    ///
    /// - Throws: As `bindAlias`; an alias that the device does not have is no error.
    public func unbindAlias(_ alias: String, type: String = "") async throws(LongwireClientError) {
        try await request(.unbindAlias) { ($0.alias, $0.aliasType) = (alias, type) }
    }

    /// Replaces all tags of this device.
    ///
    /// - Throws: As `bindAlias`.
    public func setTags(_ tags: [String]) async throws(LongwireClientError) {
        try await request(.setTags) { $0.tags = tags }
    }

    /// Adds tags to this device.
    ///
    /// - Throws: As `bindAlias`.
    public func addTags(_ tags: [String]) async throws(LongwireClientError) {
        try await request(.addTags) { $0.tags = tags }
    }

    /// Removes tags from this device.
    ///
    /// - Throws: As `bindAlias`.
    public func removeTags(_ tags: [String]) async throws(LongwireClientError) {
        try await request(.removeTags) { $0.tags = tags }
    }

    /// Returns this device's alias of a type, and its tags.
    ///
    /// - Throws: As `bindAlias`.
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

/// The callers that wait for an answer about names.
final class NamesBoard: Sendable {
    enum Outcome: Sendable {
        case answered(NamesAnswer)
        case failed(LongwireClientError.Code, String)
    }

    private enum Entry {
        /// The call does not wait yet.
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

    /// Returns false, and ends the call, if it was cancelled already.
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
        /// The time of the deadline of the request in flight, in monotonic milliseconds.
        var answerDeadline: Int64?
        /// Whether the alias of the configuration's token is still to be bound in this run.
        var owesTokensAlias: Bool
        /// The time of the next attempt at that alias.
        var retryAt: Int64?

        init(token: String) { owesTokensAlias = !token.isEmpty }

        var deadline: Int64? { [answerDeadline, retryAt].compactMap { $0 }.min() }

        /// Ends the wait for an answer, which the connection can no longer bring.
        mutating func leaveSession() { (answerDeadline, retryAt) = (nil, nil) }
    }

    mutating func ask(_ names: DeviceNames, at now: ClientTime) {
        guard self.names.waiting.count < Limits.namesCount else {
            var result = DeviceNamesResult()
            (result.request, result.code) = (names.request, Limits.busyCode)
            result.reason = "\(Limits.namesCount) requests about names wait for the gateway already; call again later"
            return actions.append(.report(.namesAnswered(NamesAnswer(result, isQuery: false))))
        }
        // The app's own word on its alias counts more than the token that it started with.
        if names.operation == .bindAlias || names.operation == .unbindAlias {
            self.names.owesTokensAlias = false
            if self.names.answerDeadline == nil { self.names.waiting.removeAll { $0.request == 0 } }
        }
        self.names.waiting.append(names)
        sendNames(at: now)
    }

    /// Sends the first waiting request; one is in flight, so that the changes are made in the order of the calls.
    ///
    /// A request without an answer is sent again after a reconnect: each sets a state, so a repeat changes nothing.
    mutating func sendNames(at now: ClientTime) {
        guard phase == .ready, names.answerDeadline == nil else { return }
        if names.owesTokensAlias, names.retryAt ?? .min <= now.monotonic, names.waiting.first?.request != 0 {
            names.retryAt = nil
            // The number 0 is of no call.
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

    /// Repeats the request for the token's alias, or gives up a connection that brings no answer.
    mutating func wakeNames(at now: ClientTime) {
        guard let deadline = names.deadline, now.monotonic >= deadline else { return }
        guard names.answerDeadline.map({ now.monotonic < $0 }) ?? true else {
            return abandon("no DeviceNamesResult within \(Limits.namesMilliseconds / 1_000) s", at: now)
        }
        sendNames(at: now)
    }
}
