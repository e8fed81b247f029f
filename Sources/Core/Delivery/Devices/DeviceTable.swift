internal import Structures
internal import Wire

/// The devices in memory by cid, with their queues, profiles and waiting commands.
struct DeviceTable: ~Copyable {
    struct WaitList {
        fileprivate var commands: [(run: Shard.Waiter, isAlarm: Bool)] = []
        fileprivate var head = 0
        fileprivate var alarmCount = 0
        fileprivate var count: Int { commands.count - head }
    }

    /// The number of slots that the eviction hand checks per added record.
    private static let evictionStepCount = 64

    private var entries = Slab<Device>()
    private let queues = DeviceQueuePool.make()
    /// A profile without tokens and names has 34 bytes, and 10 more if the device's app reports attributes.
    private var profiles = ByteCells(capacity: 34 + AttributesMark.byteCount + 1)
    private var index = SlotIndex()
    var timers: SlotTimers<Device>
    private var waitLists = Slab<WaitList>()
    private var evictionHand = DeviceSlot.first
    private(set) var loadedCount = 0

    init(now: GatewayTime) { timers = SlotTimers(resolution: 64, now: now) }

    deinit {
        for slot in entries.slots() where entries.isOccupied(slot) {
            let device = entries.at(slot)
            guard let place = device.value.profilePlace, !device.value.flags.contains(.profileInCell) else {
                continue
            }
            ByteCells.freeLong(place)
        }
        // No device outlives the table, and nothing else refers to the pool.
        unsafe queues.destroy()
    }

    var count: Int { entries.count }
    func slots() -> SlotRange<Device> { entries.slots() }
    var queueCount: Int { queues.value.count }
    @inline(__always) func isOccupied(_ slot: DeviceSlot) -> Bool { entries.isOccupied(slot) }
    /// Returns the device's address, valid until the device is removed.
    @inline(__always) func at(_ slot: DeviceSlot) -> Place<Device> { entries.at(slot) }
    @inline(__always) func unchecked(_ slot: DeviceSlot) -> Place<Device> { entries.unchecked(slot) }

    @inline(__always)  // A call would copy the whole table.
    func find(_ cid: DeviceID) -> DeviceSlot? {
        var probe = index.probe(cid.high, cid.low)
        while let number = index.next(&probe) {
            let slot = DeviceSlot(number: number)
            if entries.unchecked(slot).value.cid == cid { return slot }
        }
        return nil
    }

    /// Returns the device's likely address without checking the record, because the check would stall on the memory that the
    /// caller prefetches.
    func likelyAddress(_ cid: DeviceID) -> Place<Device>? {
        var probe = index.probe(cid.high, cid.low)
        return index.next(&probe).map { entries.unchecked(DeviceSlot(number: $0)) }
    }

    private static func key(of slot: UInt32, in entries: borrowing Slab<Device>) -> (high: UInt64, low: UInt64) {
        let cid = entries.unchecked(DeviceSlot(number: slot)).value.cid
        return (cid.high, cid.low)
    }

    mutating func insert(_ cid: DeviceID, bucket: Bucket) -> DeviceSlot {
        let slot = entries.insert(Device(cid: cid, bucket: bucket, queue: queues.value.none))
        index.insert(slot.number, cid.high, cid.low) { Self.key(of: $0, in: entries) }
        return slot
    }

    mutating func remove(_ slot: DeviceSlot) {
        let device = at(slot)
        if device.value.isLoaded { loadedCount -= 1 }
        dropProfile(device)
        if !device.value.queue.isNone { queues.value.put(device.value.queue) }
        let cid = device.value.cid
        index.remove(slot.number, cid.high, cid.low) { Self.key(of: $0, in: entries) }
        timers.cancel(slot)
        entries.remove(slot)
    }

    // MARK: Records

    mutating func noteLoaded(_ slot: DeviceSlot) {
        at(slot).value.flags.insert(.loaded)
        loadedCount += 1
    }

    /// Marks the record as evicted; the slot remains.
    mutating func noteUnloaded(_ slot: DeviceSlot) {
        at(slot).value.flags.remove(.loaded)
        loadedCount -= 1
    }

    /// Returns an idle record to evict, or `nil` while at most `limit` are in memory.
    ///
    /// A clock algorithm: the hand checks a bounded number of slots per added record.
    mutating func nextIdle(beyond limit: Int, steps: inout Int) -> DeviceSlot? {
        while loadedCount > limit, steps < Self.evictionStepCount, entries.count > 0 {
            steps += 1
            evictionHand = entries.slot(after: evictionHand)
            guard entries.isOccupied(evictionHand) else { continue }
            let device = entries.at(evictionHand)
            guard device.value.isLoaded, device.value.isIdle else { continue }
            guard device.value.flags.contains(.touched) else { return evictionHand }
            device.value.flags.remove(.touched)
        }
        return nil
    }

