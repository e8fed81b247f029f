internal import Delivery
internal import Wire

/// A copy of a store's rows, with all that the oracle knew of them.
///
/// What devices, callers and senders know is not in it: they remember what the store forgets.
struct Backup {
    let rows: [StoreKey: SimulatedStore.Value]
    private let world: (World) -> Void
    private let oracle: (Oracle) -> Void
    private let records: [(Record) -> Void]
    private let identities: [(Identity) -> Void]
    private let tasks: [(SimulatedTask) -> Void]
    private let broadcasts: [(SimulatedBroadcast) -> Void]

    init(of world: World, rows: [StoreKey: SimulatedStore.Value]) {
        self.rows = rows
        (self.world, oracle) = (Self.copy(of: world), Self.copy(of: world.oracle))
        records = world.records.map(Self.copy)
        identities = world.identities.map(Self.copy)
        tasks = world.tasks.map(Self.copy)
        broadcasts = world.broadcasting.all.map(Self.copy)
    }

    /// What came later was never there.
    func putBack(into current: World) {
        world(current)
        oracle(current.oracle)
        for record in current.records {
            let leases = record.foreignLeases.union(record.durableLeases)
            let put = record.index < records.count ? records[record.index] : Self.copy(of: record.unpublished)
            put(record)
            record.foreignLeases = leases.subtracting(record.durableLeases)
            record.wasHandled = false
        }
        for identity in current.identities {
            let isKnown = identity.index < identities.count
            let put = isKnown ? identities[identity.index] : Self.copy(of: identity.unregistered)
            put(identity)
            if !identity.isDurable { identity.wasLost = true }
        }
        for task in current.tasks {
            let put = task.index < tasks.count ? tasks[task.index] : Self.copy(of: task.uncalled)
            put(task)
        }
        for broadcast in current.broadcasting.all {
            let isKnown = broadcast.index < broadcasts.count
            let put = isKnown ? broadcasts[broadcast.index] : Self.copy(of: broadcast.unmade)
            put(broadcast)
        }
    }

    private static func copy(of world: World) -> (World) -> Void {
        let (recorded, durable) = (world.receipts.recorded, world.receipts.durable)
        let feeds = world.feeds
        return { world in
            (world.receipts.recorded, world.receipts.durable) = (recorded, durable)
            world.feeds.putBack(feeds)
        }
    }

    private static func copy(of oracle: Oracle) -> (Oracle) -> Void {
        copy(of: oracle, \.counting, \.requests, \.vendorRows)
    }

    private static func copy(of record: Record) -> (Record) -> Void {
        let identity = copy(
            of: record, \.id, \.acceptedAt, \.expiresAt, \.outcome, \.everMet, \.sequence, \.durableSequence,
            \.durableSince)
        let row = copy(
            of: record, \.byteCount, \.charge, \.durableBlocks, \.wasAcceptedOffline, \.acceptedLink, \.jobDueAt,
            \.fallbackAt, \.table, \.durableTable, \.rowTicket, \.rowLife, \.everDurable)
        let end = copy(
            of: record, \.job, \.durableJob, \.final, \.durableFinal, \.finalReason, \.wasVendorFirst)
        let leases = copy(
            of: record, \.durableLeases, \.durableResults, \.hasLateAccept, \.openLease, \.openLeaseUntil,
            \.badgeAtLease, \.badgeChange, \.tokensAtLease, \.leaseTokens, \.wasReportedAccepted, \.acceptWasRecorded)
        let live = copy(of: record, \.flightLink, \.sentAt, \.wasSent, \.mustBeOffline)
        return { for put in [identity, row, end, leases, live] { put($0) } }
    }

    private static func copy(of identity: Identity) -> (Identity) -> Void {
        let row = copy(
            of: identity, \.isRegistered, \.registeredAt, \.wasLost, \.isDurable, \.generation, \.durableGeneration,
            \.queueEpoch, \.tokens, \.durableTokens, \.pushModeOff, \.durablePushModeOff)
        let names = copy(
            of: identity, \.tags, \.tagsChangedAt, \.durableTags, \.durableAlias, \.isBlacklisted, \.durableBlacklisted)
        let badge = copy(of: identity, \.badge, \.durableBadge, \.badgeRound, \.durableBadgeRound)
        let queue = copy(
            of: identity, \.reserved, \.durableReserved, \.highestSequence, \.durableHighest, \.bySequence,
            \.newestOfKey)
        return { for put in [row, names, badge, queue] { put($0) } }
    }

    private static func copy(of task: SimulatedTask) -> (SimulatedTask) -> Void {
        copy(of: task, \.isStopped, \.wonAt)
    }

    private static func copy(of broadcast: SimulatedBroadcast) -> (SimulatedBroadcast) -> Void {
        copy(
            of: broadcast, \.launched, \.launchedAt, \.wasFound, \.isCreated, \.isStopped, \.isStopTold, \.isSwept,
            \.isOver, \.isDealtOut, \.refusedBy, \.scan)
    }

    /// Keeps the values of some properties; what it returns puts them into an object of that type.
    private static func copy<Owner: AnyObject, each Value>(
        of owner: Owner, _ paths: repeat ReferenceWritableKeyPath<Owner, each Value>
    ) -> (Owner) -> Void {
        let values = (repeat owner[keyPath: each paths])
        return { other in repeat put(each values, into: other, each paths) }
    }

    private static func put<Owner: AnyObject, Value>(
        _ value: Value, into owner: Owner, _ path: ReferenceWritableKeyPath<Owner, Value>
    ) { owner[keyPath: path] = value }
}

extension Record {
    /// The same publish before any shard had it.
    fileprivate var unpublished: Record {
        Record(
            index: index, identity: identity, strategy: strategy, timeToLive: timeToLive, hasVendor: hasVendor,
            badge: badge, collapse: collapse, isBulk: isBulk, request: request, digest: digest,
            payloadCount: payloadCount)
    }
}

extension Identity {
    fileprivate var unregistered: Identity {
        Identity(
            index: index, cid: cid, bucket: bucket, app: app, secret: secret, device: device, isHonest: isHonest)
    }
}

extension SimulatedTask {
    fileprivate var uncalled: SimulatedTask { SimulatedTask(index: index, id: id, app: app, createdAt: createdAt) }
}

extension SimulatedBroadcast {
    fileprivate var unmade: SimulatedBroadcast {
        SimulatedBroadcast(index: index, app: app, task: task, tag: tag, collapse: collapse)
    }
}
