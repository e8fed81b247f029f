internal import Cluster
internal import Configuration
internal import Cryptography
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Redis
internal import TextForms
internal import Wire

/// A wrong setting, in this gateway or in Redis, that prevents a gateway from joining its cluster.
struct ClusterFailure: Error, CustomStringConvertible {
    let description: String
}

/// This gateway as a member of its cluster: the store on Redis, the register, the links, and the membership.
///
/// Only the control thread creates and stops it. Without `cluster.listen` it is the cluster's only gateway and has no links.
final class ClusterNode {
    let context: ClusterContext
    let engine: RedisEngine
    let partCount: Int
    let queueEpoch: UInt64
    /// The store's history at the time of the join.
    let history: StoreHistory
    let tokenKey: [UInt8]
    private let log: Log
    private let time: SharedTime
    private let host: ClusterHost
    private let links: ClusterLinks
    private let register: RedisRegister
    private let runner: MembershipRunner
    private let histories: HistoryService
    private let counts = Lock(ClusterFigures.Counts())
    private var isClockOff = false
    private var isClockRefused = false
    private var droppedNews: UInt64 = 0
    private var hasStarted = false

    /// Checks the Redis servers' settings and joins the cluster; retries while the servers have a temporary problem.
    ///
    /// - Throws: `ClusterFailure` with every wrong setting and its remedy, `ListenFailure` for `cluster.listen`, `StoreError`,
    ///   `StartInterrupted`.
    init(
        _ configuration: GatewayConfiguration, loops: [EventLoop], log: Log, time: SharedTime, spares: SpareBatches,
        acceptsClock: Bool, wait: StartWait
    ) throws {
        guard let redis = configuration.redis, let settings = configuration.cluster else {
            preconditionFailure("a cluster needs store.redis")
        }
        (self.log, self.time) = (log, time)
        let servers = RedisCluster(
            seeds: redis.nodes.map { RedisAddress(host: $0.host, port: $0.port) },
            network: RedisSockets(try Self.access(redis)))
        for finding in try Self.check(servers, settings.name, redis, acceptsClock: acceptsClock, wait) {
            log.write(.warning, .redisEvent, [.detail: .text(finding.description)])
        }
        let instance = SecureRandom.word()
        let info = Self.info(settings)
        register = RedisRegister(servers, name: settings.name, minReplicas: redis.minReplicas)
        let constantsIfNew = ClusterConstants(
            format: RegisterKeys.format, partCount: settings.partCount, tokenKey: SecureRandom.bytes(32),
            queueEpoch: SecureRandom.word() | 1)
        let (joined, sentAt) = try ClusterJoin(
            request: JoinRequest(instance: instance, info: info, constants: constantsIfNew), name: settings.name
        ).join(register, pause: wait.pause)
        let constants = joined.constants
        (partCount, queueEpoch, tokenKey) = (constants.partCount, constants.queueEpoch, constants.tokenKey)
        history = StoreHistory(constants.history)
        let histories = HistoryService(history, log)
        self.histories = histories
        let hub: ClusterTransport?
        if let listen = settings.listen {
            guard !settings.secrets.isEmpty else {
                throw ClusterFailure(description: "cluster.secretFile: missing; cluster.listen needs it")
            }
            let key: TLSContext
            do throws(TLSFailure) {
                key = try TLSContext(psk: Self.keys(settings))
            } catch { throw ClusterFailure(description: "cluster.secretFile: \(error)") }
            hub = try ClusterTransport(
                listen: listen.description,
                settings: LinkSettings(
                    cluster: settings.name, release: Version.text, parts: constants.partCount, tls: key,
                    instance: instance), batches: spares)
        } else {
            hub = nil
        }
        let links = ClusterLinks(hub)
        let context = ClusterContext(node: Int(joined.node.number), partCount: constants.partCount, links: links)
        context.setGatewayCount(joined.snapshot.members.count)
        (self.links, self.context) = (links, context)
        var engineSettings = RedisEngine.Configuration()
        engineSettings.name = settings.name
        engineSettings.minReplicas = redis.minReplicas
        engineSettings.logByteLimit = Int(configuration.limits.journalBytes)
        engineSettings.requestByteLimit = Int(configuration.limits.requestBytes)
        engineSettings.traceByteLimit = Int(configuration.limits.traceBytes)
        engineSettings.uncommittedByteLimit = configuration.limits.uncommittedBytes
        engineSettings.youngMilliseconds = UInt64(configuration.limits.spillAfterSeconds * 1_000)
        engineSettings.now = { time.now }
        let name = settings.name
        engineSettings.claimedEpoch = { RedisRegister.claimedEpoch(of: $0, servers, name: name) }
        engineSettings.report = { event in
            log.write(event.isError ? .error : .warning, .redisEvent, [.detail: .text("\(event)")])
        }
        engineSettings.renewHistory = { histories.renew($0) }
        engine = try RedisEngine(servers, engineSettings)
        let host = ClusterHost(
            engine: engine, cluster: context, partCount: constants.partCount, loops: loops, time: time)
        self.host = host
        runner = MembershipRunner(
            register, joined: joined, instance: instance, info: info, sentAt: sentAt,
            outlet: Self.outlet(host, links, context, log, time, counts, histories))
        openPages(settings.name)
        log.write(
            .info, .clusterJoined,
            [
                .name: .text(settings.name), .node: LogValue(Int(joined.node.number)),
                .count: LogValue(joined.snapshot.members.count), .address: .text(info.address),
            ])
    }

