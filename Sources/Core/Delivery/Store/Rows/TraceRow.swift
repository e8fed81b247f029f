package import Wire

/// The final state and the steps of a message.
///
/// The row is written once, at the message's end. Its key is the msgId, which the row does not repeat. Most messages are
/// delivered within milliseconds, so absent fields take no bytes, and times are stored as differences.
package struct TraceRow {
    static let version: UInt8 = 1

    var facts: MessageFacts
    var finalState: FinalState
    var isOffline: Bool
    /// Whether the device was reachable at acceptance and the accepting batch counted the send.
    var wasSentLive: Bool
    var isBadgeTakenBack: Bool
    /// The last settled lease and its outcome, to detect repeated results after the end.
    var settledLease: (UInt64, UInt64) = (0, 0)
    var settledOutcome: UInt8 = 0
    var attempts: UInt16 = 0
    var leases: [GivenLease] = []
    /// The job's channel; `nil` without a job, or if only a later version knows the channel.
    var channel: VendorChannel?
    var fallback: (state: PublishOutcome.Fallback, reason: PublishOutcome.FallbackReason)
    package var reason = ""
    package var steps: [MessageTrace.Step]

    /// See `JobRow.wasLeased`.
    var wasLeased: Bool { attempts > 0 && channel?.isFollowUp != true || leases.containsOneOfVendor }

    /// The flags for optional fields and compact forms.
    private struct Parts: OptionSet {
        let rawValue: UInt16
        static let offline = Parts(rawValue: 1)
        static let sentLive = Parts(rawValue: 2)
        static let badgeTakenBack = Parts(rawValue: 4)
        /// The row has a step `sent`, before the job's steps.
        static let sent = Parts(rawValue: 8)
        static let jobSteps = Parts(rawValue: 16)
        static let leases = Parts(rawValue: 32)
        static let reason = Parts(rawValue: 64)
        /// The expiry follows from the TTL.
        static let plainExpiry = Parts(rawValue: 128)
        static let plainTask = Parts(rawValue: 256)
        /// The TTL is stored in seconds.
        static let seconds = Parts(rawValue: 512)
        /// The time of acceptance differs from the one in the msgId.
        static let otherTime = Parts(rawValue: 1_024)
        /// Without these two flags the table is `message`.
        static let vendorMessage = Parts(rawValue: 2_048)
        static let broadcast = Parts(rawValue: 4_096)
        /// The item is the low word of the msgId.
        static let itemOfID = Parts(rawValue: 8_192)
        /// The job's channel is not APNs; its byte is the last of the row.
        static let otherChannel = Parts(rawValue: 16_384)
        /// See `MessageFacts.hasCallback`.
        static let callback = Parts(rawValue: 32_768)

        init(rawValue: UInt16) { self.rawValue = rawValue }

        init(_ facts: MessageFacts, isOffline: Bool, sentAt: GatewayTime, job: JobRow?, reason: String) {
            var parts: Parts = isOffline ? .offline : []
            if facts.flags.contains(.sendCounted) { parts.insert(.sentLive) }
            if sentAt > 0 { parts.insert(.sent) }
            if !reason.isEmpty { parts.insert(.reason) }
            if facts.expiresAt == facts.acceptedAt &+ max(0, facts.timeToLive) { parts.insert(.plainExpiry) }
            if RowWriter.isPlain(facts.task) { parts.insert(.plainTask) }
            if facts.timeToLive % 1_000 == 0 { parts.insert(.seconds) }
            if facts.acceptedAt != facts.message.acceptedAtMilliseconds { parts.insert(.otherTime) }
            if facts.table == .vendorMessage { parts.insert(.vendorMessage) }
            if facts.table == .broadcast { parts.insert(.broadcast) }
            if facts.item == facts.message.low { parts.insert(.itemOfID) }
            if facts.hasCallback { parts.insert(.callback) }
            if let job {
                if job.isBadgeTakenBack { parts.insert(.badgeTakenBack) }
                if !job.steps.isEmpty { parts.insert(.jobSteps) }
                if job.channelBits != 0 { parts.insert(.otherChannel) }
                if job.attempts > 0 || !job.leases.isEmpty || job.settledLease != (0, 0) || job.settledOutcome > 0 {
                    parts.insert(.leases)
                }
            }
            self = parts
        }

        var table: StoreKey.Table {
            contains(.broadcast) ? .broadcast : contains(.vendorMessage) ? .vendorMessage : .message
        }
    }

    private static let headByteCount = 1 + 1 + 2 + 1
    /// The maximum size without steps, leases and reason.
    static let fixedByteCount =
        headByteCount + 2 * 16 + 8 + 6 * RowWriter.varintByteCount + 3 + SettledLease.byteCountLimit + 1

    static func byteCount(
        _ facts: MessageFacts, sentAt: GatewayTime, endedAt: GatewayTime, job: JobRow?, reason: String
    ) -> Int {
        let parts = Parts(facts, isOffline: false, sentAt: sentAt, job: job, reason: reason)
        var count = headByteCount + RowWriter.byteCount(facts.task) + 16 + 8
        if !parts.contains(.itemOfID) { count += RowWriter.byteCount(varint: facts.item) }
        count += RowWriter.byteCount(signed: storedTimeToLive(facts, parts))
        if parts.contains(.otherTime) { count += RowWriter.byteCount(signed: timeDifference(facts)) }
        if !parts.contains(.plainExpiry) { count += RowWriter.byteCount(signed: facts.expiresAt &- facts.acceptedAt) }
        if parts.contains(.sent) { count += RowWriter.byteCount(signed: sentAt &- facts.acceptedAt) }
        if let job, parts.contains(.jobSteps) { count += DenseSteps.byteCount(job.steps, since: facts.acceptedAt) }
        count += RowWriter.byteCount(signed: endedAt &- facts.acceptedAt)
        if parts.contains(.reason) { count += RowWriter.byteCount(text: reason) }
        if let job, parts.contains(.leases) {
            count += RowWriter.byteCount(varint: UInt64(job.attempts)) + SettledLease(job).byteCount
            count += LeaseBytes.byteCount(job.leases)
        }
        if parts.contains(.otherChannel) { count += 1 }
        return count
    }

    /// Fills exactly `byteCount` bytes, without an array of all steps.
    static func write(
        _ facts: MessageFacts, finalState: FinalState, isOffline: Bool, sentAt: GatewayTime, endedAt: GatewayTime,
        job: JobRow?, reason: String, into bytes: UnsafeMutableRawBufferPointer
    ) {
        let parts = Parts(facts, isOffline: isOffline, sentAt: sentAt, job: job, reason: reason)
        let fallback = facts.fallback
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(finalState.rawValue | facts.strategy.rawValue << 4)
        writer.put(parts.rawValue)
        writer.put(fallback.state.rawValue | fallback.reason.rawValue << 4)
        writer.put(facts.task, isPlain: parts.contains(.plainTask))
        writer.put(facts.cid.high)
        writer.put(facts.cid.low)
        writer.put(facts.app.word)
        if !parts.contains(.itemOfID) { writer.put(varint: facts.item) }
        writer.put(signed: storedTimeToLive(facts, parts))
        if parts.contains(.otherTime) { writer.put(signed: timeDifference(facts)) }
        if !parts.contains(.plainExpiry) { writer.put(signed: facts.expiresAt &- facts.acceptedAt) }
        if parts.contains(.sent) { writer.put(signed: sentAt &- facts.acceptedAt) }
        if let job, parts.contains(.jobSteps) { DenseSteps.write(job.steps, since: facts.acceptedAt, &writer) }
        writer.put(signed: endedAt &- facts.acceptedAt)
        if parts.contains(.reason) { writer.put(text: reason) }
        if let job, parts.contains(.leases) {
            writer.put(varint: UInt64(job.attempts))
            SettledLease(job).write(&writer)
            LeaseBytes.write(job.leases, &writer)
        }
        if let job, parts.contains(.otherChannel) { writer.put(job.channelBits) }
    }

    private static func storedTimeToLive(_ facts: MessageFacts, _ parts: Parts) -> Int64 {
        parts.contains(.seconds) ? facts.timeToLive / 1_000 : facts.timeToLive
    }

    private static func timeDifference(_ facts: MessageFacts) -> Int64 {
        facts.acceptedAt &- facts.message.acceptedAtMilliseconds
    }

    private static func lastEvent(_ finalState: FinalState) -> TraceEvent {
        switch finalState {
        case .delivered, .deliveredOffline: .acked
        case .opened: .opened
        default: .ended
        }
    }

    /// Reads the row of a message.
    ///
    /// - Returns: `nil` unless the bytes are a trace row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer, of message: MessageID) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version else { return nil }
        self.init(&reader, of: message)
    }

    /// Returns only the message's device; `nil` unless the bytes are a trace row of a known version.
    static func device(of bytes: UnsafeRawBufferPointer) -> DeviceID? {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == version, reader.next(UInt8.self) != nil,
            let parts = reader.next(UInt16.self).map(Parts.init), reader.next(UInt8.self) != nil,
            reader.nextTask(isPlain: parts.contains(.plainTask)) != nil
        else { return nil }
        return reader.nextIdentifier(DeviceID.self)
    }

    private init?(_ reader: inout RowReader, of message: MessageID) {
        guard let states = reader.next(UInt8.self), let finalState = FinalState(rawValue: states & 15),
            let strategy = Strategy(rawValue: states >> 4), let parts = reader.next(UInt16.self).map(Parts.init),
            let answer = reader.next(UInt8.self), let state = PublishOutcome.Fallback(rawValue: answer & 15),
            let why = PublishOutcome.FallbackReason(rawValue: answer >> 4),
            let task = reader.nextTask(isPlain: parts.contains(.plainTask)),
            let cid = reader.nextIdentifier(DeviceID.self), let app = reader.next(UInt64.self),
            let item = parts.contains(.itemOfID) ? message.low : reader.nextVarint(),
            var timeToLive = reader.nextSigned()
        else { return nil }
        if parts.contains(.seconds) { timeToLive = timeToLive &* 1_000 }
        guard let difference = parts.contains(.otherTime) ? reader.nextSigned() : 0 else { return nil }
        let acceptedAt = message.acceptedAtMilliseconds &+ difference
        guard let wait = parts.contains(.plainExpiry) ? max(0, timeToLive) : reader.nextSigned() else { return nil }
        facts = MessageFacts(
            message: message, task: task, app: AppKey(app), cid: cid, strategy: strategy, flags: [],
            table: parts.table, item: item, acceptedAt: acceptedAt, expiresAt: acceptedAt &+ wait, fallbackAt: 0,
            wakeAt: 0, timeToLive: timeToLive, byteCount: 0)
        facts.hasCallback = parts.contains(.callback)
        self.finalState = finalState
        (isOffline, wasSentLive) = (parts.contains(.offline), parts.contains(.sentLive))
        isBadgeTakenBack = parts.contains(.badgeTakenBack)
        fallback = (state, why)
        steps = [MessageTrace.Step(event: .accepted, time: acceptedAt)]
        if parts.contains(.sent) {
            guard let time = reader.nextSigned() else { return nil }
            steps.append(MessageTrace.Step(event: .sent, time: acceptedAt &+ time))
        }
        if parts.contains(.jobSteps) {
            guard let ofJob = DenseSteps.read(&reader, since: acceptedAt) else { return nil }
            steps += ofJob
        }
        guard let end = reader.nextSigned() else { return nil }
        steps.append(MessageTrace.Step(event: Self.lastEvent(finalState), time: acceptedAt &+ end))
        if parts.contains(.reason) {
            guard let text = reader.nextText() else { return nil }
            reason = text
        }
        if parts.contains(.leases) {
            guard let attempts = reader.nextVarint().flatMap({ UInt16(exactly: $0) }),
                let settled = SettledLease(&reader), let leases = LeaseBytes.read(&reader),
                let lease = settled.lease(among: leases)
            else { return nil }
            (self.attempts, self.leases) = (attempts, leases)
            (settledLease, settledOutcome) = (lease, settled.outcome)
        }
        guard let channel = parts.contains(.otherChannel) ? reader.next(UInt8.self) : 0, reader.isAtEnd else {
            return nil
        }
        if !parts.isDisjoint(with: [.jobSteps, .leases]) { self.channel = ChannelByte.channel(channel) }
    }
}

