internal import Structures
internal import Wire

struct OpenBatch {
    var device: DeviceSlot = .none
    /// The device of the open series of batches.
    var series: DeviceSlot = .none
    var rowCount = 0
    /// The message in memory whose row the batch writes; it gets the batch's ticket.
    var message = MessageSlot.none
    /// Whether a message of a connected device ended in the batch, possibly before the device saw it.
    var endsUnseen = false

    var isOpen: Bool { device != .none }

    /// The number of rows after which a series continues in a new batch; such a batch fits into one block of the journal.
    static let rowLimit = 96
}

extension Shard {
    /// Writes one change of one device as one batch: its rows, the changed counters and the device's record.
    ///
    /// Only `inBatch` and `inBatches` change a device's rows. An effect that depends on the change waits for `lastTicket`.
    @discardableResult
    mutating func inBatch<Result>(of device: DeviceSlot, _ change: (inout Shard) -> Result) -> Result {
        openBatch(device)
        let result = change(&self)
        closeBatch()
        return result
    }

    mutating func save(_ device: DeviceSlot) {
        inBatch(of: device) { $0.devices.at(device).value.needsRow() }
    }

    /// Writes any number of independent changes of one device in short batches; each change must call `nextChange` first.
    mutating func inBatches(of device: DeviceSlot, _ changes: (inout Shard) -> Void) {
        precondition(batch.series == .none, "series of batches do not nest")
        batch.series = device
        changes(&self)
        batch.series = .none
        if batch.isOpen { closeBatch() }
    }

    /// Begins the next change of a series, in the open batch or, if that batch is long, in a new one.
    mutating func nextChange() {
        let device = batch.series
        precondition(device != .none, "a change of a series that has not begun")
        if batch.isOpen {
            guard batch.rowCount >= OpenBatch.rowLimit else { return }
            closeBatch()
        }
        openBatch(device)
    }

    @discardableResult
    mutating func inBatch<Result>(in bucket: Bucket, _ write: (inout Shard) -> Result) -> Result {
        core.beginBatch(bucket)
        let result = write(&self)
        core.endBatch(bucket)
        return result
    }

    private mutating func openBatch(_ device: DeviceSlot) {
        core.beginBatch(devices.at(device).value.bucket)
        batch.device = device
        batch.rowCount = 0
        batch.message = .none
        batch.endsUnseen = false
    }

    private mutating func closeBatch() {
        let slot = batch.device
        let device = devices.at(slot)
        if device.value.isDirty { writeDevice(device) }
        batch.device = .none
        core.endBatch(device.value.bucket)
        // The ticket is not known earlier because the gateway's own rows take tickets of the same store.
        if batch.message != .none { messages.at(batch.message).value.ticket = outbox.lastTicket }
        if batch.endsUnseen { raiseBarrier(slot) }
        devices.releaseQueue(slot)
        if tasks.hasFreshFirstAcks { tellFirstAcks() }
    }

    /// Stops the device's stream until the last closed batch is durable.
    ///
    /// Otherwise later messages would move the device's position past the ended message. If a crash then lost the end, the
    /// position would settle the message as delivered, although it was not sent.
    private mutating func raiseBarrier(_ slot: DeviceSlot) {
        barriers[slot] = outbox.lastTicket
        outbox.hold(.resume(device: slot, cid: devices.at(slot).value.cid))
    }

    /// Returns whether the device's stream waits for an end to be durable.
    mutating func isBarred(_ slot: DeviceSlot) -> Bool {
        guard !barriers.isEmpty, let barrier = barriers[slot] else { return false }
        guard barrier <= outbox.committedTicket else { return true }
        barriers[slot] = nil
        return false
    }

    // MARK: Counters

    /// The app, bucket and day whose counters the open batch changes.
    var counterScope: CounterTable.Scope {
        let device = devices.at(batch.device)
        return CounterTable.Scope(app: apps[Int(device.value.appIndex)].key, bucket: device.value.bucket, now: now)
    }

    mutating func countAccepted(_ facts: MessageFacts) {
        let blocks = facts.queuedBlocks
        let day = counters.countAccepted(counterScope, acceptedAt: facts.acceptedAt, blocks: blocks)
        numbers.accepted &+= 1
        numbers.pending += 1
        let app = Int(devices.at(batch.device).value.appIndex)
        apps.countAccepted(app, blocks: Int64(blocks), day: day)
    }

    mutating func countResized(_ old: MessageFacts, as new: MessageFacts) {
        guard old.queuedBlocks != new.queuedBlocks else { return }
        counters.countResized(counterScope, from: old.queuedBlocks, to: new.queuedBlocks)
        let app = Int(devices.at(batch.device).value.appIndex)
        apps.figures[app].addBlocks(Int64(new.queuedBlocks) - Int64(old.queuedBlocks))
    }

    mutating func countReached(_ reach: CountersRow.Reach, of facts: MessageFacts, vendor: VendorChannel? = nil) {
        counters.count(reach, of: facts, vendor: vendor, now: now)
    }

    /// Counts, in the open batch, an event that is neither an acceptance nor an end.
    mutating func count(_ extra: CountersRow.Extra) { counters.count(extra, counterScope) }

    mutating func count(_ extra: CountersRow.Extra, ofAlertBy vendor: VendorChannel?) {
        counters.count(extra, ofAlertBy: vendor, counterScope)
    }

    /// Counts, in the open batch, that its device was registered (1) or removed (−1).
    mutating func countDevice(_ change: Int64) {
        count(change > 0 ? .registered : .collected)
        apps.addDevices(Int(devices.at(batch.device).value.appIndex), change)
    }
}
