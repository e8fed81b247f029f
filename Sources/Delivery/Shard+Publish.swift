// Acceptance of a message: what it may displace, which channels may carry it, and the one batch that makes it durable.

internal import Structures
internal import Wire

extension Shard {
    /// Accepts one message for one device, or says why not.
    ///
    /// The answer comes as `.publishAnswered`.
    ///
    /// The command's bytes are read during the call; when the device's record must be fetched first they are copied.
    public mutating func publish(_ command: borrowing PublishCommand, now: GatewayTime) {
        begin(now)
        let command = copy command
        guard store.acceptsWrites else {
            refuse(command, .busy)
            return
        }
        guard MessageRow.byteCount(command) <= StoreBounds.valueByteCount else {
            refuse(command, .tooLarge)
            return
        }
        // What is left is for those who have not had their share.
        if isShortOfRoom, isOverShare(command.app) {
            numbers.refusedOverShare &+= 1
            refuse(command, .busy)
            return
        }
        guard !retiredApps.contains(command.app) else {
            refuse(command, .unknownDevice)
            return
        }
        if let slot = knownDevice(command.cid), isFree(slot) {
            admit(command, slot)
            return
        }
        let kept = KeptPublish(command)
        whenReady(deviceSlot(command.cid, bucket: command.bucket)) { shard, slot, readiness in
            switch readiness {
            case .ready: shard.admit(kept.command, slot)
            case .unknown: shard.refuse(kept.command, .unknownDevice)
            case .crowded: shard.refuse(kept.command, .busy)
            case .failed: shard.refuse(kept.command, .storeFailed)
            }
        }
    }

    func isOwn(_ command: PublishCommand, _ slot: UInt32) -> Bool {
        apps[Int(devices.pointer(slot).pointee.appIndex)].key == command.app
    }

    mutating func refuse(
        _ command: PublishCommand, _ code: PublishOutcome.Code, reason: PublishOutcome.FallbackReason = .applies
    ) {
        if code == .busy || code == .storeFailed { numbers.refusedBusy &+= 1 }
        if code == .queueFull { numbers.refusedQueueFull &+= 1 }
        effects.append(
            .publishAnswered(
                command.origin,
                PublishOutcome(code: code, cid: command.cid, task: command.task, fallbackReason: reason)))
    }

    // MARK: Request ids

    /// A repeated request gets the answer it got before.
    private mutating func admit(_ command: PublishCommand, _ slot: UInt32) {
        devices.pointer(slot).pointee.flags.insert(.touched)
        guard isOwn(command, slot) else {
            refuse(command, .unknownDevice)
            return
        }
        // A revoke goes on: what waits for an ignored device must not reach it later.
        guard !isIgnored(slot) || !command.revokes.isNone else {
            answer(command, PublishOutcome(code: .ignored, cid: command.cid, task: command.task), slot: .max)
            return
        }
        if command.task.hasLedger {
            admitOnce(command, slot)
            return
        }
        guard command.requestKey != (0, 0) else {
            proceed(command, slot)
            return
        }
        let key = requestKey(command)
        if case .found(let location, _) = store.young(key) {
            repeatAnswer(command, store.value(at: location))
        } else if store.isCertainlyAbsent(key) {
            proceed(command, slot)
        } else {
            let kept = KeptPublish(command)
            devices.pointer(slot).pointee.flags.insert(.busy)
            read([.get(key)]) { shard, reply in
                shard.devices.pointer(slot).pointee.flags.remove(.busy)
                switch reply.results.first {
                case .row(let stored?)?: shard.repeatAnswer(kept.command, stored.value)
                case .row(nil)?: shard.proceed(kept.command, slot)
                default: shard.refuse(kept.command, .storeFailed)
                }
                shard.drainWaiting(slot)
            }
        }
    }

    private func requestKey(_ command: PublishCommand) -> StoreKey {
        StoreKey(
            command.bucket, .request, ownerHigh: command.requestKey.0, ownerLow: command.requestKey.1)
    }

    private mutating func repeatAnswer(_ command: PublishCommand, _ bytes: UnsafeRawBufferPointer) {
        guard let (outcome, digest) = RequestRow.read(bytes) else {
            damaged(requestKey(command))
            refuse(command, .storeFailed)
            return
        }
        guard digest == command.requestDigest else {
            refuse(command, .requestConflict)
            return
        }
        numbers.repeatedRequests &+= 1
        // The first answer may still wait for its commit; this one must not overtake it.
        answer(command, outcome, slot: .max)
    }

