// The decisions about all devices of one partition. Commands are the input, effects the output. The shard passes rows to the
// store immediately. An effect that depends on a write is released when the write is durable. The shard does no I/O and has no
// clock, lock or thread.
//
// - A *device slot* holds the device's record when it is loaded. Commands queue in order while the slot is not loaded
//   (Shard+Loading), or while a step that may wait for the disk holds it (Shard+WhileBusy).
// - A *message* is in memory while its row is young or it was sent in the current session. All other messages exist only as rows.
//   The shard reads these rows page by page from the cursor (Shard+Sessions), or when the store reports their alarms
//   (Shard+Timers).
// - A *job* is in memory while it is due or leased, while its row is young, or while its message is in memory.
// - Every change is one batch for one device (Shard+Batches) and gets a ticket. Effects wait in `outbox` in ticket order.

internal import Structures
package import Wire

/// The rules and the state of all devices of one partition.
package struct Shard: ~Copyable {
    /// The fields shared by all components; `Shard+Core` has accessors for them.
    var core: ShardCore
    /// The core's store; a call through an accessor would retain and release the reference.
    let store: any ShardStore
    let verifier: any ProofVerifier
    let queueEpoch: UInt64

    var devices: DeviceTable
    var sessions: SessionTable
    var messages: MessageTable
    var jobs: JobTable
    /// Whether slices or fired timers wait for a later turn.
    package internal(set) var hasSlicesAtHand = false

    var searches = MessageSearches()
    var refusals = RefusalLog()

    /// The ticket that must be durable before the shard sends to the device again; see `raiseBarrier`.
    var barriers: [DeviceSlot: Ticket] = [:]
    var alarms = AlarmReading()
    var usage = AppUsage()
    var tagWalks = TagWalkPlaces()
    var aliases = AliasTable()
    /// A filter of the devices that each task has reached; see `isFirstOfTask`.
    var acceptances: AcceptanceFilter
    /// The end of the loop's last long standstill; a session's silence before that time is ignored.
    var standstillEndedAt: GatewayTime = 0
    /// The shard's start; unused devices have at least an hour from then to reconnect before their removal (`forgetsAt`).
    let startedAt: GatewayTime
    var tasks = TaskTable()
    var broadcasts: BroadcastTable
    var feeds = FeedTable()
    var reports = ReportLanes()
    var events: EventTable

    typealias Continuation = (inout Shard, StoreReply) -> Void

    /// Creates the shard of one partition.
    ///
    /// `counters` are the counters rows of this shard's buckets: single rows for today and yesterday, sums for earlier days.
    /// `queueEpoch` identifies the store since its creation. A device's row gets it at registration (docs/Semantics.md,
    /// "Histories").
    package init(
        limits: ShardLimits, apps: [AppSettings], store: any ShardStore, verifier: any ProofVerifier,
        encoder: any BroadcastEncoder, queueEpoch: UInt64, history: StoreHistory = StoreHistory(ofNewStore: 1),
        counters: CounterStart, broadcasts start: BroadcastStart = BroadcastStart(), knowsAllApps: Bool = true,
        now: GatewayTime
    ) {
        let table = CounterTable(counters)
        let appTable = AppTable(
            apps, areAllKnown: knowsAllApps, counters: table, holdings: counters.holdingsByApp,
            day: CountersRow.day(of: now))
        core = ShardCore(
            now: now, limits: limits, apps: appTable, store: store, history: history, counters: table,
            outbox: Outbox(committedTicket: store.committedTicket))
        (self.store, self.verifier, self.queueEpoch, startedAt) = (store, verifier, queueEpoch, now)
        devices = DeviceTable(now: now)
        sessions = SessionTable(appCount: apps.count)
        messages = MessageTable(now: now)
        jobs = JobTable(appCount: apps.count, now: now)
        broadcasts = BroadcastTable(encoder: encoder, history: history)
        events = EventTable(now: now)
        acceptances = AcceptanceFilter(now: now, byteLimit: limits.acceptanceFilterByteCount)
        numbers.pending = counters.pending
        numbers.damagedRows += UInt64(counters.damagedRowCount)
        if isPlanted(.queuedBytesForgotten) {
            for place in self.apps.indices { self.apps.figures[place].forgetBytes() }
        }
        restore(start)
    }

    /// Creates the shard of one partition from unfolded counters rows.
    package init(
        limits: ShardLimits, apps: [AppSettings], store: any ShardStore, verifier: any ProofVerifier,
        encoder: any BroadcastEncoder, queueEpoch: UInt64, history: StoreHistory = StoreHistory(ofNewStore: 1),
        counters: [StoredRow], broadcasts: BroadcastStart = BroadcastStart(), now: GatewayTime
    ) {
        var start = CounterStart(now: now)
        for row in counters { start.take(row) }
        self.init(
            limits: limits, apps: apps, store: store, verifier: verifier, encoder: encoder, queueEpoch: queueEpoch,
            history: history, counters: start, broadcasts: broadcasts, now: now)
    }

    /// Sets the store's history.
    ///
    /// Positions of an earlier history settle nothing in later Hellos.
    ///
    /// Sessions stay open because their acks refer to messages that this shard sent.
    package mutating func begin(_ history: StoreHistory) {
        core.history = history
        broadcasts.step = history.broadcastStep
    }

    /// Moves the collected effects into `taken`; the gateway performs them in order before the next call.
    package mutating func takeEffects(into taken: inout [Effect]) {
        outbox.take(into: &taken)
    }

    package var hasEffects: Bool { outbox.hasEffects }

    /// The last ticket that an effect waits for; 0 if no effect waits.
    package var awaitedTicket: Ticket { outbox.awaitedTicket }

    package var hasDueJobs: Bool { VendorChannel.allCases.contains { hasDueJobs(for: nil, $0) } }

    /// The time of the next timer; the gateway calls `advance(to:)` at that time, and at least once a second.
    package var nextTimer: GatewayTime {
        if hasSlicesAtHand || searches.hasMemorySearches { return now }
        let alarm = alarms.mayAsk(now) ? min(store.nextAlarm, nextGroupAlarm) : .max
        let task = tasks.nextDue
        let broadcast = min(broadcasts.cursorsDueAt, broadcasts.nextStep)
        let rest = min(feeds.nextDue, reports.nextDue)
        return min(
            messages.timers.earliest,
            min(devices.timers.earliest, min(jobs.nextTimer, min(broadcast, min(alarm, min(task, rest))))))
    }

    package var statistics: ShardStatistics {
        var current = numbers
        current.loadedDevices = devices.loadedCount
        current.deviceSlots = devices.count
        current.messagesInMemory = messages.count
        current.jobsInMemory = jobs.count
        for channel in VendorChannel.allCases { jobs.count(into: &current[channel], of: channel) }
        current.sessions = sessions.count
        current.waitingCommands = core.waitingCount
        current.deviceQueues = devices.queueCount
        current.pendingEffects = outbox.waitingCount
        current.liveBroadcasts = broadcasts.liveCount
        current.feedItems = feeds.itemCount
        current.longestFeedWait = feeds.longestWait(at: now)
        return current
    }

    /// The figures of the given apps, in their order; an app that the shard does not know has zeros.
    package func statistics(of keys: [AppKey]) -> [AppStatistics] {
        keys.map { key in
            guard let app = apps.index(of: key) else { return AppStatistics() }
            var current = apps.figures[app]
            current.connectedDevices = sessions.count(ofApp: app)
            for channel in VendorChannel.allCases { current.dueJobs[channel] = jobs.dueCount(of: app, channel) }
            (current.upstreamItems, current.upstreamWait) = feeds.waiting(in: FeedName(key, .upstream), at: now)
            (current.eventItems, current.eventWait) = feeds.waiting(in: FeedName(key, .events), at: now)
            current.retainedBytes =
                apps.retained[app].sum(on: CountersRow.day(of: now))
                + FeedKind.allCases.reduce(0) { $0 + feeds.byteCount(of: FeedName(key, $1)) }
            return current
        }
    }

    /// Adds the apps' pending messages, blocks and devices of days that this shard counts from now on.
    mutating func addHoldings(_ sums: [AppKey: CountedHoldings]) {
        for sum in sums.values { numbers.pending += sum.messages }
        apps.add(sums)
    }

    /// Replaces the apps, and the limits if given.
    ///
    /// Sessions keep the values of their Welcome.
    ///
    /// An app that is no longer listed gets no publishes and its jobs are not leased. Its devices keep their messages.
    /// `knowsAllApps` states whether a missing app is deleted or only not known yet.
    package mutating func reload(
        apps new: [AppSettings], knowsAllApps: Bool = true, limits newLimits: ShardLimits? = nil
    ) {
        if let newLimits { limits = newLimits }
        apps.areAllKnown = knowsAllApps
        let leasable = apps.entries.map(\.mayLease)
        let orders = apps.entries.map(\.vendorOrder)
        let listed = Set(new.map(\.key))
        for place in apps.indices where !listed.contains(apps[place].key) {
            apps[place].knowledge = knowsAllApps ? .absent : .unknown
        }
        for settings in new {
            if let place = apps.index(of: settings.key) {
                apps[place].knowledge = .known(settings)
            } else {
                addApp(AppEntry(settings))
            }
        }
        for place in orders.indices where apps[place].vendorOrder != orders[place] { placeJobs(ofApp: place) }
        // Notifies the senders' long polls: the jobs of an app that has become known may now be leased.
        for place in leasable.indices where !leasable[place] && apps[place].mayLease {
            for channel in VendorChannel.allCases where jobs.dueCount(of: place, channel) > 0 {
                outbox.send(.jobsAvailable(channel))
            }
        }
        feeds.watchedApps = 0
    }

    /// Replaces the limits; jobs and device records above the new limits leave memory gradually.
    package mutating func setLimits(_ limits: ShardLimits) { self.limits = limits }

    /// Records that all batches up to `ticket` are on disk, and releases the effects that waited for them.
    package mutating func committed(upTo ticket: Ticket, now: GatewayTime) {
        begin(now)
        outbox.committed(upTo: ticket)
        releaseDue()
    }
}
