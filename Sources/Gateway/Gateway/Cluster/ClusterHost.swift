internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

/// What the cluster's membership wants of this gateway, carried out: parts opened and closed, routes, links.
final class ClusterHost: @unchecked Sendable {
    // Sound because what changes is behind locks; `context` is set once, before anything runs.

    /// What became of a part.
    enum Report: Sendable {
        case opened(Int, epoch: UInt64)
        case failed(Int, epoch: UInt64, StoreError)
        case lost(Int, epoch: UInt64)
        case closed(Int, epoch: UInt64)
    }

    private struct State {
        /// The epochs under which parts are wanted here.
        var wanted: [Int: UInt64] = [:]
        /// Parts that are being opened, served or closed here.
        var openings: [Int: PartOpening] = [:]
        /// Epochs under which such a part is to be opened as soon as it is closed.
        var next: [Int: UInt64] = [:]
        /// The void tokens were told since the start.
        var knowsTokens = false
        var isAskingForTokens = false
        var startedAt: Int64 = 0
        var work: [@Sendable () -> Void] = []
        var isStopping = false
    }

    /// Parts are opened at once in this number; each waits for Redis most of the time.
    private static let workerCount = 4
    /// A part that is given away finishes within two seconds (`Partition.release`).
    private static let answerMilliseconds: Int64 = 3_000

    let engine: RedisEngine
    let cluster: ClusterContext
    let time: SharedTime
    let partCount: Int
    private let loops: [EventLoop]
    private let state = Monitor(State())
    private let reported = Lock<@Sendable (Report) -> Void>({ _ in })
    private var threads: [JoinableThread] = []
    private var boxedContext: GatewayContext?

    /// - Parameters:
    ///   - engine: opens and closes the parts.
    ///   - cluster: learns who owns them.
    ///   - partCount: how many there are.
    ///   - loops: those of the parts, by part modulo their number.
    ///   - time: gateway time.
    init(engine: RedisEngine, cluster: ClusterContext, partCount: Int, loops: [EventLoop], time: SharedTime) {
        (self.engine, self.cluster, self.partCount) = (engine, cluster, partCount)
        (self.loops, self.time) = (loops, time)
    }

    var context: GatewayContext {
        guard let boxedContext else { preconditionFailure("the host is asked before the gateway is made") }
        return boxedContext
    }

    func loop(of part: Int) -> EventLoop { loops[part % loops.count] }

    /// Begins to work; `report` is called from any thread.
    func start(_ context: GatewayContext, report: @escaping @Sendable (Report) -> Void) throws(SystemError) {
        boxedContext = context
        state.withLock { $0.startedAt = SystemClock.monotonicTime }
        reported.withLock { $0 = report }
        for number in 0..<Self.workerCount {
            threads.append(try JoinableThread(named: "part-\(number)") { [unowned self] in self.work() })
        }
    }

    /// Opens nothing any more; what is being opened is given up.
    func beginStop() {
        state.broadcast { state in
            state.isStopping = true
            (state.wanted, state.next) = ([:], [:])
        }
    }

    /// Waits for the workers' last steps; the loops have ended.
    func stop() {
        beginStop()
        for thread in threads { thread.join() }
        threads = []
        for opening in state.withLock({ $0.openings.values }) { opening.closeLeftover() }
    }

    func report(_ report: Report) {
        reported.withLock { $0 }(report)
        switch report {
        case .opened, .lost: break
        case .failed(let part, let ended, _), .closed(let part, let ended):
            var epoch: UInt64?
            state.broadcast { state in
                guard state.openings[part]?.epoch == ended else { return }
                state.openings[part] = nil
                epoch = state.next.removeValue(forKey: part)
            }
            if let epoch { open(part, epoch: epoch) }
        }
    }

    // MARK: Workers

    func onWorker(_ work: @escaping @Sendable () -> Void) { state.broadcast { $0.work.append(work) } }

    private func work() {
        while true {
            let next: (@Sendable () -> Void)? = state.wait(while: { $0.work.isEmpty && !$0.isStopping }) { state in
                state.work.isEmpty ? nil : state.work.removeFirst()
            }
            guard let next else { return }
            next()
        }
    }

    // MARK: Parts

    /// Begins to serve a part under an epoch; ends with `opened`, `failed` or, if it is given up meanwhile, `closed`.
    func open(_ part: Int, epoch: UInt64) {
        let opening = PartOpening(part, epoch: epoch, host: self)
        var isFree = false
        state.broadcast { state in
            guard !state.isStopping else { return }
            state.wanted[part] = epoch
            isFree = state.openings[part] == nil
            // The present owner's steps come first: one part is open here once.
            if isFree { state.openings[part] = opening } else { state.next[part] = epoch }
        }
        if isFree { onWorker { opening.open() } }
    }

    /// Stops serving it; ends with `closed`.
    func close(_ part: Int, epoch: UInt64, isLost: Bool = false) {
        var opening: PartOpening?
        state.broadcast { state in
            if state.wanted[part] == epoch { state.wanted[part] = nil }
            // A call about an earlier epoch may come late: it does not close the present ownership.
            if let present = state.openings[part], present.epoch == epoch { opening = present }
        }
        guard let opening else { return }
        if cluster.owner(of: part) == cluster.node { cluster.setOwner(0, of: part) }
        context.submit(to: part) { partition in
            // Still being opened: the opening sees that it is given up, and ends it.
            guard partition.isServing, opening.isOwned else { return }
            partition.release(isLost: isLost) { [self] in
                onWorker { [self] in
                    engine.closePart(part)
                    report(.closed(part, epoch: epoch))
                }
            }
        }
    }