    mutating func answer(_ command: PublishCommand, _ outcome: PublishOutcome, slot: UInt32) {
        pending.append(
            PendingEffect(
                ticket: lastTicket, kind: .publish(command.origin, outcome, device: slot, cid: command.cid)))
        releaseDue()
    }

    // MARK: Collapse and overflow among cold rows

    /// Makes the room that the device's queue must have, then decides.
    mutating func makeRoom(_ command: PublishCommand, _ slot: UInt32) {
        guard standingExcess(slot).isAny else {
            bringCollapsible(command, slot)
            return
        }
        // A bound that was lowered leaves any number above it: these end in batches and turns of their own.
        let kept = KeptPublish(command)
        devices.pointer(slot).pointee.flags.insert(.busy)
        shed(slot) { shard, ok in
            shard.devices.pointer(slot).pointee.flags.remove(.busy)
            if ok { shard.bringCollapsible(kept.command, slot) } else { shard.refuse(kept.command, .storeFailed) }
            shard.drainWaiting(slot)
        }
    }

    /// Brings those cold messages into memory that this one may end, then decides.
    private mutating func bringCollapsible(_ command: PublishCommand, _ slot: UInt32) {
        let device = devices.pointer(slot)
        let hash = command.collapseKey.isEmpty ? 0 : Fingerprint.of(command.collapseKey)
        if hash != 0, device.pointee.coldKeys & Self.keyBit(hash) != 0,
            device.pointee.coldMessageCount > 0 || device.pointee.coldVendorCount > 0
        {
            let kept = KeptPublish(command)
            devices.pointer(slot).pointee.flags.insert(.busy)
            findCold(slot, hash: hash, table: .message, from: 0, found: [], keys: 0) { shard, found, ok in
                shard.devices.pointer(slot).pointee.flags.remove(.busy)
                if ok {
                    shard.makeQueueRoom(kept.command, slot, hash: hash, brought: found)
                } else {
                    shard.refuse(kept.command, .storeFailed)
                }
                shard.leaveBrought(found, of: slot)
                shard.drainWaiting(slot)
            }
        } else {
            makeQueueRoom(command, slot, hash: hash, brought: [])
        }
    }

    /// Looks through all cold rows for a collapse key, page by page, and notes on the way which keys there are.
    private mutating func findCold(
        _ slot: UInt32, hash: UInt64, table: StoreKey.Table, from item: UInt64, found: [MessageID], keys: UInt64,
        completion: @escaping (inout Shard, [MessageID], Bool) -> Void
    ) {
        scan(slot, table: table, from: item, rowLimit: 256, byteLimit: 1 << 20) { shard, rows, isComplete, ok in
            guard ok else {
                completion(&shard, found, false)
                return
            }
            var (found, keys) = (found, keys)
            for row in rows where !row.row.collapseKey.isEmpty {
                let key = Fingerprint.of(row.row.collapseKey)
                keys |= Self.keyBit(key)
                guard key == hash,
                    shard.listedMessage(table: table, item: row.facts.item, of: slot) == nil
                else { continue }
                _ = shard.adoptMessage(row, device: slot)
                found.append(row.facts.message)
            }
            if !isComplete, let last = rows.last {
                shard.findCold(
                    slot, hash: hash, table: table, from: last.facts.item &+ 1, found: found, keys: keys,
                    completion: completion)
            } else if table == .message {
                shard.findCold(
                    slot, hash: hash, table: .vendorMessage, from: 0, found: found, keys: keys, completion: completion)
            } else {
                shard.devices.pointer(slot).pointee.coldKeys = keys
                completion(&shard, found, true)
            }
        }
    }

    /// Cold messages that were brought in and not ended go back to where they came from.
    private mutating func leaveBrought(_ brought: [MessageID], of device: UInt32) {
        for id in brought {
            guard let slot = listedMessage(id, of: device) else { continue }
            let entry = messages.pointer(slot)
            if entry.pointee.flags.contains(.cold), !entry.pointee.flags.contains(.inFlight) { leaveToStore(slot) }
        }
    }

