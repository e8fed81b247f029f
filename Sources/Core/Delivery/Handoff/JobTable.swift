internal import Structures
internal import Wire

/// The handoff jobs in memory: by message id, by device and, when due, in the list of their app and channel.
///
/// The table keeps the index, the lists and the counts of due, held and leased jobs. `Shard.placeJob` decides the place of a job.
struct JobTable: ~Copyable {
    private enum DueChain: SlotChain {
        @inline(__always)
        static func links(_ job: Place<JobEntry>) -> SlotLinks<JobEntry> { job.value.dueLinks }
        @inline(__always)
        static func setLinks(_ job: Place<JobEntry>, _ links: SlotLinks<JobEntry>) { job.value.dueLinks = links }
    }

    private enum DeviceChain: SlotChain {
        @inline(__always)
        static func links(_ job: Place<JobEntry>) -> SlotLinks<JobEntry> { job.value.deviceLinks }
        @inline(__always)
        static func setLinks(_ job: Place<JobEntry>, _ links: SlotLinks<JobEntry>) { job.value.deviceLinks = links }
    }

    private struct DueList {
        var ends = SlotEnds<JobEntry>()
        var count = 0
        /// The number of held jobs of the app, channel and kind; they are in no list.
        var heldCount = 0
    }

    /// The lists of an app: per channel one for single pushes, then one for bulk.
    private static let listsPerApp = VendorChannel.allCases.count * 2

    private var entries = Slab<JobEntry>()
    private var index = WideMap()
    private var lists: [DueList]
    private var timers: SlotTimers<JobEntry>
    private(set) var dueCount = 0
    private(set) var heldCount = 0
    private var dueCounts = PerChannel { _ in 0 }
    private var heldCounts = PerChannel { _ in 0 }
    private var leasedCounts = PerChannel { _ in 0 }
    /// The leases that read devices or messages, before their rows are written.
    var leasesUnderWay: Set<LeaseKey> = []
    /// The start of the table; jobs that were due earlier were counted as created by an earlier process.
    let startedAt: GatewayTime

    init(appCount: Int, now: GatewayTime) {
        startedAt = now
        lists = Array(repeating: DueList(), count: appCount * Self.listsPerApp)
        timers = SlotTimers(resolution: 1, now: now)
    }

    mutating func addApp() { lists += Array(repeating: DueList(), count: Self.listsPerApp) }

    var count: Int { entries.count }
    /// All slots, free ones included.
    var slots: SlotRange<JobEntry> { entries.slots() }
    @inline(__always) func isOccupied(_ slot: JobSlot) -> Bool { entries.isOccupied(slot) }
    /// Returns the job's address, valid until the job is removed.
    @inline(__always) func at(_ slot: JobSlot) -> Place<JobEntry> { entries.at(slot) }

    @inline(__always) func find(_ message: MessageID) -> JobSlot? {
        index[message.high, message.low].map { JobSlot(number: $0) }
    }

    /// Returns the jobs of an app, in no order.
    func slots(ofApp app: Int) -> [JobSlot] {
        entries.slots().filter { entries.isOccupied($0) && Int(at($0).value.appIndex) == app }
    }

    mutating func insert(_ job: JobEntry, of device: Place<Device>) -> JobSlot {
        let id = job.row.facts.message
        let slot = entries.insert(job)
        index.set(id.high, id.low, slot.number)
        var ends = device.value.jobs
        entries.link(slot, behind: .none, in: &ends, of: DeviceChain.self)
        device.value.jobs = ends
        return slot
    }

    mutating func remove(_ slot: JobSlot, of device: Place<Device>) {
        unplace(slot)
        let id = at(slot).value.row.facts.message
        index.remove(id.high, id.low)
        var ends = device.value.jobs
        entries.unlink(slot, from: &ends, of: DeviceChain.self)
        device.value.jobs = ends
        entries.remove(slot)
    }

    // MARK: Places

