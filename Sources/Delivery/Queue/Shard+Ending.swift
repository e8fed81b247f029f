// The end of a message: its final state, its trace, its counters. A message ends in one place and in one batch, whatever the
// cause is (an ack, a result, its TTL, a revoke, a newer one under its key, a full queue), so that it ends once.

internal import Structures
internal import Wire

extension Shard {
    /// Gives a message its final state, in the open batch: its rows go, the trace and the count come.
    ///
    /// `message` and `job` are their slots in memory, or `.none`. The caller has brought an existing job row into
    /// memory. `isStored` is false for a message that ends in the batch that accepts it and has no row.
    mutating func end(
        _ facts: MessageFacts, _ state: FinalState, reason: String = "", message: MessageSlot, job: JobSlot,
        isStored: Bool = true
    ) {
        let device = devices.pointer(batch.device)
        var sentAt: GatewayTime = 0
        var isOffline = facts.flags.contains(.offline)
        var isRemembered = false
        if message != .none {
            let pointer = messages.pointer(message)
            isRemembered = !pointer.pointee.flags.contains(.cold)
            sentAt = pointer.pointee.sentAt
            isOffline = pointer.pointee.isOffline
        } else if isStored, facts.table != .broadcast, facts.fallbackAt > 0, facts.fallbackAt <= now,
            facts.fallbackAt < facts.expiresAt
        {
            // It missed its live deadline while only its row was there.
            isOffline = true
        }
        var row: JobRow?
        let keepsJob = isPlanted(.ackKeepsJob) && (state == .delivered || state == .deliveredOffline)
        if job != .none, !keepsJob {
            let entry = jobs.pointer(job)
            if message == .none { isOffline = true }
            if entry.pointee.row.state == .leased || entry.pointee.row.state == .due {
                entry.pointee.row.note(.cancelled, now)
            }
            if entry.pointee.isStored {
                store.delete(facts.jobKey, prior: .maybe(wakeAt: entry.pointee.storedWakeAt))
            }
            row = entry.pointee.row
        }
        device.pointee.endings &+= 1
        let isOfClient = state == .delivered || state == .deliveredOffline || state == .opened
        if isStored, !isOfClient, facts.table != .vendorMessage, device.pointee.isConnected { batch.endsUnseen = true }
        if isStored, facts.table != .broadcast {
            store.delete(facts.key, prior: .maybe(wakeAt: facts.wakeAt))
            if facts.table == .message {
                device.pointee.messageCount -= 1
                device.pointee.messageBytes -= Int64(facts.byteCount)
            } else {
                device.pointee.vendorCount -= 1
                device.pointee.vendorBytes -= Int64(facts.byteCount)
            }
            if device.pointee.messageCount + device.pointee.vendorCount == 0 { device.pointee.mayHaveJobRows = false }
        }
        let (ended, time, key) = (state, now, StoreKey(facts.bucket, .trace, facts.message))
        if let finalRow = row {
            let byteCount = TraceRow.byteCount(facts, sentAt: sentAt, endedAt: time, job: finalRow, reason: reason)
            store.put(key, wakeAt: 0, prior: .none, byteCount: byteCount) {
                TraceRow.write(
                    facts, finalState: ended, isOffline: isOffline, sentAt: sentAt, endedAt: time, job: finalRow,
                    reason: reason, into: $0)
            }
        } else {
            // Apart, since a job's row is large and most messages have none.
            let byteCount = TraceRow.byteCount(facts, sentAt: sentAt, endedAt: time, job: nil, reason: reason)
            store.put(key, wakeAt: 0, prior: .none, byteCount: byteCount) {
                TraceRow.write(
                    facts, finalState: ended, isOffline: isOffline, sentAt: sentAt, endedAt: time, job: nil,
                    reason: reason, into: $0)
            }
        }
        batch.rowCount += 3
        let isAcked = state == .delivered || state == .deliveredOffline
        // Of a message from before the restart the row says only whether the device was reachable at acceptance.
        let wasSent =
            sentAt > 0 || isAcked || isStored && !isRemembered && !facts.flags.contains(.offline)
            || facts.flags.contains(.sendCounted) || row?.steps.contains { $0.event == .sent } ?? false
        let wasAlerted = state == .handedOff || state == .opened || row.map { $0.alertedAt > 0 } ?? false
        let isAlertCounted = row?.isAlertCounted ?? false
        noteEnded(
            facts, state, reason: reason, wasSent: wasSent, wasAlerted: wasAlerted, isNew: !isStored,
            alarm: ledgerAlarm(facts, isAlertCounted: isAlertCounted))
        // The shard counted a send or an alert when it happened, and does not count it again.
        let isSendCounted = facts.flags.contains(.sendCounted)
        var reach: CountersRow.Reach = []
        if wasSent, !isSendCounted { reach.insert(.sent) }
        if wasAlerted, !isAlertCounted { reach.insert(.alerted) }
        if wasSent || wasAlerted, !isSendCounted, !isAlertCounted { reach.insert(.reached) }
        countEnded(state, reach, facts)
        if device.pointee.dropped.count(state) { device.pointee.flags.insert(.dirty) }
        if job != .none, !keepsJob { forgetJob(job) }
        if message != .none { forgetMessage(message) }
    }

    /// Notes, in the open batch, an event of a message apart from its job and its end; `known` is already in the row.
    mutating func noteLate(
        _ event: TraceEvent, of message: MessageID, detail: String, beside known: [MessageTrace.Step] = []
    ) {
        guard let key = Self.lateKey(event, message) else { return }
        let steps = known + [MessageTrace.Step(event: event, time: now, detail: detail)]
        store.put(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: LateEventRow.byteCount(steps)) {
            LateEventRow.write(steps, into: $0)
        }
    }

    /// Buckets leave the id's top four bits free: the late event's number is there.
    static func lateKey(_ event: TraceEvent, _ message: MessageID) -> StoreKey? {
        guard let bucket = message.bucket, let index = LateEventRow.events.firstIndex(of: event) else { return nil }
        return StoreKey(
            bucket, .trace, ownerHigh: message.high | UInt64(index + 1) << 60, ownerLow: message.low)
    }

    private mutating func countEnded(_ state: FinalState, _ reach: CountersRow.Reach, _ facts: MessageFacts) {
        if isPlanted(.expiryUncounted), state == .expired { return }
        counters.count(state, counterScope)
        counters.count(reach, of: facts, now: now)
        numbers.finals[Int(state.rawValue) - 1] &+= 1
        numbers.pending -= 1
        appNumbers[Int(devices.pointer(batch.device).pointee.appIndex)].count(state)
    }
}
