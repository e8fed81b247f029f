// The loop's part of spilling. The loop lends rows to the spiller, and drops them once they are stored. Both run in slices of a
// few hundred rows per turn, so that messages do not wait for thousands of rows.
//
// A lent row may be overwritten or deleted before it is dropped. The slot's version detects this. The ordered store then has the
// older row. The slot, marked as possibly cold, hides it, and a later spill replaces or deletes it.

internal import Delivery

/// Rows that are stored in the ordered store; they leave memory once all reads of `epoch` have been answered.
struct CoolingRows {
    var rows: [SpilledRow]
    var period: Int64
    var epoch: UInt64
    var next: Int
}

extension EmbeddedShardStore {
    func collectSlice() {
        guard let limit = collectUpTo else { return }
        for _ in 0..<owner.sliceRowCount {
            if let number = loggedRows.collect(upTo: limit) {
                let row = loggedRows[number]
                collected.append(
                    SpilledRow(
                        key: row.pointee.key,
                        value: value(
                            at: ValueLocation(
                                block: row.pointee.block, offset: row.pointee.offset, byteCount: row.pointee.byteCount)),
                        wakeAt: 0, coldAlarm: 0, slot: UInt32(truncatingIfNeeded: number),
                        version: UInt32(truncatingIfNeeded: number >> 32), block: row.pointee.block))
                continue
            }
            let number = index.oldest(upTo: limit)
            guard number != noSlot else {
                collectUpTo = nil
                handOverAfter = lastTicket
                handOver()
                return
            }
            let slot = index[number]
            var value: UnsafeRawBufferPointer?
            if !slot.pointee.isDeleted {
                pool.retain(slot.pointee.block)
                value = self.value(
                    at: ValueLocation(
                        block: slot.pointee.block, offset: slot.pointee.offset, byteCount: slot.pointee.byteCount))
            }
            collected.append(
                SpilledRow(
                    key: slot.pointee.key, value: value, wakeAt: slot.pointee.wakeAt,
                    coldAlarm: slot.pointee.coldAlarm, slot: number, version: slot.pointee.version,
                    block: slot.pointee.block,
                    countedUpTo: slot.pointee.table == StoreKey.Table.counters.rawValue ? lastTicket : 0))
            // Later changes must assume that the ordered store has or will have the row.
            slot.pointee.mayBeCold = true
            slot.pointee.coldAlarm = slot.pointee.wakeAt
            slot.pointee.isCollected = true
            index.unlinkAge(number)
        }
        mailbox.wake()
    }

    /// Gives the collected rows to the spiller once every change so far is durable.
    ///
    /// The collection lacks rows that were overwritten or deleted, and their old segment is about to be recycled. If a crash then
    /// lost the change, the row would be lost, too.
    func handOver() {
        guard let ticket = handOverAfter, committedTicket >= ticket else { return }
        handOverAfter = nil
        var rows: [SpilledRow] = []
        swap(&rows, &collected)
        owner.collected(rows, from: self)
    }

    func coolSlice() {
        var budget = owner.sliceRowCount
        while !cooling.isEmpty, epochs.isOver(cooling[0].epoch) {
            // Moved out of `cooling`, because an observer may call the store during the loop.
            var current = cooling[0]
            cooling[0].rows = []
            while current.next < current.rows.count, budget > 0 {
                cool(current.rows[current.next], period: current.period)
                current.next += 1
                budget -= 1
            }
            if current.next < current.rows.count {
                cooling[0] = current
                mailbox.wake()
                return
            }
            cooling.removeFirst()
        }
    }

    private func cool(_ row: SpilledRow, period: Int64) {
        if row.key.table.isLogged {
            loggedRows.remove(UInt64(row.version) << 32 | UInt64(row.slot))
            pool.release(row.block)
            noteCold(row.key, wakeAt: 0, period: period)
            return
        }
        if row.value != nil { pool.release(row.block) }
        let slot = index[row.slot]
        guard slot.pointee.version == row.version, slot.pointee.isCollected else {
            // The row was superseded. The ordered store nevertheless has rows of the table now.
            noteSuperseded(row.key, period: period)
            return
        }
        let isLive = !slot.pointee.isDeleted
        if isLive { pool.release(slot.pointee.block) }
        index.remove(row.slot)
        guard isLive else { return }
        noteCold(row.key, wakeAt: row.wakeAt, period: period)
        if row.key.isReportedWhenCooled { observer?.storeCooled(row.key) }
    }

    private func noteSuperseded(_ key: StoreKey, period: Int64) { noteCold(key, wakeAt: 0, period: period) }
}
