// The decisions about all devices of one loop. Commands go in, effects come out. The shard writes to the store at once;
// an effect that depends on a write leaves when the write is durable. No I/O, no clock, no lock, no thread.
//
// How the parts hang together:
// - A *device slot* holds the device's record when it is loaded. Commands wait in order for a slot that is not loaded
//   (Shard+Loading), or held by a step that may wait for the disk (Shard+WhileBusy).
// - A *message* is in memory while it is young or sent in the current session. All others are rows: the shard pages
//   them from the cursor (Shard+Sessions), or the store reports their alarms (Shard+Timers).
// - A *job* is in memory while it is due or leased, while its row is young or while its message is in memory.
// - Every change is one batch for one device (Shard+Batches) and gets a ticket; effects wait in `outbox` in the order
//   of their tickets.

internal import Structures
package import Wire

/// All devices of one loop.
package struct Shard: ~Copyable {
    /// The fields that the parts share; `Shard+Core` reads and changes them as the shard's own.
    var core: ShardCore
    /// The core's store once more: a call through an accessor would retain and release it.
    let store: any ShardStore
    let verifier: any ProofVerifier
    let queueEpoch: UInt64

    var devices: DeviceTable
    var sessions: SessionTable
    var messages: MessageTable
    var jobs: JobTable
    /// True when slices or fired timers wait for a turn.
    package internal(set) var hasSlicesAtHand = false

    var searches = MessageSearches()
    var refusals = RefusalLog()

    /// Until this ticket is durable the shard sends a connected device nothing: see `end`.
    var barriers: [DeviceSlot: Ticket] = [:]
    var alarms = AlarmReading()
    var usage = AppUsage()
    var tagWalks = TagWalkPlaces()
    var aliases = AliasTable()
    /// Which devices tasks have reached; see `isFirstOfTask`.
    var acceptances: AcceptanceFilter
    /// The end of the loop's last long standstill; no session is judged by silence before it.
    var standstillEndedAt: GatewayTime = 0
    /// The shard's start; a device's absence before it does not count toward the device's removal.
    let startedAt: GatewayTime
    var tasks = TaskTable()
    var broadcasts: BroadcastTable
    var feeds = FeedTable()
    var reports = ReportLanes()
    var events: EventTable

    /// The closure that gets a reader's answer.
    typealias Continuation = (inout Shard, StoreReply) -> Void

    /// Creates the shard of one loop.
    ///
    /// `counters` are the counters rows of this shard's buckets: today's and yesterday's one by one, others as sums.
    /// `queueEpoch` names the store since it was created; a device's row gets it at registration (docs/Semantics.md,
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

    /// The same with rows that are not folded.
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

    /// Another history of the store is in force: positions that devices were given before settle nothing in a later Hello.
    ///
    /// Sessions stay open: they ack messages of this shard.
    package mutating func begin(_ history: StoreHistory) {
        core.history = history
        broadcasts.step = history.broadcastStep
    }

    /// Exchanges the effects gathered so far for an emptied array; the gateway performs them in order before the next
    /// call.
    package mutating func takeEffects(into taken: inout [Effect]) {
        outbox.take(into: &taken)
    }

    package var hasEffects: Bool { outbox.hasEffects }

    /// The last ticket that an effect waits for; 0 when none waits.
    package var awaitedTicket: Ticket { outbox.awaitedTicket }

    /// True when a lease of some channel would find jobs.
    package var hasDueJobs: Bool { VendorChannel.allCases.contains { hasDueJobs(for: nil, $0) } }

    /// No timer of this shard is due before this; the gateway calls `advance(to:)` then, and at least once a second.
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

    /// The figures of these apps, in their order; zeros for an app that this shard does not know.
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

    /// Counts what apps have by days that the shard counts from now on.
    mutating func addHoldings(_ sums: [AppKey: CountedHoldings]) {
        for sum in sums.values { numbers.pending += sum.messages }
        apps.add(sums)
    }

    /// Replaces the apps, and the limits if given; sessions keep what the Welcome said.
    ///
    /// An app that is no longer listed takes no publishes, and its jobs are not leased; its devices keep what they have.
    /// `knowsAllApps` says whether such an app is absent, or only not known yet.
    package mutating func reload(
        apps new: [AppSettings], knowsAllApps: Bool = true, limits newLimits: ShardLimits? = nil
    ) {
        if let newLimits { limits = newLimits }
        apps.areAllKnown = knowsAllApps
        let leasable = apps.entries.map(\.mayLease)
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
        // Senders wait for jobs: those of an app that has become known are there for them now.
        for place in leasable.indices where !leasable[place] && apps[place].mayLease {
            for channel in VendorChannel.allCases where jobs.dueCount(of: place, channel) > 0 {
                outbox.send(.jobsAvailable(channel))
            }
        }
        feeds.watchedApps = 0
    }

    /// Other limits are in force; what is above them goes as its turn comes.
    package mutating func setLimits(_ limits: ShardLimits) { self.limits = limits }

    /// Every batch up to `ticket` is on disk: releases the effects that waited for it.
    package mutating func committed(upTo ticket: Ticket, now: GatewayTime) {
        begin(now)
        outbox.committed(upTo: ticket)
        releaseDue()
    }
}