    // MARK: Joining

    private static func access(_ redis: RedisConfiguration) throws -> RedisAccess {
        guard let tls = redis.tls else { return RedisAccess(user: redis.user, password: redis.password?.exposed) }
        do throws(TLSFailure) {
            let certificate = tls.certificateFile.map { (path: $0, keyPath: tls.keyFile) }
            let security = try RedisAccess.Security(
                caFile: tls.authoritiesFile, serverName: tls.serverName, certificate: certificate)
            return RedisAccess(user: redis.user, password: redis.password?.exposed, security: security)
        } catch { throw ClusterFailure(description: "store.redis.tls: \(error)") }
    }

    /// Rejects servers whose settings break the store's guarantees, and retries while servers have a temporary problem.
    ///
    /// - Returns: The findings that do not prevent a start.
    private static func check(
        _ servers: RedisCluster, _ name: String, _ redis: RedisConfiguration, acceptsClock: Bool, _ wait: StartWait
    ) throws -> [RedisProblem] {
        while true {
            var trouble = ""
            var found: [RedisProblem] = []
            do throws(RedisError) {
                found = try RedisSettings.check(servers, name: name, minReplicas: redis.minReplicas)
                // The clock of a machine that has just booted may be wrong until NTP has synchronized.
                if !acceptsClock, !found.contains(where: { $0.kind == .passing }),
                    let problem = try ClockCheck.problem(servers)
                {
                    trouble = problem + ", or with --accept-clock"
                }
            } catch {
                guard error.isPassing else {
                    throw ClusterFailure(description: "store.redis: \(TerminalText.plain("\(error)"))")
                }
                trouble =
                    "store.redis: no server of \(redis.nodes.map(\.description).joined(separator: ", ")) answers: \(error)"
            }
            let wrong = found.filter { $0.kind == .wrong || $0.kind == .unread && !redis.assumesFsync }
            guard wrong.isEmpty else {
                throw ClusterFailure(
                    description: wrong.map { TerminalText.plain($0.description) }.joined(separator: "\n"))
            }
            let passing = found.filter { $0.kind == .passing }
            if !passing.isEmpty { trouble = passing.map(\.description).joined(separator: "\n") }
            guard !trouble.isEmpty else { return found }
            try wait.pause(for: trouble)
        }
    }