    /// Semantics, "Overflow": refuse, or end the oldest that are neither sent nor leased.
    private mutating func makeQueueRoom(_ command: PublishCommand, _ slot: UInt32, hash: UInt64, brought: [MessageID]) {
        let device = devices.pointer(slot)
        let settings = apps[Int(device.pointee.appIndex)]
        let size = MessageRow.byteCount(command)
        var excess = Excess(
            count: Int(device.pointee.messageCount + device.pointee.vendorCount) + 1 - settings.queuedMessageLimit,
            bytes: Int(device.pointee.messageBytes + device.pointee.vendorBytes) + size - settings.queuedByteLimit)
        if excess.isAny, hash != 0 { excess.take(away: collapsible(slot, hash: hash)) }
        guard excess.isAny else {
            accept(command, slot, hash: hash, dropping: [])
            return
        }
        guard settings.overflowPolicy == .dropOldest else {
            refuse(command, .queueFull)
            return
        }
        if device.pointee.coldMessageCount > 0 || device.pointee.coldVendorCount > 0 {
            devices.pointer(slot).pointee.flags.insert(.busy)
            dropColdOldest(Overflow(KeptPublish(command), hash: hash, excess: excess), slot, table: .message, from: 0)
            return
        }
        var dropping: [UInt32] = []
        for first in [device.pointee.firstMessage, device.pointee.firstVendor] {
            var oldest = first
            while excess.isAny, oldest != .max {
                let entry = messages.pointer(oldest)
                if mayDrop(oldest), hash == 0 || entry.pointee.collapseHash != hash {
                    dropping.append(oldest)
                    excess.take(away: Excess(count: 1, bytes: Int(entry.pointee.facts.byteCount)))
                }
                oldest = entry.pointee.next
            }
        }
        guard !excess.isAny else {
            refuse(command, .queueFull)
            return
        }
        accept(command, slot, hash: hash, dropping: dropping)
    }

    func mayDrop(_ slot: UInt32) -> Bool {
        let entry = messages.pointer(slot)
        if entry.pointee.flags.contains(.inFlight), !isPlanted(.overflowDropsInFlight) { return false }
        guard entry.pointee.job != .max else { return true }
        return jobs.pointer(entry.pointee.job).pointee.row.state != .leased
            && jobs.pointer(entry.pointee.job).pointee.place != .leasing
    }

    /// Goes through the rows on disk and in memory, oldest first, page by page, until there is room or no row is left.
    private mutating func dropColdOldest(
        _ overflow: Overflow, _ slot: UInt32, table: StoreKey.Table, from item: UInt64
    ) {
        scan(slot, table: table, from: item, rowLimit: 256, byteLimit: 1 << 20) { shard, rows, isComplete, ok in
            for row in rows where ok && overflow.excess.isAny {
                let known = shard.listedMessage(table: table, item: row.facts.item, of: slot)
                let message = known ?? shard.adoptMessage(row, device: slot)
                let entry = shard.messages.pointer(message)
                guard shard.mayDrop(message), overflow.hash == 0 || entry.pointee.collapseHash != overflow.hash else {
                    if known == nil { shard.leaveToStore(message) }
                    continue
                }
                if known == nil { overflow.brought.append(row.facts.message) }
                if table == .vendorMessage {
                    overflow.candidates.append(entry.pointee.facts)
                    continue
                }
                overflow.dropping.append(row.facts.message)
                overflow.excess.take(away: Excess(count: 1, bytes: Int(entry.pointee.facts.byteCount)))
            }
            if ok, overflow.excess.isAny, !isComplete, let last = rows.last {
                shard.dropColdOldest(overflow, slot, table: table, from: last.facts.item &+ 1)
                return
            }
            if ok, overflow.excess.isAny, table == .message {
                shard.dropColdOldest(overflow, slot, table: .vendorMessage, from: 0)
                return
            }
            // The vendor table is not in order of acceptance: its oldest are known when all are.
            overflow.candidates.sort { $0.acceptedAt < $1.acceptedAt }
            for facts in overflow.candidates where overflow.excess.isAny {
                overflow.dropping.append(facts.message)
                overflow.excess.take(away: Excess(count: 1, bytes: Int(facts.byteCount)))
            }
            shard.devices.pointer(slot).pointee.flags.remove(.busy)
            // Some may have ended, or been sent, while the next page was read.
            var dropping: [UInt32] = []
            for id in overflow.dropping {
                if let message = shard.listedMessage(id, of: slot), shard.mayDrop(message) { dropping.append(message) }
            }
            let command = overflow.kept.command
            if !ok {
                shard.refuse(command, .storeFailed)
            } else if overflow.excess.isAny {
                shard.refuse(command, .queueFull)
            } else {
                shard.accept(command, slot, hash: overflow.hash, dropping: dropping)
            }
            shard.leaveBrought(overflow.brought, of: slot)
            shard.drainWaiting(slot)
        }
    }

