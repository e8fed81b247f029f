// A queue that stands above its app's bounds, because these were lowered: with `dropOldest` the next publish ends the
// oldest messages until the queue is within them. There may be any number, so they end in short batches, a slice a turn.

internal import Structures
internal import Wire

/// The rest of a queue in the store, while it is being shed.
private final class Shedding {
    let completion: (inout Shard, Bool) -> Void
    /// Of the vendor table, which is not in the order of acceptance.
    var vendor: [(acceptedAt: GatewayTime, byteCount: UInt32, item: UInt64)] = []
    var chosen: Set<UInt64> = []
    init(_ completion: @escaping (inout Shard, Bool) -> Void) { self.completion = completion }
}

extension Shard {
    /// Rows of one page: what ends of them is one batch or two.
    private static var shedPageRowCount: Int { 128 }

    /// How far the queue is over its bounds as it stands, if the app's policy is to drop the oldest.
    func standingExcess(_ slot: UInt32) -> Excess {
        let device = devices.pointer(slot)
        let settings = apps[Int(device.pointee.appIndex)]
        guard settings.overflowPolicy == .dropOldest else { return Excess(count: 0, bytes: 0) }
        return Excess(
            count: Int(device.pointee.messageCount) + Int(device.pointee.vendorCount) - settings.queuedMessageLimit,
            bytes: Int(device.pointee.messageBytes + device.pointee.vendorBytes) - settings.queuedByteLimit)
    }

    /// Ends the oldest messages that are neither sent nor leased until the queue is within its bounds, or none is left.
    ///
    /// The device is busy. The completion gets false when a read failed.
    mutating func shed(_ slot: UInt32, completion: @escaping (inout Shard, Bool) -> Void) {
        let device = devices.pointer(slot)
        guard device.pointee.coldMessageCount == 0, device.pointee.coldVendorCount == 0 else {
            shedPages(Shedding(completion), slot, from: 0)
            return
        }
        var excess = standingExcess(slot)
        var count = 0
        for first in [device.pointee.firstMessage, device.pointee.firstVendor] {
            var next = first
            while excess.isAny, next != .max, count < limits.sliceCount {
                let message = next
                let entry = messages.pointer(message)
                next = entry.pointee.next
                guard mayDrop(message) else { continue }
                excess.take(away: Excess(count: 1, bytes: Int(entry.pointee.facts.byteCount)))
                endShed(message, slot)
                count += 1
            }
        }
        if batch.isOpen { closeBatch() }
        if count == limits.sliceCount, excess.isAny {
            later { $0.shed(slot, completion: completion) }
        } else {
            completion(&self, true)
        }
    }

    private mutating func endShed(_ message: UInt32, _ slot: UInt32) {
        openOrBreakBatch(slot)
        let entry = messages.pointer(message)
        end(entry.pointee.facts, .overflowed, message: message, job: entry.pointee.job)
    }

    /// The same with rows on disk: first those of the live stream, which are in order, a page a turn.
    private mutating func shedPages(_ shedding: Shedding, _ slot: UInt32, from item: UInt64) {
        scan(slot, table: .message, from: item, rowLimit: Self.shedPageRowCount, byteLimit: 1 << 20) {
            shard, rows, isComplete, ok in
            guard ok else { return shedding.completion(&shard, false) }
            shard.endPage(rows, slot) { _ in true }
            guard shard.standingExcess(slot).isAny else { return shedding.completion(&shard, true) }
            if !isComplete, let last = rows.last {
                shard.shedPages(shedding, slot, from: last.facts.item &+ 1)
            } else {
                shard.findVendor(shedding, slot, from: 0)
            }
        }
    }

    /// Then those of the vendor table: which are the oldest is known when all have been seen.
    private mutating func findVendor(_ shedding: Shedding, _ slot: UInt32, from item: UInt64) {
        scan(slot, table: .vendorMessage, from: item, rowLimit: Self.shedPageRowCount, byteLimit: 1 << 20) {
            shard, rows, isComplete, ok in
            guard ok else { return shedding.completion(&shard, false) }
            for row in rows where row.job?.state != .leased {
                shedding.vendor.append((row.facts.acceptedAt, row.facts.byteCount, row.facts.item))
            }
            if !isComplete, let last = rows.last {
                return shard.findVendor(shedding, slot, from: last.facts.item &+ 1)
            }
            shedding.vendor.sort { $0.acceptedAt < $1.acceptedAt }
            var excess = shard.standingExcess(slot)
            for row in shedding.vendor where excess.isAny {
                shedding.chosen.insert(row.item)
                excess.take(away: Excess(count: 1, bytes: Int(row.byteCount)))
            }
            shedding.vendor = []
            shard.shedVendor(shedding, slot, from: 0)
        }
    }

    private mutating func shedVendor(_ shedding: Shedding, _ slot: UInt32, from item: UInt64) {
        scan(slot, table: .vendorMessage, from: item, rowLimit: Self.shedPageRowCount, byteLimit: 1 << 20) {
            shard, rows, isComplete, ok in
            guard ok else { return shedding.completion(&shard, false) }
            shard.endPage(rows, slot) { shedding.chosen.contains($0.item) }
            guard !isComplete, let last = rows.last, shard.standingExcess(slot).isAny else {
                return shedding.completion(&shard, true)
            }
            shard.shedVendor(shedding, slot, from: last.facts.item &+ 1)
        }
    }

    /// Ends what may be ended of a page that was read, while the queue is over its bounds.
    private mutating func endPage(_ rows: [Scanned], _ slot: UInt32, where isChosen: (MessageFacts) -> Bool) {
        for row in rows where isChosen(row.facts) && standingExcess(slot).isAny {
            let known = listedMessage(table: row.facts.table, item: row.facts.item, of: slot)
            let message = known ?? adoptMessage(row, device: slot)
            if mayDrop(message) {
                endShed(message, slot)
            } else if known == nil {
                leaveToStore(message)
            }
        }
        if batch.isOpen { closeBatch() }
    }
}