/// The compact form of steps: a count, then event, time since the previous step, and detail of each step.
enum DenseSteps {
    static func byteCount(_ steps: [MessageTrace.Step], since start: GatewayTime) -> Int {
        var (count, last) = (RowWriter.byteCount(varint: UInt64(steps.count)), start)
        for step in steps {
            count += 1 + RowWriter.byteCount(signed: step.time &- last) + RowWriter.byteCount(text: step.detail)
            last = step.time
        }
        return count
    }

    static func write(_ steps: [MessageTrace.Step], since start: GatewayTime, _ writer: inout RowWriter) {
        var last = start
        writer.put(varint: UInt64(steps.count))
        for step in steps {
            writer.put(step.event.rawValue)
            writer.put(signed: step.time &- last)
            writer.put(text: step.detail)
            last = step.time
        }
    }

    static func read(_ reader: inout RowReader, since start: GatewayTime) -> [MessageTrace.Step]? {
        guard var left = reader.nextVarint() else { return nil }
        var (steps, last): ([MessageTrace.Step], GatewayTime) = ([], start)
        while left > 0 {
            guard let event = reader.next(UInt8.self), let difference = reader.nextSigned(),
                let detail = reader.nextText()
            else { return nil }
            last = last &+ difference
            // An event of a later version is skipped; the row is still valid.
            if let event = TraceEvent(rawValue: event) {
                steps.append(MessageTrace.Step(event: event, time: last, detail: detail))
            }
            left -= 1
        }
        return steps
    }
}

/// An event of a message that is recorded outside its trace row, in a separate row of the trace table.
///
/// The row's key is the msgId with the event's number in its top bits (`Shard.lateKey`).
package enum LateEventRow {
    static let version: UInt8 = 1

    /// The events that may have a row of this kind; `trace(of:)` looks up each of these rows.
    static let events: [TraceEvent] = [.opened, .shown, .vendorAccepted, .alertedTwice, .action]

    package static func byteCount(_ steps: [MessageTrace.Step]) -> Int { 1 + StepBytes.byteCount(steps) }

    package static func write(_ steps: [MessageTrace.Step], into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        StepBytes.write(steps, &writer)
    }

    /// Returns one step, or one per action; empty for invalid bytes.
    package static func read(_ bytes: UnsafeRawBufferPointer) -> [MessageTrace.Step] {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == version else { return [] }
        return StepBytes.read(&reader) ?? []
    }
}
