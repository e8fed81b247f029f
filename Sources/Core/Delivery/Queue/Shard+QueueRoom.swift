// Room in a device's queue for a new message. The shard loads the messages under its collapse key. It then drops the oldest
// messages, if the app's policy allows it, or refuses the new one. A reload may lower a bound below a queue's size. Such a queue
// is shrunk first, in short batches and one slice per turn.

internal import Structures
internal import Wire

struct Excess {
    var count: Int
    var bytes: Int
    var isAny: Bool { count > 0 || bytes > 0 }
    mutating func take(away other: Excess) {
        count -= other.count
        bytes -= other.bytes
    }
}

private final class Overflow {
    let kept: KeptPublish
    let hash: UInt64
    var excess: Excess
    var dropping: [MessageID] = []
    var candidates: [MessageFacts] = []
    var brought: [MessageID] = []

    init(_ kept: KeptPublish, hash: UInt64, excess: Excess) {
        (self.kept, self.hash, self.excess) = (kept, hash, excess)
    }
}

private final class ColdSearch {
    let hash: UInt64
    var brought: [MessageID] = []
    /// The keys found; see `Shard.keyBit`.
    var keys: UInt64 = 0

    init(hash: UInt64) { self.hash = hash }
}

private final class Shedding {
    let completion: (inout Shard, Reading) -> Void
    /// The messages of the vendor table, which are not ordered by acceptance.
    var vendor: [(acceptedAt: GatewayTime, byteCount: UInt32, item: UInt64)] = []
    var chosen: Set<UInt64> = []
    init(_ completion: @escaping (inout Shard, Reading) -> Void) { self.completion = completion }
}

private struct ShedPlace {
    var isVendor = false
    var slot = MessageSlot.none
    var message: MessageID?
}

extension Shard {
    /// Returns whether the queue is within its bounds; otherwise shrinks the queue and then resumes the publish.
    mutating func isWithinBounds(_ command: PublishCommand, _ slot: DeviceSlot) -> Bool {
        guard standingExcess(slot).isAny else { return true }
        // A lowered bound may leave any number of messages above it. They end in separate batches and turns.
        let kept = KeptPublish(command)
        whileBusy(slot) { shard, done in
            shard.shed(slot, completion: done)
        } then: { shard, reading in
            switch reading {
            case .whole: shard.proceed(kept.command, slot, from: .collapsible)
            case .unreadable: shard.refuse(kept.command, .storeFailed)
            }
        }
        return false
    }

    /// Returns whether the messages that the new one may collapse are in memory; otherwise loads them and resumes the publish.
    mutating func hasCollapsible(_ command: PublishCommand, _ slot: DeviceSlot, hash: UInt64) -> Bool {
        let device = devices.at(slot)
        guard hash != 0, device.value.coldKeys & Self.keyBit(hash) != 0,
            device.value.coldMessageCount > 0 || device.value.coldVendorCount > 0
        else { return true }
        let kept = KeptPublish(command)
        let search = ColdSearch(hash: hash)
        whileBusy(slot) { shard, done in
            shard.findCold(search, slot, table: .message, from: 0, completion: done)
        } then: { shard, reading in
            switch reading {
            case .whole: shard.proceed(kept.command, slot, from: .room)
            case .unreadable: shard.refuse(kept.command, .storeFailed)
            }
            // The loaded messages leave memory after the stage `room`, which may read the store again.
            shard.whenReady(slot, isAlarm: true) { shard, slot, readiness in
                if readiness == .ready { shard.leaveBrought(search.brought, of: slot) }
            }
        }
        return false
    }

    /// Searches all rows on disk for a collapse key, page by page, and records all keys found.
    private mutating func findCold(
        _ search: ColdSearch, _ slot: DeviceSlot, table: StoreKey.Table, from item: UInt64,
        completion: @escaping (inout Shard, Reading) -> Void
    ) {
        scan(slot, table: table, from: item, rowLimit: 256, byteLimit: 1 << 20) { shard, page in
            guard case .rows(let rows, let isLast) = page else { return completion(&shard, .unreadable) }
            for row in rows {
                let key = row.row.collapseHash
                guard key != 0 else { continue }
                search.keys |= Self.keyBit(key)
                guard key == search.hash,
                    shard.listedMessage(table: table, item: row.facts.item, of: slot) == nil
                else { continue }
                _ = shard.adoptMessage(row, device: slot)
                search.brought.append(row.facts.message)
            }
            if !isLast, let last = rows.last {
                shard.findCold(search, slot, table: table, from: last.facts.item &+ 1, completion: completion)
            } else if table == .message {
                shard.findCold(search, slot, table: .vendorMessage, from: 0, completion: completion)
            } else {
                shard.devices.at(slot).value.coldKeys = search.keys
                completion(&shard, .whole)
            }
        }
    }

