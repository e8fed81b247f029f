internal import Delivery
internal import Wire

/// A copy of a store's rows and of the oracle's knowledge about them.
///
/// Devices, callers and senders are not included: they keep state that the store loses.
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

    /// Restores the rows and removes all knowledge of later events.
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
        let values = (oracle.counting, oracle.requests, oracle.vendorRows)
        return { to in (to.counting, to.requests, to.vendorRows) = values }
    }

    private static func copy(of record: Record) -> (Record) -> Void {
        let identityValues = (
            record.id, record.acceptedAt, record.expiresAt, record.outcome, record.everMet, record.sequence,
            record.durableSequence, record.durableSince
        )
        let identity = { (to: Record) in
            (
                to.id, to.acceptedAt, to.expiresAt, to.outcome, to.everMet, to.sequence, to.durableSequence,
                to.durableSince
            ) = identityValues
        }
        let rowValues = (
            record.byteCount, record.charge, record.durableBlocks, record.wasAcceptedOffline, record.acceptedLink,
            record.jobDueAt, record.fallbackAt, record.table, record.durableTable, record.rowTicket, record.rowLife,
            record.everDurable
        )
        let row = { (to: Record) in
            (
                to.byteCount, to.charge, to.durableBlocks, to.wasAcceptedOffline, to.acceptedLink, to.jobDueAt,
                to.fallbackAt, to.table, to.durableTable, to.rowTicket, to.rowLife, to.everDurable
            ) = rowValues
        }
        let endValues = (
            record.job, record.durableJob, record.final, record.durableFinal, record.finalReason, record.wasVendorFirst
        )
        let end = { (to: Record) in
            (to.job, to.durableJob, to.final, to.durableFinal, to.finalReason, to.wasVendorFirst) = endValues
        }
        let leasesValues = (
            record.durableLeases, record.durableResults, record.hasLateAccept, record.openLease, record.openLeaseUntil,
            record.badgeAtLease, record.badgeChange, record.tokensAtLease, record.leaseTokens,
            record.wasReportedAccepted, record.acceptWasRecorded, record.alertWasReported, record.alertWasRecorded
        )
        let leases = { (to: Record) in
            (
                to.durableLeases, to.durableResults, to.hasLateAccept, to.openLease, to.openLeaseUntil, to.badgeAtLease,
                to.badgeChange, to.tokensAtLease, to.leaseTokens, to.wasReportedAccepted, to.acceptWasRecorded,
                to.alertWasReported, to.alertWasRecorded
            ) = leasesValues
        }
        let liveValues = (record.flightLink, record.sentAt, record.wasSent, record.mustBeOffline)
        let live = { (to: Record) in (to.flightLink, to.sentAt, to.wasSent, to.mustBeOffline) = liveValues }
        return { to in
            identity(to)
            row(to)
            end(to)
            leases(to)
            live(to)
        }
    }

    private static func copy(of identity: Identity) -> (Identity) -> Void {
        let rowValues = (
            identity.isRegistered, identity.registeredAt, identity.wasLost, identity.isDurable, identity.generation,
            identity.durableGeneration, identity.queueEpoch, identity.tokens, identity.durableTokens,
            identity.pushModeOff, identity.durablePushModeOff
        )
        let row = { (to: Identity) in
            (
                to.isRegistered, to.registeredAt, to.wasLost, to.isDurable, to.generation, to.durableGeneration,
                to.queueEpoch, to.tokens, to.durableTokens, to.pushModeOff, to.durablePushModeOff
            ) = rowValues
        }
        let namesValues = (
            identity.tags, identity.tagsChangedAt, identity.durableTags, identity.durableAlias, identity.isBlacklisted,
            identity.durableBlacklisted
        )
        let names = { (to: Identity) in
            (to.tags, to.tagsChangedAt, to.durableTags, to.durableAlias, to.isBlacklisted, to.durableBlacklisted) =
                namesValues
        }
        let badgeValues = (identity.badge, identity.durableBadge, identity.badgeRound, identity.durableBadgeRound)
        let badge = { (to: Identity) in (to.badge, to.durableBadge, to.badgeRound, to.durableBadgeRound) = badgeValues }
        let queueValues = (
            identity.reserved, identity.durableReserved, identity.highestSequence, identity.durableHighest,
            identity.bySequence, identity.newestOfKey
        )
        let queue = { (to: Identity) in
            (to.reserved, to.durableReserved, to.highestSequence, to.durableHighest, to.bySequence, to.newestOfKey) =
                queueValues
        }
        return { to in
            row(to)
            names(to)
            badge(to)
            queue(to)
        }
    }

    private static func copy(of task: SimulatedTask) -> (SimulatedTask) -> Void {
        let values = (task.isStopped, task.wonAt)
        return { to in (to.isStopped, to.wonAt) = values }
    }

    private static func copy(of broadcast: SimulatedBroadcast) -> (SimulatedBroadcast) -> Void {
        let values = (
            broadcast.launched, broadcast.launchedAt, broadcast.wasFound, broadcast.isCreated, broadcast.isStopped,
            broadcast.isStopTold, broadcast.isSwept, broadcast.isOver, broadcast.isDealtOut, broadcast.refusedBy,
            broadcast.scan
        )
        return { to in
            (
                to.launched, to.launchedAt, to.wasFound, to.isCreated, to.isStopped, to.isStopTold, to.isSwept,
                to.isOver, to.isDealtOut, to.refusedBy, to.scan
            ) = values
        }
    }
}

extension Record {
    /// Returns the same publish before any shard received it.
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
