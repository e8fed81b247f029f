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
    /// The names, of a query.
    public var names: OwnNames

    init(_ result: DeviceNamesResult) {
        (request, code, reason) = (result.request, result.code, result.reason)
        names = OwnNames(alias: result.alias.isEmpty ? nil : result.alias, tags: result.tags)
    }

    fileprivate func checked() throws(LongwireClientError) -> OwnNames {
        guard code != 0 else { return names }
        throw LongwireClientError(code: code < Limits.firstRetriedCode ? .namesRefused : .tryLater, message: reason)
    }
}

extension LongwireClient {
    /// Binds an alias to this device; it replaces the device's alias of this type.
    ///
    /// The calls about names need the app's setting `deviceMay`. They wait for the gateway, also across reconnects, and are
    /// made one after the other. A repeated call costs no write.
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
    /// For another user on a registered device. A token in the configuration is bound automatically.
    ///
    /// - Throws: As `bindAlias`; `namesRefused` also for a token that is invalid or has expired.
    public func bindAlias(token: String) async throws(LongwireClientError) {
        try await request(.bindAlias) { $0.token = token }
    }

    /// Unbinds an alias from this device; other devices keep it.
    ///
    /// - Throws: As `bindAlias`; `namesRefused` also when the device does not have the alias.
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
        guard names.tags.count <= Wire.Limits.deviceTagCount,
            (names.tags + [names.alias, names.aliasType]).allSatisfy({ $0.utf8.count <= Wire.Limits.nameByteCount }),
            names.token.utf8.count <= Wire.Limits.webTokenByteCount
        else {
            throw LongwireClientError(
                code: .namesRefused,
                message: """
                    a name has at most \(Wire.Limits.nameByteCount) bytes, and a device at most \
                    \(Wire.Limits.deviceTagCount) tags; a token has at most \(Wire.Limits.webTokenByteCount) bytes
                    """)
        }
        return try await ask(names).checked()
    }

    private func ask(_ names: DeviceNames) async throws(LongwireClientError) -> NamesAnswer {
        let answer = await withCheckedContinuation { continuation in
            var names = names
            names.request = namesBoard.add(continuation)
            if !calls.post(.names(names)) { namesBoard.end(names.request) }
        }
        guard let answer else {
            throw LongwireClientError(
                code: .wrongState, message: "the client does not run or has stopped; start it and call again")
        }
        return answer
    }
}

/// The callers that wait for an answer about names.
final class NamesBoard: Sendable {
    private struct State {
        var last: UInt32 = 0
        var waiting: [UInt32: CheckedContinuation<NamesAnswer?, Never>] = [:]
    }

    private let state = Guarded(State())

    /// Returns the number of the request.
    func add(_ continuation: CheckedContinuation<NamesAnswer?, Never>) -> UInt32 {
        state.withValue { state in
            repeat { state.last = state.last == .max ? 1 : state.last + 1 } while state.waiting[state.last] != nil
            state.waiting[state.last] = continuation
            return state.last
        }
    }

    func note(_ event: ClientEvent) {
        switch event {
        case .namesAnswered(let answer): end(answer.request, answer)
        case .stopped:
            let waiting = state.withValue { state in
                defer { state.waiting = [:] }
                return state.waiting
            }
            for continuation in waiting.values { continuation.resume(returning: nil) }
        default: break
        }
    }

    func end(_ request: UInt32, _ answer: NamesAnswer? = nil) {
        state.withValue { $0.waiting.removeValue(forKey: request) }?.resume(returning: answer)
    }
}

extension ClientCore {
    /// The requests about names, and whether the first is in flight.
    struct Names {
        var waiting: [DeviceNames] = []
        var isSent = false
    }

    mutating func ask(_ names: DeviceNames, at now: ClientTime) {
        guard self.names.waiting.count < Limits.namesCount else {
            var result = DeviceNamesResult()
            (result.request, result.code) = (names.request, Limits.busyCode)
            result.reason = "\(Limits.namesCount) requests about names wait for the gateway already; call again later"
            return actions.append(.report(.namesAnswered(NamesAnswer(result))))
        }
        self.names.waiting.append(names)
        sendNames(at: now)
    }

    /// Requests the alias of the configuration's token before other requests, under the number 0, which no call has.
    ///
    /// The alias is thus bound even if the process ended between the registration and the first result.
    mutating func bindTokensAlias() {
        let token = configuration.registrationToken
        guard !token.isEmpty, names.waiting.first?.token != token else { return }
        var request = DeviceNames()
        (request.operation, request.token) = (.bindAlias, token)
        names.waiting.insert(request, at: 0)
    }

    /// Sends the first waiting request; one is in flight, so that the changes are made in the order of the calls.
    ///
    /// A request without an answer is sent again after a reconnect: each sets a state, so a repeat changes nothing.
    mutating func sendNames(at now: ClientTime) {
        guard phase == .ready, !names.isSent, let first = names.waiting.first else { return }
        names.isSent = true
        send(first, at: now)
    }

    mutating func receive(_ result: DeviceNamesResult, at now: ClientTime) {
        guard names.isSent, names.waiting.first?.request == result.request else { return }
        names.isSent = false
        names.waiting.removeFirst()
        actions.append(.report(.namesAnswered(NamesAnswer(result))))
        sendNames(at: now)
    }
}
