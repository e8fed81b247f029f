internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

/// Carries out membership decisions on this gateway: opens and closes partitions, and sets routes.
final class ClusterHost: @unchecked Sendable {
    // Sound because mutable state is behind locks; `context` is set once, before any thread starts.

    enum Report: Sendable {
        case opened(Int, epoch: UInt64)
        case failed(Int, epoch: UInt64, StoreError)
        case lost(Int, epoch: UInt64)
        case closed(Int, epoch: UInt64)
    }

    private struct State {
        /// The epochs under which this gateway should own partitions.
        var wanted: [Int: UInt64] = [:]
        /// Partitions that are opening, open or closing here.
        var openings: [Int: PartOpening] = [:]
        /// Open partitions that accept devices.
        var accepting: Set<Int> = []
        /// Epochs under which a partition is reopened after its current opening has closed.
        var next: [Int: UInt64] = [:]
        /// Whether the list of revoked tokens has arrived since the start.
        var knowsTokens = false
        var isAskingForTokens = false
        var startedAt: Int64 = 0
        var work: [@Sendable () -> Void] = []
        var isStopping = false
    }

    /// The number of partitions that open concurrently; a worker spends most of its time waiting for Redis.
    private static let workerCount = 4
    /// The time a former owner has to answer pending questions; its release takes at most two seconds (`Partition.release`).
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

    /// Creates a host that owns no partition.
    ///
    /// - Parameters:
    ///   - engine: The engine that opens and closes partitions.
    ///   - cluster: The context that receives each change of owner.
    ///   - partCount: The number of partitions.
    ///   - loops: The event loops. A partition is on the loop of its number modulo their count.
    ///   - time: The gateway time.
    init(engine: RedisEngine, cluster: ClusterContext, partCount: Int, loops: [EventLoop], time: SharedTime) {
        (self.engine, self.cluster, self.partCount) = (engine, cluster, partCount)
        (self.loops, self.time) = (loops, time)
    }

    var context: GatewayContext {
        guard let boxedContext else { preconditionFailure("the host is asked before the gateway is made") }
        return boxedContext
    }

    func loop(of part: Int) -> EventLoop { loops[part % loops.count] }

    /// Starts the workers; `report` is called from any thread.
    func start(_ context: GatewayContext, report: @escaping @Sendable (Report) -> Void) throws(SystemError) {
        boxedContext = context
        state.withLock { $0.startedAt = SystemClock.monotonicTime }
        reported.withLock { $0 = report }
        for number in 0..<Self.workerCount {
            threads.append(try JoinableThread(named: "part-\(number)") { [unowned self] in self.work() })
        }
    }

    /// Starts no more openings, and cancels those in progress.
    func beginStop() {
        state.broadcast { state in
            state.isStopping = true
            (state.wanted, state.next) = ([:], [:])
        }
    }

    /// Waits for the workers to finish; the loops must have ended.
    func stop() {
        beginStop()
        for thread in threads { thread.join() }
        threads = []
        for opening in state.withLock({ $0.openings.values }) { opening.closeLeftover() }
    }