    /// Removes from memory the loaded messages that did not end.
    private mutating func leaveBrought(_ brought: [MessageID], of device: DeviceSlot) {
        for id in brought {
            guard let slot = listedMessage(id, of: device) else { continue }
            let entry = messages.at(slot)
            if entry.value.flags.contains(.cold), !entry.value.flags.contains(.sentHere) { leaveToStore(slot) }
        }
    }

    /// Refuses the message, or selects the oldest messages to drop that are neither in flight nor leased (docs/Semantics.md,
    /// "Collapse, overflow and revoke").
    ///
    /// - Returns: the messages to drop; `nil` if the message was refused, or the search continues on disk.
    mutating func makeRoom(_ command: PublishCommand, _ slot: DeviceSlot, hash: UInt64) -> [MessageSlot]? {
        let device = devices.at(slot)
        // The app may have been removed while the queue was read.
        guard let settings = apps[Int(device.value.appIndex)].knowledge.settings else {
            refuse(command, .busy)
            return nil
        }
        var excess = excess(with: command, slot, hash: hash, settings)
        guard excess.isAny else { return [] }
        guard settings.overflowPolicy == .dropOldest else {
            refuse(command, .queueFull)
            return nil
        }
        if device.value.coldMessageCount > 0 || device.value.coldVendorCount > 0 {
            let overflow = Overflow(KeptPublish(command), hash: hash, excess: excess)
            whileBusy(slot) { shard, done in
                shard.findColdOldest(overflow, slot, table: .message, from: 0, completion: done)
            } then: { shard, reading in
                shard.dropFound(overflow, slot, reading)
            }
            return nil
        }
        var dropping: [MessageSlot] = []
        for first in [device.value.firstMessage, device.value.firstVendor] {
            var oldest = first
            while excess.isAny, oldest != .none {
                let entry = messages.at(oldest)
                if mayDrop(oldest), hash == 0 || entry.value.collapseHash != hash {
                    dropping.append(oldest)
                    excess.take(away: Excess(count: 1, bytes: Int(entry.value.facts.byteCount)))
                }
                oldest = entry.value.next
            }
        }
        guard !excess.isAny else {
            refuse(command, .queueFull)
            return nil
        }
        return dropping
    }

    private func excess(
        with command: PublishCommand, _ slot: DeviceSlot, hash: UInt64, _ settings: AppSettings
    ) -> Excess {
        let device = devices.at(slot)
        let size = Int(MessageRow.charge(MessageRow.byteCountLimit(command)))
        var excess = Excess(
            count: Int(device.value.messageCount + device.value.vendorCount) + 1 - settings.queuedMessageLimit,
            bytes: Int(device.value.messageBytes + device.value.vendorBytes) + size - settings.queuedByteLimit)
        if excess.isAny, hash != 0 { excess.take(away: collapsible(slot, hash: hash)) }
        return excess
    }

    /// Returns whether the message is neither leased nor sent in this session; an ack may be in transit even after a recall.
    func mayDrop(_ slot: MessageSlot) -> Bool {
        let entry = messages.at(slot)
        if entry.value.flags.contains(.sentHere), !isPlanted(.overflowDropsInFlight) { return false }
        guard entry.value.job != .none else { return true }
        return jobs.at(entry.value.job).value.row.state != .leased
            && jobs.at(entry.value.job).value.place != .leasing
    }

    /// Finds the oldest messages, page by page, until there is room or no row is left.
    private mutating func findColdOldest(
        _ overflow: Overflow, _ slot: DeviceSlot, table: StoreKey.Table, from item: UInt64,
        completion: @escaping (inout Shard, Reading) -> Void
    ) {
        scan(slot, table: table, from: item, rowLimit: 256, byteLimit: 1 << 20) { shard, page in
            guard case .rows(let rows, let isLast) = page else { return completion(&shard, .unreadable) }
            for row in rows where overflow.excess.isAny {
                let known = shard.listedMessage(table: table, item: row.facts.item, of: slot)
                let message = known ?? shard.adoptMessage(row, device: slot)
                let entry = shard.messages.at(message)
                guard shard.mayDrop(message), overflow.hash == 0 || entry.value.collapseHash != overflow.hash else {
                    if known == nil { shard.leaveToStore(message) }
                    continue
                }
                if known == nil { overflow.brought.append(row.facts.message) }
                if table == .vendorMessage {
                    overflow.candidates.append(entry.value.facts)
                    continue
                }
                overflow.dropping.append(row.facts.message)
                overflow.excess.take(away: Excess(count: 1, bytes: Int(entry.value.facts.byteCount)))
            }
            if overflow.excess.isAny, !isLast, let last = rows.last {
                shard.findColdOldest(
                    overflow, slot, table: table, from: last.facts.item &+ 1, completion: completion)
            } else if overflow.excess.isAny, table == .message {
                shard.findColdOldest(overflow, slot, table: .vendorMessage, from: 0, completion: completion)
            } else {
                completion(&shard, .whole)
            }
        }
    }

