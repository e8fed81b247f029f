internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

/// The components of a gateway before the loops run: store, event loops, initial shards and time.
struct GatewayStart {
    let loops: [EventLoop]
    /// The partitions owned from the start: all, or none in a cluster.
    let partitions: [PartitionStart]
    let clock: GatewayClock
    let context: GatewayContext
    /// The rows of the table `meta`; `nil` in a cluster.
    let meta: MetaRows?
    let node: ClusterNode?

    /// Opens the store before any listener.
    ///
    /// If another gateway uses the same folder, the store's error names that gateway's process. An error about a busy port would
    /// help less.
    ///
    /// - Throws: `StoreError`, `ClusterFailure`, `StartInterrupted`, `SystemError`.
    init(
        _ configuration: GatewayConfiguration, _ descriptors: DescriptorBudget, log: Log, time: SharedTime,
        acceptsClock: Bool, stepping: Gateway.Stepping?
    ) throws {
        if configuration.redis == nil {
            try self.init(
                embedded: configuration, descriptors, log: log, time: time, acceptsClock: acceptsClock,
                stepping: stepping)
        } else {
            let wait = StartWait(configuration, log: log)
            defer { wait.end() }
            try self.init(cluster: configuration, log: log, time: time, acceptsClock: acceptsClock, wait: wait)
        }
    }

    private init(
        embedded configuration: GatewayConfiguration, _ descriptors: DescriptorBudget, log: Log, time: SharedTime,
        acceptsClock: Bool, stepping: Gateway.Stepping?
    ) throws {
        var settings = StoreSetup.configuration(configuration, descriptors, log: log, time: time)
        if let stepping { settings.fatal = stepping.fatal }
        let store = try EmbeddedStore(settings)
        Self.tell(of: store, at: configuration.storePath, log)
        let set = LoopSet()
        do {
            let count = configuration.loopCount
            try set.make(
                count, hasOwnTables: configuration.loopTables == .own, store: store, posted: stepping?.posted)
            var meta = try MetaRows(loading: set.stores[0])
            let clock = GatewayClock(
                stepping?.reading ?? ClockReader.reading(), bootID: ClockReader.bootID(), stored: meta.clock,
                acceptsClock: acceptsClock)
            time.set(clock.mapping)
            meta.complete()
            context = try GatewayContext(
                partitionCount: count, hostCount: count, cluster: nil, log: log, store: store,
                isFsync: configuration.durability == .fsync, queueEpoch: meta.queueEpoch, history: store.history,
                tokenKey: meta.tokenKey, revokedTokens: RevokedTokens(meta.revoked),
                startedAt: clock.mapping.time(atBoot: ClockReader.boot()),
                peerBudget: PeerBudget(configuration.limits.peerRules))
            context.usage.rates.restore(meta.rates, now: clock.mapping.time(atBoot: ClockReader.boot()))
            context.usage.online.restore(points: meta.onlinePoints, peaks: meta.onlinePeaks)
            context.testDevices.restore(meta.testDevices)
            context.apps.restore(meta.book, on: nil, now: clock.mapping.time(atBoot: ClockReader.boot()))
            Self.tell(of: meta.unreadAppCount, log)
            // Broadcasts must be loaded before the first Hello, because a device's positions are checked against the broadcast
            // logs.
            var broadcasts = BroadcastStart()
            for part in set.stores { try part.loadAll(table: .broadcast) { broadcasts.take($0) } }
            let now = clock.mapping.time(atBoot: ClockReader.boot())
            var starts: [PartitionStart] = []
            for index in 0..<count {
                starts.append(
                    try PartitionStart(
                        set.stores[index], LoopShare(index: index, count: count), broadcasts: broadcasts,
                        fold: meta.fold, now: now))
            }
            (loops, partitions, self.clock, self.meta, node) = (set.loops, starts, clock, meta, nil)
        } catch {
            set.close()
            store.close()
            throw error
        }
    }

    /// Joins a cluster; the gateway owns no partition yet.
    private init(
        cluster configuration: GatewayConfiguration, log: Log, time: SharedTime, acceptsClock: Bool, wait: StartWait
    ) throws {
        let set = LoopSet()
        var joined: ClusterNode?
        do {
            try set.make(configuration.loopCount)
            let spares = SpareBatches()
            let node = try ClusterNode(
                configuration, loops: set.loops, log: log, time: time, spares: spares,
                acceptsClock: acceptsClock, wait: wait)
            joined = node
            let clock = GatewayClock(
                ClockReader.reading(), bootID: ClockReader.bootID(),
                stored: ClockRecord(maximum: node.clockFloor, boot: 0, bootID: BootID(high: 0, low: 0)),
                acceptsClock: acceptsClock)
            time.set(clock.mapping)
            let now = clock.mapping.time(atBoot: ClockReader.boot())
            let count = node.partCount
            context = try GatewayContext(
                partitionCount: count, hostCount: set.loops.count, cluster: node.context, log: log, store: node.engine,
                isFsync: true,
                queueEpoch: node.queueEpoch, history: node.history, tokenKey: node.tokenKey,
                revokedTokens: RevokedTokens(), startedAt: now, peerBudget: PeerBudget(configuration.limits.peerRules),
                spares: spares)
            loops = set.loops
            (partitions, self.clock, meta, self.node) = ([], clock, nil, node)
        } catch {
            joined?.stop()
            set.close()
            throw error
        }
    }

    static func tell(of unreadAppCount: Int, _ log: Log) {
        guard unreadAppCount > 0 else { return }
        log.write(
            .error, .appUnread,
            [.error: .text("\(unreadAppCount) rows of apps cannot be read; see longwire store check")])
    }

    private static func tell(of store: EmbeddedStore, at path: String, _ log: Log) {
        log.write(
            .info, .storeOpened,
            [
                .path: .text(path), .replayedBytes: LogValue(store.recovery.byteCount),
                .milliseconds: LogValue(store.recovery.milliseconds),
            ])
        if let change = store.historyChange {
            log.write(.warning, .historyChanged, [.reason: .text(change.rawValue), .detail: .text("\(store.history)")])
        }
        if store.recovery.cutByteCount > 0 {
            log.write(
                store.recovery.isUnsynced ? .warning : .info, .journalCut,
                [
                    .bytes: LogValue(store.recovery.cutByteCount),
                    .count: LogValue(store.recovery.discardedSegmentCount),
                    .durability: .text(store.recovery.isUnsynced ? "os" : "fsync"),
                ])
        }
        if store.recovery.tableListByteCount > 0 {
            log.write(.info, .tableListCut, [.bytes: LogValue(store.recovery.tableListByteCount)])
        }
    }

    /// Undoes a failed start, before any loop was started.
    func close() {
        for start in partitions { start.store.close() }
        for loop in loops { loop.stop() }
        node?.stop()
        context.store.close()
    }
}
