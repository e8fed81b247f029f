internal import Structures
internal import Wire

/// The devices in memory, found by their cid, with their queues, their profiles and the commands that wait for them.
struct DeviceTable: ~Copyable {
    /// Commands that wait for one device.
    struct WaitList {
        fileprivate var commands: [Shard.Waiter] = []
        fileprivate var head = 0
        fileprivate var count: Int { commands.count - head }
    }

    /// Slots that the eviction hand passes for one record that comes in.
    private static let evictionStepCount = 64

    private var entries = Slab<Device>()
    private let queues = DeviceQueuePool.make()
    private var profiles = ProfileCells()
    private var index = SlotIndex()
    var timers: SlotTimers<Device>
    private var waitLists = Slab<WaitList>()
    /// Commands that wait, for devices and for aliases.
    private(set) var waitingCount = 0
    private var evictionHand = DeviceSlot.first
    /// Devices whose record is in memory.
    private(set) var loadedCount = 0

    init(now: GatewayTime) { timers = SlotTimers(resolution: 64, now: now) }

    deinit {
        for slot in entries.slots() where entries.isOccupied(slot) {
            let device = entries.pointer(slot)
            guard let place = device.pointee.profilePlace, !device.pointee.flags.contains(.profileInCell) else {
                continue
            }
            place.deallocate()
        }
        queues.deinitialize(count: 1)
        queues.deallocate()
    }

    var count: Int { entries.count }
    /// Devices that have a queue.
    var queueCount: Int { queues.pointee.count }
    @inline(__always) func isOccupied(_ slot: DeviceSlot) -> Bool { entries.isOccupied(slot) }
    /// The device's place, valid until the device is removed.
    @inline(__always) func pointer(_ slot: DeviceSlot) -> UnsafeMutablePointer<Device> { entries.pointer(slot) }
    @inline(__always) func address(_ slot: DeviceSlot) -> UnsafeMutablePointer<Device> { entries.address(slot) }

    /// The device's slot, if it has one.
    @inline(__always)  // A call would copy the whole table.
    func find(_ cid: DeviceID) -> DeviceSlot? {
        var probe = index.probe(cid.high, cid.low)
        while let number = index.next(&probe) {
            let slot = DeviceSlot(number: number)
            if entries.address(slot).pointee.cid == cid { return slot }
        }
        return nil
    }

    /// Where the device most likely is, if it has a slot: to check the record would wait for the memory to prefetch.
    func likelyAddress(_ cid: DeviceID) -> UnsafeMutablePointer<Device>? {
        var probe = index.probe(cid.high, cid.low)
        return index.next(&probe).map { entries.address(DeviceSlot(number: $0)) }
    }

    private static func key(of slot: UInt32, in entries: borrowing Slab<Device>) -> (high: UInt64, low: UInt64) {
        let cid = entries.address(DeviceSlot(number: slot)).pointee.cid
        return (cid.high, cid.low)
    }

    mutating func insert(_ cid: DeviceID, bucket: Bucket) -> DeviceSlot {
        let slot = entries.insert(Device(cid: cid, bucket: bucket, queue: queues.pointee.none))
        index.insert(slot.number, cid.high, cid.low) { Self.key(of: $0, in: entries) }
        return slot
    }

    mutating func remove(_ slot: DeviceSlot) {
        let device = pointer(slot)
        if device.pointee.isLoaded { loadedCount -= 1 }
        dropProfile(device)
        if !device.pointee.queue.isNone { queues.pointee.put(device.pointee.queue) }
        let cid = device.pointee.cid
        index.remove(slot.number, cid.high, cid.low) { Self.key(of: $0, in: entries) }
        timers.cancel(slot)
        entries.remove(slot)
    }

    // MARK: Records

    /// The record is in memory from now on.
    mutating func noteLoaded(_ slot: DeviceSlot) {
        pointer(slot).pointee.flags.insert(.loaded)
        loadedCount += 1
    }

    /// The record leaves memory; the slot stays.
    mutating func noteUnloaded(_ slot: DeviceSlot) {
        pointer(slot).pointee.flags.remove(.loaded)
        loadedCount -= 1
    }