    /// Returns the links' pre-shared keys; this gateway offers the first one to peers, and accepts each of them.
    private static func keys(_ settings: ClusterConfiguration) throws(TLSFailure) -> [PresharedKey] {
        var keys: [PresharedKey] = []
        for secret in settings.secrets {
            keys.append(try PresharedKey(secret: Array(secret.exposed.utf8), group: settings.name))
        }
        return keys
    }

    private static func info(_ settings: ClusterConfiguration) -> MemberInfo {
        var info = MemberInfo()
        info.address = settings.listen == nil ? "" : (settings.advertise ?? settings.listen)?.description ?? ""
        info.release = Version.text
        // A secret that is too short has no mark; the start of the links reports the error.
        info.secretMarks = ((try? Self.keys(settings)) ?? []).map(\.mark)
        info.deviceAddress = settings.deviceAddress?.description ?? ""
        info.deviceTLSAddress = settings.deviceTLSAddress?.description ?? ""
        return info
    }

    // MARK: Actions of the membership

    private static func outlet(
        _ host: ClusterHost, _ links: ClusterLinks, _ context: ClusterContext, _ log: Log, _ time: SharedTime,
        _ counts: Lock<ClusterFigures.Counts>, _ histories: HistoryService
    ) -> MembershipRunner.Outlet {
        MembershipRunner.Outlet(
            seat: { host.open($0, epoch: $1) },
            unseat: { host.close($0, epoch: $1) },
            route: { host.setRoute($0, to: $1.map { Int($0.number) } ?? 0) },
            link: { addresses in
                links.setPeers(
                    Dictionary(uniqueKeysWithValues: addresses.map { (Int($0.key.number), $0.value) }))
            },
            renumber: { node in
                context.renumber(Int(node.number))
                links.renumber(Int(node.number))
            },
            members: { members in
                context.setGatewayCount(members.count)
                context.setDeviceAddresses(
                    Dictionary(
                        uniqueKeysWithValues: members.map { node, info in
                            let addresses = DeviceAddresses(
                                plain: info.deviceAddress.isEmpty ? nil : info.deviceAddress,
                                secure: info.deviceTLSAddress.isEmpty ? nil : info.deviceTLSAddress)
                            return (Int(node.number), addresses)
                        }))
            },
            history: { histories.take(StoreHistory($0)) },
            nudge: { links.nudge(Int($0.number)) },
            tell: { event in
                counts.withLock { $0.note(event) }
                log.write(event.level, event.logName, [.detail: .text(event.text)])
            },
            failed: { log.write(.warning, .clusterRegisterFailed, [.error: .text("\($0)")]) },
            clock: { time.now ?? 0 })
    }

    // MARK: Start and stop

    /// The highest gateway time that any gateway of the cluster has recorded.
    var clockFloor: Int64 { runner.view.clockFloor }
    var view: MembershipRunner.View { runner.view }

    /// Checks readiness, the lease, the clock and dropped news about once a second.
    func tend() {
        let view = runner.view
        if hasStarted {
            host.tend()
            let isHeld = view.membership.health(now: SystemClock.monotonicTime) != .registerUnreachable
            links.hub?.setLease(isHeld ? .held : .ended)
            host.context.followCutOff(view.health(context, links, hasWorkingPart: engine.hasWorkingPart).isCutOff)
        }
        if let clock = view.refusedClock, !isClockRefused {
            log.write(
                .error, .clusterClockRefused, [.detail: .text("\(clock) in the register, milliseconds since 1970")])
        }
        isClockRefused = view.refusedClock != nil
        let offset = view.clockOffset
        if !isClockOff, abs(offset) > ClockCheck.longestOffset {
            isClockOff = true
            log.write(.warning, .clusterClockOff, [.offsetMilliseconds: LogValue(offset)])
        } else if isClockOff, abs(offset) < ClockCheck.agreedOffset {
            isClockOff = false
            log.write(.info, .clusterClockAgrees)
        }
        let dropped = links.hub?.statistics.droppedNews ?? 0
        if dropped > droppedNews {
            log.write(.warning, .linkNewsDropped, [.count: LogValue(dropped - droppedNews)])
            droppedNews = dropped
        }
    }