    /// Accepts the message in place of the found messages, if they make enough room.
    private mutating func dropFound(_ overflow: Overflow, _ slot: DeviceSlot, _ reading: Reading) {
        // The vendor table is not ordered by acceptance, so its oldest messages are known only after all rows are read.
        overflow.candidates.sort { $0.acceptedAt < $1.acceptedAt }
        for facts in overflow.candidates where overflow.excess.isAny {
            overflow.dropping.append(facts.message)
            overflow.excess.take(away: Excess(count: 1, bytes: Int(facts.byteCount)))
        }
        let command = overflow.kept.command
        switch (reading, apps[Int(devices.at(slot).value.appIndex)].knowledge.settings) {
        case (.unreadable, _): refuse(command, .storeFailed)
        case (.whole, nil): refuse(command, .busy)
        case (.whole, let settings?):
            // During the reads messages may have been sent, or have ended and made room.
            var excess = excess(with: command, slot, hash: overflow.hash, settings)
            var dropping: [MessageSlot] = []
            for id in overflow.dropping where excess.isAny {
                guard let message = listedMessage(id, of: slot), mayDrop(message) else { continue }
                dropping.append(message)
                excess.take(away: Excess(count: 1, bytes: Int(messages.at(message).value.facts.byteCount)))
            }
            if excess.isAny {
                refuse(command, overflow.excess.isAny ? .queueFull : .busy)
            } else {
                accept(command, slot, hash: overflow.hash, dropping: dropping)
            }
        }
        leaveBrought(overflow.brought, of: slot)
    }

    private func collapsible(_ slot: DeviceSlot, hash: UInt64) -> Excess {
        var sum = Excess(count: 0, bytes: 0)
        for message in messages(under: hash, of: slot) {
            let entry = messages.at(message)
            guard !entry.value.flags.contains(.sentHere) else { continue }
            sum.count += 1
            sum.bytes += Int(entry.value.facts.byteCount)
        }
        return sum
    }

    // MARK: A bound that was lowered

    private static var shedPageRowCount: Int { 128 }
    /// The number of retained messages whose check costs as much of a slice as the end of one message.
    private static var shedLooksPerEnd: Int { 16 }

    /// Returns the current excess of the queue if the app's policy is to drop the oldest messages.
    func standingExcess(_ slot: DeviceSlot) -> Excess {
        let device = devices.at(slot)
        guard let settings = apps[Int(device.value.appIndex)].knowledge.settings, settings.overflowPolicy == .dropOldest
        else { return Excess(count: 0, bytes: 0) }
        return Excess(
            count: Int(device.value.messageCount) + Int(device.value.vendorCount) - settings.queuedMessageLimit,
            bytes: Int(device.value.messageBytes + device.value.vendorBytes) - settings.queuedByteLimit)
    }

    /// Ends the oldest messages that are neither in flight nor leased, until the queue is within its bounds or none is left.
    ///
    /// The device must be busy until the completion (`whileBusy`).
    mutating func shed(_ slot: DeviceSlot, completion: @escaping (inout Shard, Reading) -> Void) {
        let device = devices.at(slot)
        guard device.value.coldMessageCount == 0, device.value.coldVendorCount == 0 else {
            shedPages(Shedding(completion), slot, from: 0)
            return
        }
        shedYoung(slot, from: ShedPlace(), completion: completion)
    }