    /// What collapse would free.
    private func collapsible(_ slot: UInt32, hash: UInt64) -> Excess {
        var sum = Excess(count: 0, bytes: 0)
        for first in [devices.pointer(slot).pointee.firstMessage, devices.pointer(slot).pointee.firstVendor] {
            var next = first
            while next != .max {
                let entry = messages.pointer(next)
                if entry.pointee.collapseHash == hash, !entry.pointee.flags.contains(.inFlight) {
                    sum.count += 1
                    sum.bytes += Int(entry.pointee.facts.byteCount)
                }
                next = entry.pointee.next
            }
        }
        return sum
    }

    // MARK: Acceptance

    /// Which rows a message gets, and what follows from its device's state now.
    private struct Plan {
        var table = StoreKey.Table.message
        var expiresAt: GatewayTime = 0
        /// The live attempt's deadline for an armed job; 0: none.
        var fallbackAt: GatewayTime = 0
        var isLive = false
        var isArmed = false
        var fallback = PublishOutcome.Fallback.none
        var reason = PublishOutcome.FallbackReason.applies
        /// It ends as it is accepted.
        var endsAs: FinalState?
        var endReason = ""
    }

    /// Semantics, "Strategies" and "TTL".
    ///
    /// `nil`: a parameter error, for want of a token. Mutating though it changes nothing: the compiler hands a borrowed
    /// shard on as a copy of all its fields.
    private mutating func plan(_ command: PublishCommand, _ device: UnsafeMutablePointer<Device>) -> Plan? {
        let isReachable = device.pointee.isReachable
        let deadline = liveDeadline(device)
        var plan = Plan()
        plan.expiresAt = now &+ max(0, command.timeToLive)
        let hasToken = command.vendor.map { device.pointee.flags.contains(.token($0.tokenKind)) } ?? false
        switch command.strategy {
        case .vendorOnly, .vendorElseLive:
            plan.table = .vendorMessage
            plan.isArmed = true
            if command.timeToLive <= 0 { plan.expiresAt = now + limits.noStorageLeasable }
            guard command.vendor != nil, hasToken else {
                guard command.isBulk else { return nil }
                plan.isArmed = false
                plan.endsAs = .failed
                plan.endReason = "noToken"
                plan.reason = command.vendor == nil ? .noContent : .noToken
                return plan
            }
            plan.fallback = .due
        case .liveElseVendor, .liveOnly:
            plan.isLive = isReachable
            plan.reason =
                command.strategy == .liveOnly && !isPlanted(.liveOnlyReachesVendor)
                ? .strategy
                : command.timeToLive == 0
                    ? .timeToLive : command.vendor == nil ? .noContent : hasToken ? .applies : .noToken
            plan.isArmed = plan.reason == .applies
            if command.timeToLive > 0 {
                if isReachable, plan.isArmed {
                    plan.fallbackAt = max(now, min(now + deadline, plan.expiresAt - 1_000))
                } else if isReachable {
                    plan.fallbackAt = now + deadline
                }
            } else if isReachable {
                plan.fallbackAt = now + deadline
                plan.expiresAt = plan.fallbackAt + (plan.isArmed ? limits.noStorageLeasable : 0)
            } else if plan.isArmed {
                plan.table = .vendorMessage
                plan.expiresAt = now + limits.noStorageLeasable
            } else {
                plan.endsAs = .expired
            }
            plan.fallback = !plan.isArmed ? .none : isReachable ? .armed : .due
        }
        if plan.fallback != .none, device.pointee.flags.contains(.pushModeOff) {
            (plan.fallback, plan.reason) = (.none, .pushModeOff)
        }
        return plan
    }