    private func openPages(_ name: String) {
        let (runner, links, counts, engine) = (runner, links, counts, engine)
        context.setPages(
            ClusterContext.Pages(
                status: { runner.view.status(name) },
                health: { runner.view.health($0, links, hasWorkingPart: engine.hasWorkingPart) },
                figures: { runner.view.figures($0, links, counts.withLock { $0 }) },
                wish: { request, done in
                    guard let wish = RegisterRequest(request, own: runner.view.node, parts: runner.view.partCount)
                    else {
                        return done(ClusterAnswer.refused("the cluster has no such part, or no such gateway"))
                    }
                    runner.wish(wish) { error in
                        switch error {
                        case nil: done(ClusterAnswer.done)
                        case .unavailable(let reason):
                            done(.adminUnavailable("the register cannot be reached: \(reason)"))
                        case let error?: done(ClusterAnswer.refused("\(error)"))
                        }
                    }
                }))
    }

    /// Starts to own partitions; the loops must be running.
    func start(_ gateway: GatewayContext, mailboxes: [Mailbox<Mail>]) throws {
        hasStarted = true
        try host.start(gateway) { [runner, log] report in
            switch report {
            case .opened(let part, let epoch): runner.take(.opened(part: part, epoch: epoch))
            case .lost(let part, let epoch): runner.take(.lost(part: part, epoch: epoch))
            case .closed(let part, let epoch): runner.take(.closed(part: part, epoch: epoch))
            case .failed(let part, let epoch, .epochTaken(_, let top)):
                runner.take(.epochTaken(part: part, epoch: epoch, top: top))
            case .failed(let part, let epoch, let error):
                log.write(.error, .partNotOpened, [.part: LogValue(part), .error: .text("\(error)")])
                var isDamaged = false
                switch error {
                case .damagedLog, .foreignEntry, .damagedRow: isDamaged = true
                default: break
                }
                runner.take(.openFailed(part: part, epoch: epoch, isDamaged: isDamaged))
            }
        }
        try links.start(gateway, node: context.node, mailboxes: mailboxes) { [runner, log, host] event in
            switch event {
            case .up(let node, let release):
                log.write(event.level, .linkUp, [.node: LogValue(node), .version: .text(release)])
                host.linked(node)
                if let node = NodeID(node) { runner.take(.linkUp(node)) }
            case .down(let node, let wasRefused, let reason):
                log.write(event.level, .linkDown, [.node: LogValue(node), .reason: .text(reason)])
                if let node = NodeID(node) { runner.take(wasRefused ? .linkRefused(node) : .linkDown(node)) }
            case .heard(let node): host.heard(node)
            case .refused(let peer, _, let reason):
                log.write(event.level, .linkRefused, [.peer: .text(peer), .reason: .text(reason)])
            }
        } nudged: { [runner] in
            runner.nudge()
        }
        histories.begin(gateway, runner)
        try runner.start()
    }

    /// Hands all partitions over within a time limit, or closes them if no other gateway exists.
    func leave(withinMilliseconds limit: Int64) {
        guard hasStarted else { return }
        runner.take(.leave)
        let end = SystemClock.monotonicTime + limit
        while SystemClock.monotonicTime < end, !runner.view.hasLeft { Pause.milliseconds(10) }
        if !runner.view.hasLeft { log.write(.warning, .clusterLeftEarly) }
    }

    /// Stops membership and openings, before the loops end.
    func beginStop() {
        guard hasStarted else { return }
        runner.stop()
        host.beginStop()
    }

    /// Releases all resources, after the loops have ended.
    func stop() {
        if hasStarted {
            runner.stop()
            links.stop()
            host.stop()
        }
        histories.end()
        register.close()
        engine.close()
    }
}