    func report(_ report: Report) {
        reported.withLock { $0 }(report)
        switch report {
        case .opened(let part, let epoch):
            state.withLock { state in
                if state.openings[part]?.epoch == epoch { state.accepting.insert(part) }
            }
            readyIfServed()
        case .lost: break
        case .failed(let part, let ended, _), .closed(let part, let ended):
            var epoch: UInt64?
            state.broadcast { state in
                guard state.openings[part]?.epoch == ended else { return }
                state.openings[part] = nil
                state.accepting.remove(part)
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

    /// Starts to open a partition under an epoch; reports `opened`, `failed` or, if the epoch was cancelled, `closed`.
    func open(_ part: Int, epoch: UInt64) {
        let opening = PartOpening(part, epoch: epoch, host: self)
        var isFree = false
        state.broadcast { state in
            guard !state.isStopping else { return }
            state.wanted[part] = epoch
            isFree = state.openings[part] == nil
            // At most one opening of a partition exists here, so a reopening waits until the previous one has closed.
            if isFree { state.openings[part] = opening } else { state.next[part] = epoch }
        }
        if isFree { onWorker { opening.open() } }
    }

    func close(_ part: Int, epoch: UInt64, isLost: Bool = false) {
        var opening: PartOpening?
        state.broadcast { state in
            if state.wanted[part] == epoch { state.wanted[part] = nil }
            // A late call for an earlier epoch must not close an opening of a newer epoch.
            if let present = state.openings[part], present.epoch == epoch { opening = present }
        }
        guard let opening else { return }
        if cluster.owner(of: part) == cluster.node { cluster.setOwner(0, of: part) }
        context.submit(to: part) { partition in
            // An opening in progress detects the cancellation and closes the partition itself.
            guard partition.isServing, opening.isOwned else { return }
            partition.release(isLost: isLost) { [self] in
                onWorker { [self] in
                    engine.closePart(part)
                    report(.closed(part, epoch: epoch))
                }
            }
        }
    }

    /// Closes a partition whose log was fenced by another owner.
    func partLost(_ part: Int, epoch: UInt64) {
        report(.lost(part, epoch: epoch))
        close(part, epoch: epoch, isLost: true)
    }

    func isGivenUp(_ part: Int, epoch: UInt64) -> Bool { state.withLock { $0.wanted[part] != epoch } }

    /// Publishes that this gateway owns the partition, and resynchronizes due jobs and broadcast logs.
    ///
    /// The partition accepts devices later, once `opened` is reported.
    func served(_ part: Int) {
        cluster.setOwner(cluster.node, of: part)
        suspectJobs(in: [part])
        announceBroadcasts(to: part)
        // Other partitions may have missed broadcasts of this partition's apps while the partition had no owner.
        let count = context.partitionCount
        context.submit(to: part) { partition in
            for other in 0..<count where other != part { partition.announceBroadcasts(to: other) }
        }
    }

    /// Routes a partition's messages to a node; 0 means no owner.
    func setRoute(_ part: Int, to node: Int) {
        let before = cluster.owner(of: part)
        // While this gateway owns the partition, only `served` and `close` change the route.
        guard node != cluster.node, before != cluster.node || isGivenUpAltogether(part), node != before else { return }
        cluster.setOwner(node, of: part)
        if before != 0, before != cluster.node { forgetLater(part, at: before) }
        guard node != 0 else { return }
        readyIfServed()
        suspectJobs(in: [part])
        announceBroadcasts(to: part)
        if part == 0 { askForTokens() }
    }

    /// Answers the remaining pending questions to a former owner as busy after `answerMilliseconds`.
    private func forgetLater(_ part: Int, at node: Int) {
        let links = cluster.links
        context.host(of: part).submit { host in
            host.campaigns.coordinator.later(Self.answerMilliseconds) { links.forget(part: part, at: node) }
        }
    }

    /// Resynchronizes after this gateway's link to a node is established, because earlier messages may be lost.
    func linked(_ node: Int) {
        let parts = (0..<partCount).filter { cluster.owner(of: $0) == node }
        suspectJobs(in: parts)
        for part in parts {
            announceBroadcasts(to: part)
            if part == 0 { askForTokens() }
        }
    }

    /// Resynchronizes after a node established its own link to this gateway, because its earlier news may be lost.
    func heard(_ node: Int) {
        suspectJobs(in: (0..<partCount).filter { cluster.owner(of: $0) == node })
        if cluster.owner(of: 0) == node { askForTokens() }
    }

    /// Makes every loop ask these partitions for due jobs again, regardless of earlier answers.
    private func suspectJobs(in parts: [Int]) {
        context.tellAll { loop in
            for part in parts { loop.handoff.suspect(part, now: Int64(loop.loop.now)) }
        }
    }

    /// Accepts work after the revoked tokens and an owner of every partition are known, and the own partitions accept devices.
    private func readyIfServed() {
        guard !context.isReady else { return }
        let (knowsTokens, accepting) = state.withLock { ($0.knowsTokens, $0.accepting) }
        let isServed = (0..<partCount).allSatisfy { part in
            let owner = cluster.owner(of: part)
            return owner == cluster.node ? accepting.contains(part) : owner != 0
        }
        if knowsTokens, isServed { context.setReady() }
    }

    /// The time after which a gateway accepts work although some partitions have no owner.
    private static let readyMilliseconds: Int64 = 10_000

    /// Accepts work after `readyMilliseconds` if a partition has an owner; runs about once a second.
    func tend() {
        guard !context.isReady, SystemClock.monotonicTime - state.withLock({ $0.startedAt }) >= Self.readyMilliseconds,
            (0..<partCount).contains(where: { cluster.owner(of: $0) != 0 })
        else { return }
        context.setReady()
    }

    /// Requests the revoked tokens, with retries until part 0's owner answers or part 0 has no owner.
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

    /// Passes the revoked tokens, which part 0 stores for all gateways, to every loop.
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

    /// Fetches the admin API's app changes, if this gateway has another version of the app list.
    func learn(appsVersion: UInt64) {
        context.hosts[0].submit { $0.followApps(upTo: appsVersion) }
    }

    /// Restores the rows that part 0 stores for all gateways.
    func restore(_ meta: MetaRows) {
        context.usage.rates.restore(meta.rates, now: time.now ?? 0)
        context.usage.online.restore(points: meta.onlinePoints, peaks: meta.onlinePeaks)
        context.testDevices.restore(meta.testDevices)
        context.apps.restore(meta.book, on: context, now: time.now ?? 0)
        GatewayStart.tell(of: meta.unreadAppCount, context.log)
        learn(Array(meta.revoked))
    }
}