    private mutating func accept(_ command: PublishCommand, _ slot: UInt32, hash: UInt64, dropping: [UInt32]) {
        // It may have been stopped while room was made.
        guard !command.task.hasLedger || stoppedTasks[command.task] == nil else {
            refuse(command, .stopped)
            return
        }
        let device = devices.pointer(slot)
        guard let plan = plan(command, device) else {
            refuse(command, .noToken, reason: command.vendor == nil ? .noContent : .noToken)
            return
        }
        if hash != 0, plan.endsAs == nil { endCollapsed(slot, hash: hash) }
        openBatch(slot)
        if plan.endsAs == nil {
            for message in dropping where messages.isOccupied(message) {
                let entry = messages.pointer(message)
                end(entry.pointee.facts, .overflowed, message: message, job: entry.pointee.job)
            }
            if hash != 0 { collapse(slot, hash: hash) }
        }
        let id = MessageID(bucket: command.bucket, acceptedAt: now, digest: command.messageDigest)
        var facts = MessageFacts(
            message: id, task: command.task, app: command.app, cid: command.cid, strategy: command.strategy, flags: [],
            table: plan.table, item: id.low, acceptedAt: now, expiresAt: plan.expiresAt, fallbackAt: plan.fallbackAt,
            wakeAt: plan.isArmed && plan.fallbackAt > 0 ? plan.fallbackAt : plan.expiresAt,
            timeToLive: command.timeToLive, byteCount: UInt32(truncatingIfNeeded: MessageRow.byteCount(command)))
        if !plan.isLive { facts.flags.insert(.offline) }
        if command.isBulk { facts.flags.insert(.bulk) }
        if command.vendor != nil { facts.flags.insert(.hasVendorContent) }
        if hash != 0 { facts.flags.insert(.hasCollapseKey) }
        if plan.isArmed { facts.flags.insert(.isArmed) }
        if !command.revokes.isNone { facts.flags.insert(.revoke) }
        if command.firstAckWins { facts.flags.insert(.firstAckWins) }
        // It gets no place in the stream.
        if plan.endsAs != nil, facts.table == .message { facts.item = 0 }
        countAccepted()
        noteUse(of: Int(device.pointee.appIndex), byteCount: Int(facts.byteCount))
        if plan.isLive {
            facts.flags.insert(.sendCounted)
            countReached([.sent, .reached], of: facts)
        }
        var listed: UInt32?
        if let state = plan.endsAs {
            end(facts, state, reason: plan.endReason, message: .max, job: .max, isStored: false)
        } else {
            listed = store(command, facts, plan, slot, hash: hash)
        }
        let outcome = PublishOutcome(
            code: .accepted, cid: command.cid, message: id, task: command.task, isLive: plan.isLive,
            fallback: plan.fallback, fallbackReason: plan.reason, timeToLive: command.timeToLive,
            endedAs: plan.endsAs)
        if let listed {
            noteAccepted(messages.pointer(listed).pointee.facts, outcome, isTracked: command.isTracked)
        } else if command.isTracked, !command.task.hasLedger {
            // Of a task's message that ended at once, the end has written the ledger.
            noteAccepted(facts, outcome, isTracked: true)
        }
        if command.requestKey != (0, 0), !isPlanted(.requestForgotten) {
            store.put(requestKey(command), wakeAt: 0, prior: .none, byteCount: RequestRow.byteCount) {
                RequestRow.write(outcome, digest: command.requestDigest, into: $0)
            }
        }
        let ticket = closeBatch()
        // Known only now: the gateway's own rows go through the same store and take tickets, too.
        if let listed { messages.pointer(listed).pointee.ticket = ticket }
        answer(command, outcome, slot: slot)
    }

    /// Writes the message's rows in the open batch and brings it into memory.
    private mutating func store(
        _ command: PublishCommand, _ given: MessageFacts, _ plan: Plan, _ slot: UInt32, hash: UInt64
    ) -> UInt32 {
        let device = devices.pointer(slot)
        var facts = given
        if facts.table == .message {
            facts.item = giveSequence(slot)
            device.pointee.messageCount += 1
            device.pointee.messageBytes += Int64(facts.byteCount)
        } else {
            device.pointee.vendorCount += 1
            device.pointee.vendorBytes += Int64(facts.byteCount)
        }
        let written = facts
        var message = Message(facts: facts, device: slot)
        message.location = store.put(
            facts.key, wakeAt: facts.wakeAt, prior: .none, byteCount: Int(facts.byteCount)
        ) { MessageRow.write(command, facts: written, into: $0) }
        message.ticket = .max  // until the batch is closed
        message.fallbackAt = plan.isArmed ? plan.fallbackAt : 0
        message.collapseHash = hash
        let listed = list(message)
        armTimer(listed)
        if !plan.isLive { createJob(listed, dueAt: now) }
        return listed
    }