    /// Returns an empty queue to the pool.
    ///
    /// The shard calls this function whenever a queue may have become empty. The record stays while a read is pending or the
    /// session is suspect, because both use its fields.
    mutating func releaseQueue(_ slot: DeviceSlot) {
        let device = at(slot)
        guard !device.value.queue.isNone, device.value.queue.isEmpty,
            device.value.flags.isDisjoint(with: [.suspect, .paging, .loading]), !device.value.isBusy
        else { return }
        queues.value.put(device.value.queue)
        device.value.queue = queues.value.none
    }

    // MARK: Profiles

    mutating func loadProfile(_ slot: DeviceSlot, _ bytes: LentBytes) {
        let device = at(slot)
        let (place, isCell) = profiles.put(bytes)
        dropProfile(device)
        device.value.profilePlace = place
        if isCell { device.value.flags.insert(.profileInCell) }
        device.value.flags.subtract([.vendorFailed, .claimsTokens])
        device.value.tokens = []
        let profile = profile(slot)
        for token in profile.tokens where !token.isQuarantined {
            device.value.tokens.insert(TokenSet(token.channel, token.kind))
        }
        if profile.tokens.contains(where: { !$0.isClaimed }) { device.value.flags.insert(.claimsTokens) }
        if profile.vendorFailure != nil { device.value.flags.insert(.vendorFailed) }
    }

    /// Changes the profile; the open batch, or else the device's next batch, writes the row.
    mutating func changeProfile(_ slot: DeviceSlot, to profile: DeviceProfile) {
        profile.withBytes { loadProfile(slot, $0) }
        at(slot).value.needsRow()
    }

    func profile(_ slot: DeviceSlot) -> DeviceProfile {
        DeviceProfile(at(slot).value.profileBytes) ?? DeviceProfile(secret: [], tokens: [])
    }

    private mutating func dropProfile(_ device: Place<Device>) {
        guard let place = device.value.profilePlace else { return }
        profiles.free(place, isCell: device.value.flags.contains(.profileInCell))
        device.value.profilePlace = nil
        device.value.flags.remove(.profileInCell)
    }

    // MARK: Waiting

    /// Queues a command; returns false at the limit for the device or for all devices.
    mutating func wait(
        _ slot: DeviceSlot, _ command: @escaping Shard.Waiter, limitOfOne: Int, limitOfAll: Int,
        waitingCount: inout Int
    ) -> Bool {
        let device = at(slot)
        var count = 0
        if device.value.waiting != .none {
            let list = waitLists.at(device.value.waiting)
            count = list.value.count - list.value.alarmCount
        }
        guard count < limitOfOne, waitingCount < limitOfAll else { return false }
        append(slot, command, isAlarm: false)
        waitingCount += 1
        return true
    }

    /// Queues an alarm.
    ///
    /// Alarms are never refused and do not count against the limit of commands.
    ///
    /// Any number of a device's messages may expire together. The number of waiting alarms is bounded by one batch from the store
    /// (`limits.alarmBatch`) plus earlier failed alarms.
    mutating func wait(_ slot: DeviceSlot, alarm: @escaping Shard.Waiter) { append(slot, alarm, isAlarm: true) }

    private mutating func append(_ slot: DeviceSlot, _ command: @escaping Shard.Waiter, isAlarm: Bool) {
        let device = at(slot)
        if device.value.waiting == .none { device.value.waiting = waitLists.insert(WaitList()) }
        let list = waitLists.at(device.value.waiting)
        list.value.commands.append((command, isAlarm))
        if isAlarm { list.value.alarmCount += 1 }
    }

    /// Removes the next waiting command, or frees the list if it is empty.
    mutating func popWaiting(_ slot: DeviceSlot, waitingCount: inout Int) -> Shard.Waiter? {
        let device = at(slot)
        guard device.value.waiting != .none else { return nil }
        let list = waitLists.at(device.value.waiting)
        guard list.value.count > 0 else {
            waitLists.remove(device.value.waiting)
            device.value.waiting = .none
            return nil
        }
        let command = list.value.commands[list.value.head]
        list.value.head += 1
        if command.isAlarm { list.value.alarmCount -= 1 } else { waitingCount -= 1 }
        return command.run
    }
}