    /// Shrinks a queue in memory, one slice per turn, measured by the messages checked.
    private mutating func shedYoung(
        _ slot: DeviceSlot, from start: ShedPlace, completion: @escaping (inout Shard, Reading) -> Void
    ) {
        let device = devices.at(slot)
        var place = start
        var excess = standingExcess(slot)
        var next = place.isVendor ? device.value.firstVendor : device.value.firstMessage
        // The message may have ended since the last turn. The list then restarts.
        if let known = place.message, messages.isOccupied(place.slot),
            messages.at(place.slot).value.facts.message == known
        {
            next = place.slot
        }
        var looks = limits.sliceCount * Self.shedLooksPerEnd
        inBatches(of: slot) { shard in
            while excess.isAny, looks > 0, next != .none || !place.isVendor {
                guard next != .none else {
                    place.isVendor = true
                    next = device.value.firstVendor
                    continue
                }
                let message = next
                let entry = shard.messages.at(message)
                next = entry.value.next
                looks -= 1
                guard shard.mayDrop(message) else { continue }
                excess.take(away: Excess(count: 1, bytes: Int(entry.value.facts.byteCount)))
                shard.endShed(message)
                looks -= Self.shedLooksPerEnd - 1
            }
        }
        // The first list is finished, so the next turn must continue with the second.
        if next == .none, !place.isVendor {
            place.isVendor = true
            next = device.value.firstVendor
        }
        guard excess.isAny, next != .none else { return completion(&self, .whole) }
        place.slot = next
        place.message = messages.at(next).value.facts.message
        later { shard in
            let device = shard.devices.at(slot)
            // Rows may have left memory since the last turn. They are then searched on disk.
            guard device.value.coldMessageCount == 0, device.value.coldVendorCount == 0 else {
                return shard.shed(slot, completion: completion)
            }
            shard.shedYoung(slot, from: place, completion: completion)
        }
    }

    private mutating func endShed(_ message: MessageSlot) {
        nextChange()
        let entry = messages.at(message)
        end(entry.value.facts, .overflowed, message: message, job: entry.value.job)
    }

    /// Shrinks a queue on disk: first the live stream, which is ordered, one page per turn.
    private mutating func shedPages(_ shedding: Shedding, _ slot: DeviceSlot, from item: UInt64) {
        scan(slot, table: .message, from: item, rowLimit: Self.shedPageRowCount, byteLimit: 1 << 20) {
            shard, page in
            guard case .rows(let rows, let isLast) = page else { return shedding.completion(&shard, .unreadable) }
            shard.endPage(rows, slot) { _ in true }
            guard shard.standingExcess(slot).isAny else { return shedding.completion(&shard, .whole) }
            if !isLast, let last = rows.last {
                shard.shedPages(shedding, slot, from: last.facts.item &+ 1)
            } else {
                shard.findVendor(shedding, slot, from: 0)
            }
        }
    }

    /// Selects the oldest messages of the vendor table after all its rows are read, because they are not ordered by acceptance.
    private mutating func findVendor(_ shedding: Shedding, _ slot: DeviceSlot, from item: UInt64) {
        scan(slot, table: .vendorMessage, from: item, rowLimit: Self.shedPageRowCount, byteLimit: 1 << 20) {
            shard, page in
            guard case .rows(let rows, let isLast) = page else { return shedding.completion(&shard, .unreadable) }
            for row in rows where row.job?.state != .leased {
                shedding.vendor.append((row.facts.acceptedAt, row.facts.byteCount, row.facts.item))
            }
            if !isLast, let last = rows.last {
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

    private mutating func shedVendor(_ shedding: Shedding, _ slot: DeviceSlot, from item: UInt64) {
        scan(slot, table: .vendorMessage, from: item, rowLimit: Self.shedPageRowCount, byteLimit: 1 << 20) {
            shard, page in
            guard case .rows(let rows, let isLast) = page else { return shedding.completion(&shard, .unreadable) }
            shard.endPage(rows, slot) { shedding.chosen.contains($0.item) }
            guard !isLast, let last = rows.last, shard.standingExcess(slot).isAny else {
                return shedding.completion(&shard, .whole)
            }
            shard.shedVendor(shedding, slot, from: last.facts.item &+ 1)
        }
    }

    private mutating func endPage(_ rows: [Scanned], _ slot: DeviceSlot, where isChosen: (MessageFacts) -> Bool) {
        inBatches(of: slot) { shard in
            for row in rows where isChosen(row.facts) && shard.standingExcess(slot).isAny {
                let known = shard.listedMessage(table: row.facts.table, item: row.facts.item, of: slot)
                let message = known ?? shard.adoptMessage(row, device: slot)
                if shard.mayDrop(message) {
                    shard.endShed(message)
                } else if known == nil {
                    shard.leaveToStore(message)
                }
            }
        }
    }
}
