// The end of a message: final state, trace and counters. Every end, whatever its cause, is one call of `end` in one batch, so a
// message ends exactly once.

internal import Structures
internal import Wire

extension Shard {
    /// Ends a message in the open batch: deletes its rows, and writes the trace and the counters.
    ///
    /// `message` and `job` are the slots of the message and its job in memory, or `.none`. The caller must have loaded an
    /// existing job row. `isStored` is false for a message that ends in the batch that accepts it and has no row.
    mutating func end(
        _ facts: MessageFacts, _ state: FinalState, reason: String = "", message: MessageSlot, job: JobSlot,
        isStored: Bool = true
    ) {
        let device = devices.at(batch.device)
        var sentAt: GatewayTime = 0
        var isOffline = facts.flags.contains(.offline)
        var isRemembered = false
        if message != .none {
            let pointer = messages.at(message)
            isRemembered = !pointer.value.flags.contains(.cold)
            sentAt = pointer.value.sentAt
            isOffline = pointer.value.isOffline
        } else if isStored, facts.table != .broadcast, facts.fallbackAt > 0, facts.fallbackAt <= now,
            facts.fallbackAt < facts.expiresAt
        {
            // The message missed its live deadline while it was only on disk.
            isOffline = true
        }
        var row: JobRow?
        let keepsJob = isPlanted(.ackKeepsJob) && (state == .delivered || state == .deliveredOffline)
        if job != .none, !keepsJob {
            let entry = jobs.at(job)
            if message == .none { isOffline = true }
            if entry.value.row.state == .leased || entry.value.row.state == .due {
                entry.value.row.note(.cancelled, now)
            }
            if entry.value.isStored {
                store.delete(facts.jobKey, prior: .maybe(wakeAt: entry.value.storedWakeAt))
            }
            row = entry.value.row
        }
        device.value.endings &+= 1
        let isOfClient = state == .delivered || state == .deliveredOffline || state == .opened
        if isStored, !isOfClient, facts.table != .vendorMessage, device.value.isConnected { batch.endsUnseen = true }
        if isStored, facts.table != .broadcast {
            store.delete(facts.key, prior: .maybe(wakeAt: facts.wakeAt))
            device.value.remove(facts)
        }
        let (ended, time, key) = (state, now, StoreKey(facts.bucket, .trace, facts.message))
        if let finalRow = row {
            // The steps of a job that was created after the first send contain that send.
            let ownSentAt = finalRow.hasSent ? 0 : sentAt
            let byteCount = TraceRow.byteCount(facts, sentAt: ownSentAt, endedAt: time, job: finalRow, reason: reason)
            store.putTrace(
                key, byteCount, facts, finalState: ended, isOffline: isOffline, sentAt: ownSentAt, endedAt: time,
                job: finalRow, reason: reason)
        } else {
            // A separate call, because a job's row is large and most messages have no job.
            let byteCount = TraceRow.byteCount(facts, sentAt: sentAt, endedAt: time, job: nil, reason: reason)
            store.putTrace(
                key, byteCount, facts, finalState: ended, isOffline: isOffline, sentAt: sentAt, endedAt: time,
                job: nil, reason: reason)
        }
        batch.rowCount += 3
        noteEvent(
            FeedItem.Kind(rawValue: state.rawValue) ?? .failed, message: facts.message, task: facts.task,
            reason: reason, hasCallback: facts.hasCallback)
        let isAcked = state == .delivered || state == .deliveredOffline
        // The row of a message from before a restart shows only whether the device was reachable at acceptance.
        let wasSent =
            sentAt > 0 || isAcked || isStored && !isRemembered && !facts.flags.contains(.offline)
            || facts.flags.contains(.sendCounted) || row?.hasSent ?? false
        let wasAlerted = state == .handedOff || state == .opened || row.map { $0.alertedAt > 0 } ?? false
        let isAlertCounted = row?.isAlertCounted ?? false
        let vendor = row?.channel ?? facts.channels.first
        noteEnded(
            facts, state, reason: reason, vendor: vendor, wasSent: wasSent,
            wasAlerted: wasAlerted, isNew: !isStored,
            alarm: ledgerAlarm(facts, isAlertCounted: isAlertCounted))
        // A send or an alert that was counted when it happened is not counted again.
        let isSendCounted = facts.flags.contains(.sendCounted)
        var reach: CountersRow.Reach = []
        if wasSent, !isSendCounted { reach.insert(.sent) }
        if wasAlerted, !isAlertCounted { reach.insert(.alerted) }
        if wasSent || wasAlerted, !isSendCounted, !isAlertCounted { reach.insert(.reached) }
        countEnded(state, reach, facts, vendor, isCold: isStored && !isRemembered)
        device.value.countDropped(state)
        if job != .none, !keepsJob { forgetJob(job) }
        if message != .none { forgetMessage(message) }
    }

    /// Writes, in the open batch, an event of a message into a row beside its trace; `known` are the events already in that row.
    mutating func noteLate(
        _ event: TraceEvent, at time: GatewayTime? = nil, of message: MessageID, detail: String,
        beside known: [MessageTrace.Step] = []
    ) {
        guard let key = Self.lateKey(event, message) else { return }
        let steps = known + [MessageTrace.Step(event: event, time: time ?? now, detail: detail)]
        store.putRow(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: LateEventRow.byteCount(steps)) {
            LateEventRow.write(steps, into: $0)
        }
    }

    /// Returns the key of a late event's row: the event's number is in the top four bits of the msgId, which buckets do not use.
    static func lateKey(_ event: TraceEvent, _ message: MessageID) -> StoreKey? {
        guard let bucket = message.bucket, let index = LateEventRow.events.firstIndex(of: event) else { return nil }
        return StoreKey(
            bucket, .trace, ownerHigh: message.high | UInt64(index + 1) << 60, ownerLow: message.low)
    }

    private mutating func countEnded(
        _ state: FinalState, _ reach: CountersRow.Reach, _ facts: MessageFacts, _ vendor: VendorChannel?, isCold: Bool
    ) {
        if isPlanted(.expiryUncounted), state == .expired { return }
        let blocks = isCold && isPlanted(.coldBytesStay) ? 0 : facts.queuedBlocks
        counters.count(state, counterScope, blocks: blocks)
        counters.count(reach, of: facts, vendor: vendor, now: now)
        numbers.finals[Int(state.rawValue) - 1] &+= 1
        numbers.pending -= 1
        let app = Int(devices.at(batch.device).value.appIndex)
        apps.countEnded(app, state, blocks: Int64(blocks))
    }
}
