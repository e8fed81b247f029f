internal import Delivery
internal import Directory
internal import EventLoops
internal import PushAPI
internal import Wire

/// A partition's handler of DeviceNames, with which devices change their own aliases and tags.
///
/// A session has one request in progress. The handler first reads the device's names and writes only differences, because many
/// apps repeat their calls at each start.
final class DeviceNamesHandler {
    /// The code of a `DeviceNamesResult` (docs/use/Errors.md, "DeviceNamesResult codes").
    ///
    /// Codes below 100 are permanent. From 100 on, the request may be repeated after a delay.
    enum Code: UInt32, CaseIterable {
        case done = 0
        case notAllowed = 1
        case badName = 2
        case aliasFull = 3
        case tooMany = 4
        case badToken = 5
        case tooOften = 100
        case busy = 102

        var reason: String {
            switch self {
            case .done: ""
            case .notAllowed: "the app's setting deviceMay does not allow it; the app's server can do it"
            case .badName: "a name is not valid"
            case .aliasFull: "the alias has as many devices as it may; unbind one of them first"
            case .tooMany: "the device has as many tags, or aliases of as many types, as it may"
            case .badToken: "the token of the app's server is not valid"
            case .tooOften: "the names were changed too often; send it again in a minute, a set of tags tomorrow"
            case .busy: "the gateway is busy, or an earlier request has no result yet; send it again in some seconds"
            }
        }
    }

    /// The maximum number of requests in progress on one partition, and of one app on the partition.
    static let runningLimit = 4_096
    static let runningLimitOfApp = 1_024
    /// The maximum number of requests of one session in a minute, including refused ones.
    static let requestsPerMinute = 30

    private unowned let owner: Partition
    private var running: [SessionRef: AppKey] = [:]
    private var runningOfApp: [AppKey: Int] = [:]
    /// The number of requests in the current minute, by session.
    private var counts: [SessionRef: Int] = [:]
    private var minute: UInt64 = 0

    init(_ owner: Partition) { self.owner = owner }

    func take(_ names: DeviceNames, of session: SessionRef) {
        let number = names.request
        guard isWithinRate(session) else { return send(number, .tooOften, to: session) }
        guard let source = owner.core.pointee.shard.source(of: session), let app = owner.registry[source.app],
            running[session] == nil, running.count < Self.runningLimit,
            runningOfApp[source.app, default: 0] < Self.runningLimitOfApp
        else { return send(number, .busy, to: session) }
        let request: DeviceNamesRequest
        do throws(Refused) {
            request = try Self.read(names, app, owner.limits.users, now: owner.now)
        } catch {
            return send(number, error.code, error.reason, to: session)
        }
        running[session] = app.key
        runningOfApp[app.key, default: 0] += 1
        let device = DevicePlace(cid: source.cid, bucket: app.bucket(of: source.cid))
        run(.each([device], .describe), app.key, number, of: session) { [self] outcomes in
            guard case .device(let detail)? = outcomes.first else { return end(number, .busy, of: session) }
            guard let work = request.work(of: device, as: detail) else {
                return end(number, .done, of: session) { result in
                    guard case .query(let type) = request else { return }
                    result.alias = detail.alias(ofType: type)?.text ?? ""
                    result.tags = detail.tags.map(\.text)
                }
            }
            run(work, app.key, number, of: session) { [self] in end(number, Self.code(of: $0), of: session) }
        }
    }

    private struct Refused: Error {
        var code: Code
        var reason: String?
    }

    /// Checks the names, and the device's permission: the app's `deviceMay`, or a token for the alias.
    private static func read(
        _ names: DeviceNames, _ app: App, _ limits: UserLimits, now: GatewayTime
    ) throws(Refused) -> DeviceNamesRequest {
        var names = names
        let isSigned = !names.token.isEmpty
        if isSigned {
            do throws(ServerToken.Fault) {
                let token = try ServerToken(names.token, app: app, now: now)
                guard !token.alias.isEmpty else { throw ServerToken.Fault(reason: "the token has no sub to bind") }
                guard names.operation == .bindAlias, names.alias.isEmpty || names.alias == token.alias,
                    names.aliasType.isEmpty || names.aliasType == token.aliasType
                else { throw ServerToken.Fault(reason: "the token allows only its alias to be bound") }
                (names.alias, names.aliasType) = (token.alias, token.aliasType)
            } catch {
                throw Refused(code: .badToken, reason: "\(error.reason)")
            }
        }
        let request: DeviceNamesRequest
        do throws(RefusedNames) {
            request = try DeviceNamesRequest(names, app: app.key, limits: limits)
        } catch {
            throw Refused(code: .badName, reason: error.reason)
        }
        guard isSigned || request.permission.map(app.deviceMay.contains) ?? !app.deviceMay.isEmpty else {
            throw Refused(code: .notAllowed)
        }
        return request
    }

    func owesResult(_ session: SessionRef) -> Bool { !running.isEmpty && running[session] != nil }

    /// Removes a closed session.
    ///
    /// A change in progress is still completed.
    func forget(_ session: SessionRef) {
        _ = stop(session)
        if !counts.isEmpty { counts[session] = nil }
    }

    /// Removes the session's request in progress; returns false if there is none.
    private func stop(_ session: SessionRef) -> Bool {
        guard !running.isEmpty, let app = running.removeValue(forKey: session) else { return false }
        let rest = runningOfApp[app, default: 1] - 1
        runningOfApp[app] = rest == 0 ? nil : rest
        return true
    }

    private func isWithinRate(_ session: SessionRef) -> Bool {
        let now = owner.loop.now / 60_000
        if now != minute { (minute, counts) = (now, [:]) }
        counts[session, default: 0] += 1
        return counts[session, default: 0] <= Self.requestsPerMinute
    }

    /// Runs an operation in the next turn, because its steps may call the shard, which may be performing its effects.
    ///
    /// `then` is called only while the session is open, because operations of the host can outlive the partition.
    private func run(
        _ work: DirectoryOperation.Work, _ app: AppKey, _ number: UInt32, of session: SessionRef,
        then: @escaping ([ItemOutcome]) -> Void
    ) {
        owner.host.inNextTurn { [weak self] host in
            guard let self, running[session] != nil else { return }
            let isTaken = host.directoryHandler.runForDevice(work, app: app) { [weak self] operation in
                guard let self, running[session] != nil else { return }
                then(operation.outcomes)
            }
            if !isTaken { end(number, .busy, of: session) }
        }
    }

    private static func code(of outcomes: [ItemOutcome]) -> Code {
        switch outcomes.first {
        // Unbinding an alias that the device does not have succeeds.
        case .done, .notHeld: .done
        case .full: .aliasFull
        case .tooMany: .tooMany
        case .tooOften: .tooOften
        // The device has a session and therefore exists, so even `.unknown` is a temporary failure.
        case .unknown, .failed, .device, nil: .busy
        }
    }

    private func end(
        _ number: UInt32, _ code: Code, of session: SessionRef, fill: (inout DeviceNamesResult) -> Void = { _ in }
    ) {
        guard stop(session) else { return }
        send(number, code, to: session, fill: fill)
        owner.sessions.settled(session)
    }

    private func send(
        _ number: UInt32, _ code: Code, _ reason: String? = nil, to session: SessionRef,
        fill: (inout DeviceNamesResult) -> Void = { _ in }
    ) {
        var result = DeviceNamesResult()
        (result.request, result.code, result.reason) = (number, code.rawValue, reason ?? code.reason)
        fill(&result)
        owner.sessions.send(session, result)
    }
}
