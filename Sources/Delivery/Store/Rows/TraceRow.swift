internal import Wire

/// How a message ended, and its steps in order.
///
/// Written once, with the final state.
package struct TraceRow {
    static let version: UInt8 = 1

    var facts: MessageFacts
    var finalState: FinalState
    var isOffline: Bool
    /// The device was reachable at acceptance, and that batch counted the send.
    var wasSentLive: Bool
    /// The shard took back what its alert did to the badge.
    var isBadgeTakenBack: Bool
    /// The lease whose result was taken last, so that a repetition is recognised after the end, too.
    var settledLease: (UInt64, UInt64)
    var settledOutcome: UInt8
    var attempts: UInt16
    /// The leases that senders got for its job.
    var leases: [GivenLease]
    /// What the answer to its publish said of its fallback; `nil` in a row from before it was kept.
    var fallback: (state: PublishOutcome.Fallback, reason: PublishOutcome.FallbackReason)?
    package var reason: String
    package var steps: [MessageTrace.Step]

    static let fixedByteCount = 4 + 2 + 1 + 1 + 8 * 11 + 16

    /// The row of a message that was only on the live channel, written without building its steps first.
    static func byteCount(job: JobRow?, reason: String, sent: Bool) -> Int {
        let own = (sent ? 3 : 2) * 10
        return fixedByteCount + RowWriter.byteCount(text: reason) + 2 + own
            + (job.map { StepBytes.byteCount($0.steps) - 2 } ?? 0) + 2 + LeaseBytes.byteCount(job?.leases ?? [])
    }

    static func write(
        _ facts: MessageFacts, finalState: FinalState, isOffline: Bool, sentAt: GatewayTime, endedAt: GatewayTime,
        job: JobRow?, reason: String, into bytes: UnsafeMutableRawBufferPointer
    ) {
        var writer = RowWriter(bytes)
        writer.put(version)
        writer.put(finalState.rawValue)
        let isBadgeTakenBack = job?.isBadgeTakenBack ?? false
        writer.put(
            (isOffline ? 1 : 0) | (facts.flags.contains(.sendCounted) ? 2 : 0) | (isBadgeTakenBack ? 4 : 0) as UInt8)
        writer.put(facts.strategy.rawValue)
        writer.put(job?.attempts ?? 0)
        writer.put(job?.settledOutcome ?? 0)
        writer.put(facts.table.rawValue)
        writer.put(facts.message.high)
        writer.put(facts.message.low)
        writer.put(facts.task.high)
        writer.put(facts.task.low)
        writer.put(facts.cid.high)
        writer.put(facts.cid.low)
        writer.put(facts.app.word)
        writer.put(facts.item)
        writer.put(facts.acceptedAt)
        writer.put(facts.expiresAt)
        writer.put(facts.timeToLive)
        writer.put(job?.settledLease.0 ?? 0)
        writer.put(job?.settledLease.1 ?? 0)
        writer.put(text: reason)
        writer.put(UInt16(truncatingIfNeeded: (sentAt > 0 ? 3 : 2) + (job?.steps.count ?? 0)))
        writer.putStep(.accepted, facts.acceptedAt)
        if sentAt > 0 { writer.putStep(.sent, sentAt) }
        if let job {
            for step in job.steps {
                writer.put(step.event.rawValue)
                writer.put(step.time)
                writer.put(text: step.detail)
            }
        }
        let isAcked = finalState == .delivered || finalState == .deliveredOffline
        writer.putStep(isAcked ? .acked : finalState == .opened ? .opened : .ended, endedAt)
        let fallback = facts.fallback
        writer.put(fallback.state.rawValue)
        writer.put(fallback.reason.rawValue)
        LeaseBytes.write(job?.leases ?? [], &writer)
    }

    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let finalState = FinalState(rawValue: reader.next() ?? 0),
            let offline = reader.next(UInt8.self), let strategy = Strategy(rawValue: reader.next() ?? 0),
            let attempts = reader.next(UInt16.self), let outcome = reader.next(UInt8.self),
            let table = StoreKey.Table(rawValue: reader.next() ?? 0),
            let message = reader.nextIdentifier(MessageID.self), let task = reader.nextIdentifier(TaskID.self),
            let cid = reader.nextIdentifier(DeviceID.self), let app = reader.next(UInt64.self),
            let item = reader.next(UInt64.self), let acceptedAt = reader.next(Int64.self),
            let expiresAt = reader.next(Int64.self), let timeToLive = reader.next(Int64.self),
            let leaseHigh = reader.next(UInt64.self), let leaseLow = reader.next(UInt64.self),
            let reason = reader.nextText(), let steps = StepBytes.read(&reader)
        else { return nil }
        facts = MessageFacts(
            message: message, task: task, app: AppKey(app), cid: cid, strategy: strategy, flags: [], table: table,
            item: item, acceptedAt: acceptedAt, expiresAt: expiresAt, fallbackAt: 0, wakeAt: 0, timeToLive: timeToLive,
            byteCount: 0)
        self.finalState = finalState
        (isOffline, wasSentLive, isBadgeTakenBack) = (offline & 1 != 0, offline & 2 != 0, offline & 4 != 0)
        (settledLease, settledOutcome, self.attempts) = ((leaseHigh, leaseLow), outcome, attempts)
        (self.reason, self.steps) = (reason, steps)
        if reader.isAtEnd {
            leases = LeaseBytes.known((0, 0), settled: settledLease, outcome: settledOutcome)
        } else {
            guard let state = PublishOutcome.Fallback(rawValue: reader.next() ?? .max),
                let why = PublishOutcome.FallbackReason(rawValue: reader.next() ?? .max),
                let given = LeaseBytes.read(&reader)
            else { return nil }
            fallback = (state, why)
            leases = given
        }
    }
}

extension RowWriter {
    fileprivate mutating func putStep(_ event: TraceEvent, _ time: GatewayTime) {
        put(event.rawValue)
        put(time)
        put(UInt8(0))
    }
}

/// An event of a message apart from its way to its end: a trace row of its own, under the event's number.
package enum LateEventRow {
    static let version: UInt8 = 1

    /// The events that have such a row; `trace(of:)` looks for each.
    static let events: [TraceEvent] = [.opened, .shown, .vendorAccepted, .alertedTwice, .action]

    package static func byteCount(_ steps: [MessageTrace.Step]) -> Int { 1 + StepBytes.byteCount(steps) }

    package static func write(_ steps: [MessageTrace.Step], into bytes: UnsafeMutableRawBufferPointer) {
        var writer = RowWriter(bytes)
        writer.put(version)
        StepBytes.write(steps, &writer)
    }

    /// One step, or one for each action; none for bytes that are no such row.
    package static func read(_ bytes: UnsafeRawBufferPointer) -> [MessageTrace.Step] {
        var reader = RowReader(bytes)
        guard reader.next(UInt8.self) == version else { return [] }
        return StepBytes.read(&reader) ?? []
    }
}
