internal import Delivery
internal import Directory
internal import EventLoops
internal import PushAPI
internal import Wire

/// Changes the aliases and tags of one partition's devices on request of the devices themselves.
///
/// A session has one request in progress. The device is described first: many apps repeat these calls at each start, and a name
/// that the device already has is not written again.
final class DeviceNamesHandler {
    /// The code of a `DeviceNamesResult` (docs/use/Errors.md, "DeviceNamesResult codes").
    ///
    /// Codes below 100 are permanent. From 100 on, the client retries after a delay.
    enum Code: UInt32, CaseIterable {
        case done = 0
        case notAllowed = 1
        case badName = 2
        case aliasFull = 3
        case tooMany = 4
        case notBound = 5
        case badToken = 6
        case tooOften = 100
        case busy = 102

        var reason: String {
            switch self {
            case .done: ""
            case .notAllowed: "the app's setting deviceMay does not allow it; the app's server can do it"
            case .badName: "a name is not valid"
            case .aliasFull: "the alias has as many devices as it may; unbind one of them first"
            case .tooMany: "the device has as many tags, or aliases of as many types, as it may"
            case .notBound: "the device does not have this alias"
            case .badToken: "the token of the app's server is not valid"
            case .tooOften: "the names were changed too often; send it again in a minute, a set of tags tomorrow"
            case .busy: "the gateway is busy, or an earlier request has no result yet; send it again in some seconds"
            }
        }
    }

    /// The most requests in progress on one partition; each holds at most about 8 KiB of names.
    static let runningLimit = 4_096
    /// The most requests of one session in a minute.
    static let requestsPerMinute = 30

    private unowned let owner: Partition
    private var running: Set<SessionRef> = []
    /// The requests of the sessions that had any in this minute.
    private var counts: [SessionRef: Int] = [:]
    private var minute: UInt64 = 0

    init(_ owner: Partition) { self.owner = owner }

    func take(_ names: DeviceNames, of session: SessionRef) {
        guard let source = owner.core.pointee.shard.source(of: session), let app = owner.registry[source.app] else {
            return send(names, .busy, to: session)
        }
        var names = names
        let isSigned = !names.token.isEmpty
        if isSigned {
            do throws(DeviceToken.Fault) {
                let token = try DeviceToken(names.token, app: app, now: owner.now)
                guard names.operation == .bindAlias, names.alias.isEmpty || names.alias == token.alias else {
                    throw DeviceToken.Fault(reason: "the token allows only its alias to be bound")
                }
                // A token without an alias only registers devices.
                guard !token.alias.isEmpty else { return send(names, .done, to: session) }
                (names.alias, names.aliasType, names.token) = (token.alias, token.aliasType, "")
            } catch {
                return send(names, .badToken, "\(error.reason)", to: session)
            }
        }
        let request: DeviceNamesRequest
        do throws(RefusedNames) {
            request = try DeviceNamesRequest(names, app: app.key, limits: owner.limits.users)
        } catch {
            return send(names, .badName, error.reason, to: session)
        }
        let isAllowed = isSigned || request.permission.map(app.deviceMay.contains) ?? !app.deviceMay.isEmpty
        guard isAllowed else { return send(names, .notAllowed, to: session) }
        guard !running.contains(session), running.count < Self.runningLimit else {
            return send(names, .busy, to: session)
        }
        guard isWithinRate(session) else { return send(names, .tooOften, to: session) }
        running.insert(session)
        let device = DevicePlace(cid: source.cid, bucket: app.bucket(of: source.cid))
        run(.each([device], .describe), app.key, names, of: session) { [self] outcomes in
            guard case .device(let detail)? = outcomes.first else { return end(names, .busy, of: session) }
            guard let work = request.work(of: device, as: detail) else {
                return end(names, .done, of: session) { result in
                    guard case .query(let type) = request else { return }
                    result.alias = detail.alias(ofType: type)?.text ?? ""
                    result.tags = detail.tags.map(\.text)
                }
            }
            run(work, app.key, names, of: session) { [self] in end(names, Self.code(of: $0), of: session) }
        }
    }

    func owesResult(_ session: SessionRef) -> Bool { !running.isEmpty && running.contains(session) }

    /// Forgets a closed session; its change may still be made.
    func forget(_ session: SessionRef) {
        if !running.isEmpty { running.remove(session) }
        if !counts.isEmpty { counts[session] = nil }
    }

    private func isWithinRate(_ session: SessionRef) -> Bool {
        let now = owner.loop.now / 60_000
        if now != minute { (minute, counts) = (now, [:]) }
        counts[session, default: 0] += 1
        return counts[session, default: 0] <= Self.requestsPerMinute
    }

    /// Runs an operation in a separate turn, because its steps may call the shard, which may be performing effects.
    private func run(
        _ work: DirectoryOperation.Work, _ app: AppKey, _ names: DeviceNames, of session: SessionRef,
        then: @escaping ([ItemOutcome]) -> Void
    ) {
        owner.host.inNextTurn { [weak self] host in
            let isTaken = host.directoryHandler.run(work, app: app) { then($0.outcomes) }
            if !isTaken { self?.end(names, .busy, of: session) }
        }
    }

    private static func code(of outcomes: [ItemOutcome]) -> Code {
        var worst = Code.done
        for outcome in outcomes {
            switch outcome {
            case .done: break
            case .full: worst = .aliasFull
            case .tooMany: worst = .tooMany
            case .tooOften: worst = .tooOften
            case .notHeld: worst = .notBound
            // Whether the device exists is known from its session.
            case .unknown, .failed, .device: return .busy
            }
        }
        return worst
    }

    private func end(
        _ names: DeviceNames, _ code: Code, of session: SessionRef, fill: (inout DeviceNamesResult) -> Void = { _ in }
    ) {
        // A closed session was forgotten, and its slot may have a new session.
        guard running.remove(session) != nil else { return }
        send(names, code, to: session, fill: fill)
        owner.sessions.settled(session)
    }

    private func send(
        _ names: DeviceNames, _ code: Code, _ reason: String? = nil, to session: SessionRef,
        fill: (inout DeviceNamesResult) -> Void = { _ in }
    ) {
        var result = DeviceNamesResult()
        (result.request, result.code, result.reason) = (names.request, code.rawValue, reason ?? code.reason)
        fill(&result)
        owner.sessions.send(session, result)
    }
}
