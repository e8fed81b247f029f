// The loop's part in spilling: it lends rows to the spiller, and forgets them when they are safe. Both go in slices, a
// few hundred rows a turn, with a post in between, so that messages do not wait for thousands of rows.
//
// Between the two a row may be overwritten or deleted. The slot's version tells: the ordered store then has the older
// row, the slot (marked as perhaps cold when it was lent) hides it, and a later spill replaces or removes it.

internal import Delivery

/// Rows that are safe in the ordered store and may leave memory once `epoch` is over.
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
            // From now on a change must reckon with the row's being, or coming to be, in the ordered store.
            slot.pointee.mayBeCold = true
            slot.pointee.coldAlarm = slot.pointee.wakeAt
            slot.pointee.isCollected = true
            index.unlinkAge(number)
        }
        mailbox.wake()
    }

    /// Gives the spiller what was collected, once every change made so far is durable.
    ///
    /// The segment of a row that was overwritten or deleted is about to go, and the row is not among those collected:
    /// if the change were lost in a crash after that, the row would be lost with it.
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
            // Taken out by value: an observer may call the store.
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
            // Superseded meanwhile; but the ordered store does hold rows of the table now.
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