/// The history of the cluster's store, shared by the engine that detects a loss, the register and the loops.
private final class HistoryService: Sendable {
    private struct State {
        var history: StoreHistory
        var gateway: GatewayContext?
        var runner: MembershipRunner?
    }

    private let state: Lock<State>
    private let log: Log

    init(_ history: StoreHistory, _ log: Log) {
        (state, self.log) = (Lock(State(history: history)), log)
    }

    func begin(_ gateway: GatewayContext, _ runner: MembershipRunner) {
        state.withLock { ($0.gateway, $0.runner) = (gateway, runner) }
    }

    func end() { state.withLock { ($0.gateway, $0.runner) = (nil, nil) } }

    /// Requests a new history after Redis lost durable entries, because the partition's next owner may reuse the entries'
    /// numbers.
    func renew(_ done: @escaping @Sendable (_ isRenewed: Bool) -> Void) {
        guard let runner = state.withLock({ $0.runner }) else { return done(false) }
        runner.renewHistory(done)
    }

    func take(_ history: StoreHistory) {
        let gateway: GatewayContext? = state.withLock { state in
            guard state.history != history else { return nil }
            state.history = history
            return state.gateway
        }
        guard let gateway else { return }
        log.write(.warning, .historyChanged, [.reason: .text("redis"), .detail: .text("\(history)")])
        gateway.begin(history)
    }
}

extension StoreHistory {
    init(_ history: ClusterHistory) { self.init(id: history.id, began: history.began) }
}

extension RedisEngine.Event {
    /// Whether durable entries may be lost, or a partition is blocked until an operator acts.
    fileprivate var isError: Bool {
        switch self {
        case .entriesLost, .streamLost, .logIsOlder, .entriesMissing, .foreignEntry, .settingsWrong: true
        case .commitFailed, .waitingForReplicas, .memoryFilled, .memoryFreed, .settingsRight, .spillFailed: false
        }
    }
}

extension RegisterRequest {
    /// Converts a request of the admin API; returns `nil` if the partition or gateway is out of range.
    fileprivate init?(_ request: ClusterRequest, own: NodeID, parts: Int) {
        func node(_ number: Int?) -> NodeID? { number.map { NodeID($0) } ?? own }
        switch request {
        case .drain(let number):
            guard let node = node(number) else { return nil }
            self = .drain(node)
        case .undrain(let number):
            guard let node = node(number) else { return nil }
            self = .undrain(node)
        case .move(let part, let to):
            guard part < parts else { return nil }
            self = .move(part: part, to: to.flatMap { NodeID($0) })
        }
    }
}

extension MembershipRunner.View {
    fileprivate var partCount: Int { snapshot.entries.count }

    fileprivate func status(_ name: String) -> ClusterStatus {
        let now = SystemClock.monotonicTime
        var status = ClusterStatus(
            name: name, node: Int(node.number), registerAgeMilliseconds: max(0, now - renewedAt),
            registerError: failure.map { "\($0)" })
        // The server's time at the last renewal plus the time since then.
        let serverTime = snapshot.serverTime + max(0, now - renewedAt)
        for (node, member) in snapshot.members.sorted(by: { $0.key < $1.key }) {
            status.nodes.append(
                ClusterStatus.Node(
                    node: Int(node.number), address: member.info.address, release: member.info.release,
                    leaseMilliseconds: max(0, member.leaseEnd - serverTime), isDrained: snapshot.drained.contains(node),
                    isLeaving: member.info.isLeaving))
        }
        for (part, entry) in snapshot.entries.enumerated() {
            let state =
                switch entry.state {
                case .unclaimed: "unclaimed"
                case .claimed: "claimed"
                case .open: "open"
                case .released: "released"
                case .failed: "failed"
                }
            status.parts.append(
                ClusterStatus.Part(
                    part: part, state: state, epoch: entry.epoch, node: entry.owner.map { Int($0.number) } ?? 0))
        }
        return status
    }
}