    /// The part's log obeys another owner.
    func partLost(_ part: Int, epoch: UInt64) {
        report(.lost(part, epoch: epoch))
        close(part, epoch: epoch, isLost: true)
    }

    func isGivenUp(_ part: Int, epoch: UInt64) -> Bool { state.withLock { $0.wanted[part] != epoch } }

    /// The part is served here from now on.
    func served(_ part: Int) {
        cluster.setOwner(cluster.node, of: part)
        readyIfServed()
        suspectJobs(in: [part])
        announceBroadcasts(to: part)
        // Broadcasts of its own apps, for the parts that started while nobody had it.
        let count = context.partitionCount
        context.submit(to: part) { partition in
            for other in 0..<count where other != part { partition.announceBroadcasts(to: other) }
        }
    }

    /// What is for a part goes to this node from now on; 0: nobody has it.
    func setRoute(_ part: Int, to node: Int) {
        let before = cluster.owner(of: part)
        // While the part is served here, its own opening and release set the owner.
        guard node != cluster.node, before != cluster.node || isGivenUpAltogether(part), node != before else { return }
        cluster.setOwner(node, of: part)
        if before != 0, before != cluster.node { forgetLater(part, at: before) }
        guard node != 0 else { return }
        readyIfServed()
        suspectJobs(in: [part])
        announceBroadcasts(to: part)
        if part == 0 { askForTokens() }
    }

    /// Gives a former owner time to answer what it has accepted; the rest is answered as busy.
    private func forgetLater(_ part: Int, at node: Int) {
        let links = cluster.links
        context.host(of: part).submit { host in
            host.campaigns.coordinator.later(Self.answerMilliseconds) { links.forget(part: part, at: node) }
        }
    }

    /// A link to a gateway is there, perhaps again: it may have missed what was told meanwhile.
    func linked(_ node: Int) {
        let parts = (0..<partCount).filter { cluster.owner(of: $0) == node }
        suspectJobs(in: parts)
        for part in parts {
            announceBroadcasts(to: part)
            if part == 0 { askForTokens() }
        }
    }

    /// A gateway's own link to this one is there, perhaps again: what it told meanwhile did not come.
    func heard(_ node: Int) {
        suspectJobs(in: (0..<partCount).filter { cluster.owner(of: $0) == node })
        if cluster.owner(of: 0) == node { askForTokens() }
    }

    /// Makes every loop ask these parts for due jobs again, regardless of their earlier answers.
    private func suspectJobs(in parts: [Int]) {
        context.tellAll { loop in
            for part in parts { loop.handoff.suspect(part, now: Int64(loop.loop.now)) }
        }
    }

    /// The gateway takes work once it knows an owner of every part, and which tokens are void.
    private func readyIfServed() {
        guard !context.isReady, state.withLock({ $0.knowsTokens }),
            (0..<partCount).allSatisfy({ cluster.owner(of: $0) != 0 })
        else { return }
        context.setReady()
    }

    /// How long a gateway waits for parts that nobody serves before it takes work for the others.
    private static let readyMilliseconds: Int64 = 10_000

    /// Takes work for the parts that are served, though others still are not; about once a second.
    func tend() {
        guard !context.isReady, SystemClock.monotonicTime - state.withLock({ $0.startedAt }) >= Self.readyMilliseconds,
            (0..<partCount).contains(where: { cluster.owner(of: $0) != 0 })
        else { return }
        context.setReady()
    }

    /// Asks part 0's owner which tokens are void, until it answers or part 0 has none.
    private func askForTokens() {
        let isFirst = state.withLock { state in
            defer { state.isAskingForTokens = true }
            return !state.isAskingForTokens
        }
        guard isFirst else { return }
        context.hosts[0].submit { [self] in askForTokens(on: $0) }
    }

    private func askForTokens(on host: EventLoopHost) {
        host.ask(StartRowsRequest(), of: Bucket(0)) { [self, unowned host] rows in
            if let rows {
                learn(rows.revoked)
                learn(appsVersion: rows.appsVersion)
            } else if cluster.owner(of: 0) != 0 {
                return host.campaigns.coordinator.later(Self.tokenPause) { [self, unowned host] in
                    askForTokens(on: host)
                }
            }
            state.withLock { $0.isAskingForTokens = false }
        }
    }

    private static let tokenPause: Int64 = 500

    private func isGivenUpAltogether(_ part: Int) -> Bool { state.withLock { $0.wanted[part] == nil } }

    private func announceBroadcasts(to part: Int) {
        context.tellAll { host in
            host.forEachPartition { if $0.number != part { $0.announceBroadcasts(to: part) } }
        }
    }

    // MARK: The gateway's own rows

    /// All tokens that some gateway voided, as part 0's owner has them.
    func learn(_ revoked: [TokenID]) {
        let left = Lock(context.hostCount)
        context.tellAll { [self] loop in
            loop.publicHandler.learnRevoked(revoked)
            let isLast = left.withLock { left in
                left -= 1
                return left == 0
            }
            guard isLast else { return }
            state.withLock { $0.knowsTokens = true }
            readyIfServed()
        }
    }

    /// How far the apps of the admin API go.
    func learn(appsVersion: UInt64) {
        context.hosts[0].submit { $0.followApps(upTo: appsVersion) }
    }

    /// Takes over what part 0 keeps for all gateways.
    func restore(_ meta: MetaRows) {
        context.usage.rates.restore(meta.rates, now: time.now ?? 0)
        context.usage.online.restore(points: meta.onlinePoints, peaks: meta.onlinePeaks)
        context.testDevices.restore(meta.testDevices)
        context.apps.restore(meta.book, on: context, now: time.now ?? 0)
        GatewayStart.tell(of: meta.unreadAppCount, context.log)
        learn(Array(meta.revoked))
    }
}