    /// An idle record that may leave memory, or `nil` while at most `limit` are in memory.
    ///
    /// The hand of a clock passes a bounded number of slots for each record that comes in.
    mutating func nextIdle(beyond limit: Int, steps: inout Int) -> DeviceSlot? {
        while loadedCount > limit, steps < Self.evictionStepCount, entries.count > 0 {
            steps += 1
            evictionHand = entries.slot(after: evictionHand)
            guard entries.isOccupied(evictionHand) else { continue }
            let device = entries.pointer(evictionHand)
            guard device.pointee.isLoaded, device.pointee.isIdle else { continue }
            guard device.pointee.flags.contains(.touched) else { return evictionHand }
            device.pointee.flags.remove(.touched)
        }
        return nil
    }

    /// Gives an empty queue back to the pool; the shard calls this whenever a queue may have become empty.
    ///
    /// A read that is under way, and a missed ack, still use the queue's fields.
    mutating func releaseQueue(_ slot: DeviceSlot) {
        let device = pointer(slot)
        guard !device.pointee.queue.isNone, device.pointee.queue.isEmpty,
            device.pointee.flags.isDisjoint(with: [.suspect, .paging, .loading]), !device.pointee.isBusy
        else { return }
        queues.pointee.put(device.pointee.queue)
        device.pointee.queue = queues.pointee.none
    }

    // MARK: Profiles

    /// Copies a profile's bytes into the slot and notes which tokens are usable.
    mutating func keepProfile(_ slot: DeviceSlot, _ bytes: UnsafeRawBufferPointer) {
        let device = pointer(slot)
        let (place, isCell) = profiles.put(bytes)
        dropProfile(device)
        device.pointee.profilePlace = place
        if isCell { device.pointee.flags.insert(.profileInCell) }
        device.pointee.flags.subtract(.allTokens)
        for token in profile(slot).tokens where !token.isQuarantined {
            device.pointee.flags.insert(.token(token.channel, token.kind))
        }
    }

    mutating func keepProfile(_ slot: DeviceSlot, _ profile: DeviceProfile) {
        withUnsafeTemporaryAllocation(byteCount: profile.byteCount, alignment: 1) { buffer in
            var writer = RowWriter(buffer)
            profile.write(&writer)
            keepProfile(slot, UnsafeRawBufferPointer(rebasing: buffer[..<writer.offset]))
        }
    }

    func profile(_ slot: DeviceSlot) -> DeviceProfile {
        DeviceProfile(pointer(slot).pointee.profileBytes) ?? DeviceProfile(secret: [], tokens: [])
    }

    private mutating func dropProfile(_ device: UnsafeMutablePointer<Device>) {
        guard let place = device.pointee.profilePlace else { return }
        profiles.free(place, isCell: device.pointee.flags.contains(.profileInCell))
        device.pointee.profilePlace = nil
        device.pointee.flags.remove(.profileInCell)
    }

    // MARK: Waiting

    /// Counts a command that waits elsewhere, for an alias's row; false when too many commands wait in all.
    mutating func reserveWait(limitOfAll: Int) -> Bool {
        guard waitingCount < limitOfAll else { return false }
        waitingCount += 1
        return true
    }

    mutating func releaseWaits(_ count: Int) { waitingCount -= count }

    /// False when too many commands wait, for the device or in all.
    mutating func wait(
        _ slot: DeviceSlot, _ command: @escaping Shard.Waiter, limitOfOne: Int, limitOfAll: Int
    ) -> Bool {
        let device = pointer(slot)
        let count = device.pointee.waiting == .none ? 0 : waitLists.pointer(device.pointee.waiting).pointee.count
        guard count < limitOfOne, waitingCount < limitOfAll else { return false }
        if device.pointee.waiting == .none { device.pointee.waiting = waitLists.insert(WaitList()) }
        waitLists.pointer(device.pointee.waiting).pointee.commands.append(command)
        waitingCount += 1
        return true
    }

    /// The next command that waits for a device; after the last one the device waits for nothing.
    mutating func popWaiting(_ slot: DeviceSlot) -> Shard.Waiter? {
        let device = pointer(slot)
        guard device.pointee.waiting != .none else { return nil }
        let list = waitLists.pointer(device.pointee.waiting)
        guard list.pointee.count > 0 else {
            waitLists.remove(device.pointee.waiting)
            device.pointee.waiting = .none
            return nil
        }
        defer { list.pointee.head += 1 }
        waitingCount -= 1
        return list.pointee.commands[list.pointee.head]
    }
}