    /// Appends a job without a place to the due list of its app and channel.
    ///
    /// - Returns: true if the list was empty.
    mutating func placeDue(_ slot: JobSlot, of channel: VendorChannel) -> Bool {
        let list = Self.list(of: at(slot), channel)
        let wasEmpty = lists[list].ends.isEmpty
        entries.link(slot, behind: lists[list].ends.last, in: &lists[list].ends, of: DueChain.self)
        lists[list].count += 1
        dueCounts[channel] += 1
        dueCount += 1
        at(slot).value.place = .due
        return wasEmpty
    }

    mutating func placeHeld(_ slot: JobSlot, of channel: VendorChannel) {
        lists[Self.list(of: at(slot), channel)].heldCount += 1
        heldCounts[channel] += 1
        heldCount += 1
        at(slot).value.place = .held
    }

    mutating func countLeased(_ slot: JobSlot) {
        guard let channel = at(slot).value.row.channel else { return }
        at(slot).value.countsAsLeased = true
        leasedCounts[channel] += 1
    }

    /// Removes a job from its place and stops its timer.
    mutating func unplace(_ slot: JobSlot) {
        let entry = at(slot)
        // A job of an unknown channel has no place.
        if let channel = entry.value.row.channel {
            let list = Self.list(of: entry, channel)
            switch entry.value.place {
            case .due:
                entries.unlink(slot, from: &lists[list].ends, of: DueChain.self)
                lists[list].count -= 1
                dueCounts[channel] -= 1
                dueCount -= 1
            case .held:
                lists[list].heldCount -= 1
                heldCounts[channel] -= 1
                heldCount -= 1
            case .none, .leasing: break
            }
            if entry.value.countsAsLeased {
                entry.value.countsAsLeased = false
                leasedCounts[channel] -= 1
            }
        }
        entry.value.place = .none
        timers.cancel(slot)
    }

    private static func list(of job: Place<JobEntry>, _ channel: VendorChannel) -> Int {
        list(of: Int(job.value.appIndex), channel, isBulk: job.value.row.facts.flags.contains(.bulk))
    }

    private static func list(of app: Int, _ channel: VendorChannel, isBulk: Bool) -> Int {
        app * listsPerApp + Int(channel.rawValue) * 2 + (isBulk ? 1 : 0)
    }

    /// Returns the oldest due job of an app, channel and kind, or `.none`.
    func firstDue(of app: Int, _ channel: VendorChannel, isBulk: Bool) -> JobSlot {
        lists[Self.list(of: app, channel, isBulk: isBulk)].ends.first
    }

    /// Returns the number of due jobs of all apps; most channels have none, so callers ask this first.
    func dueCount(of channel: VendorChannel) -> Int { dueCounts[channel] }

    func dueCount(of app: Int, _ channel: VendorChannel) -> Int {
        lists[Self.list(of: app, channel, isBulk: false)].count + lists[Self.list(of: app, channel, isBulk: true)].count
    }

    func heldCount(of app: Int, _ channel: VendorChannel) -> Int {
        lists[Self.list(of: app, channel, isBulk: false)].heldCount
            + lists[Self.list(of: app, channel, isBulk: true)].heldCount
    }

    func dueCount(of app: Int) -> Int { lists(of: app).reduce(0) { $0 + $1.count } }
    func heldCount(of app: Int) -> Int { lists(of: app).reduce(0) { $0 + $1.heldCount } }

    private func lists(of app: Int) -> ArraySlice<DueList> {
        lists[app * Self.listsPerApp..<(app + 1) * Self.listsPerApp]
    }

    func count(into numbers: inout VendorStatistics, of channel: VendorChannel) {
        (numbers.dueJobs, numbers.heldJobs) = (dueCounts[channel], heldCounts[channel])
        numbers.leasedJobs = leasedCounts[channel]
    }

    // MARK: Timers

    mutating func watch(_ slot: JobSlot, until time: GatewayTime) { timers.schedule(slot, at: time) }
    mutating func advance(to now: GatewayTime) { timers.advance(to: now) }
    mutating func popFired() -> JobSlot? { timers.popFired() }
    var hasFired: Bool { timers.hasFired }
    var nextTimer: GatewayTime { timers.earliest }
}