    /// The next sequence of a device's live stream; a new block of them is reserved in the open batch.
    mutating func giveSequence(_ slot: UInt32) -> UInt64 {
        let device = devices.pointer(slot)
        if device.pointee.nextSequence > device.pointee.reservedSequence {
            device.pointee.reservedSequence = device.pointee.nextSequence + limits.sequenceBlock - 1
            device.pointee.flags.insert(.dirty)
        }
        return device.pointee.takeSequence()
    }

    /// Ends those under a key that an earlier message has collapsed durably and that have come free, as many as there are:
    /// their ends need not be in the batch of the newer one.
    private mutating func endCollapsed(_ slot: UInt32, hash: UInt64) {
        for first in [devices.pointer(slot).pointee.firstMessage, devices.pointer(slot).pointee.firstVendor] {
            var next = first
            while next != .max {
                let message = next
                let entry = messages.pointer(message)
                next = entry.pointee.next
                guard entry.pointee.collapseHash == hash, entry.pointee.flags.contains(.collapsed),
                    !entry.pointee.flags.contains(.inFlight), !isPlanted(.collapseKeepsOlder)
                else { continue }
                openOrBreakBatch(slot)
                end(entry.pointee.facts, .collapsed, message: message, job: entry.pointee.job)
            }
        }
        if batch.isOpen { closeBatch() }
    }

    /// Ends older messages under a key; one in flight is only marked, durably, and ends when it comes free un-acked.
    ///
    /// One that is marked already stays as it is, so that few are written, whatever the window.
    private mutating func collapse(_ slot: UInt32, hash: UInt64) {
        for first in [devices.pointer(slot).pointee.firstMessage, devices.pointer(slot).pointee.firstVendor] {
            var next = first
            while next != .max {
                let message = next
                let entry = messages.pointer(message)
                next = entry.pointee.next
                guard entry.pointee.collapseHash == hash, !isPlanted(.collapseKeepsOlder) else { continue }
                guard entry.pointee.flags.contains(.inFlight) else {
                    end(entry.pointee.facts, .collapsed, message: message, job: entry.pointee.job)
                    continue
                }
                guard !entry.pointee.flags.contains(.collapsed) else { continue }
                entry.pointee.flags.insert(.collapsed)
                if entry.pointee.job == .max {
                    let row = JobRow(facts: entry.pointee.facts, state: .cancelled, dueAt: now)
                    _ = adopt(row, storedWakeAt: 0, isStored: false)
                }
                let job = jobs.pointer(entry.pointee.job)
                job.pointee.row.isCollapsed = true
                if job.pointee.row.state == .due { job.pointee.row.state = .cancelled }
                writeJob(entry.pointee.job)
                placeJob(entry.pointee.job)
            }
        }
    }
}

/// How far a queue is, or would be, over its bounds.
struct Excess {
    var count: Int
    var bytes: Int
    var isAny: Bool { count > 0 || bytes > 0 }
    mutating func take(away other: Excess) {
        count -= other.count
        bytes -= other.bytes
    }
}

/// A publish that looks for room among rows on disk.
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

/// A publish that waits: its bytes in one allocation of our own.
final class KeptPublish {
    let command: PublishCommand
    private let bytes: UnsafeMutableRawBufferPointer

    init(_ original: PublishCommand) {
        var kept = original
        let size =
            original.payload.count + original.collapseKey.count + original.alertTitle.count + original.alertBody.count
            + (original.vendor.map { $0.body.count + $0.collapseID.count } ?? 0)
        let room = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, size), alignment: 1)
        bytes = room
        var offset = 0
        func keep(_ part: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
            let place = UnsafeMutableRawBufferPointer(rebasing: room[offset..<offset + part.count])
            place.copyMemory(from: part)
            offset += part.count
            return UnsafeRawBufferPointer(place)
        }
        kept.payload = keep(original.payload)
        kept.collapseKey = keep(original.collapseKey)
        kept.alertTitle = keep(original.alertTitle)
        kept.alertBody = keep(original.alertBody)
        if let vendor = original.vendor {
            kept.vendor?.body = keep(vendor.body)
            kept.vendor?.collapseID = keep(vendor.collapseID)
        }
        command = kept
    }

    deinit { bytes.deallocate() }
}
