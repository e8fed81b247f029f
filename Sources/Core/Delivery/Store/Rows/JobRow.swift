internal import Wire

/// A queued message's way to the vendor: its place, the job's state, its lease, and the message's steps so far.
///
/// A job that is only due has no row: the row of its message implies it. The shard writes the job's row when the job
/// changes on its own: with its first lease, a verdict or a collapse mark, or when its device leaves before the
/// deadline. From then on the row is kept until the message ends. So it also says that the vendor showed an alert (`alertedAt`), or that a newer message collapses it.
package struct JobRow {
    enum State: UInt8 { case due = 1, leased, accepted, rejected, exhausted, cancelled }

    static let version: UInt8 = 1
    static let stepLimit = 48
    /// How many leases the row remembers; of a result under another one see `hasForgottenLeases`.
    static let leaseLimit = 16
    /// The bit among those of the channels that says `MessageFacts.vendorCarriesAll`: no channel has this number.
    static let carriesAllBit: UInt16 = 1 << 15

    var facts: MessageFacts
    var state: State
    /// In `due`: not before this.
    var dueAt: GatewayTime
    var attempts: UInt16 = 0
    var lease: (UInt64, UInt64) = (0, 0)
    var leasedUntil: GatewayTime = 0
    /// The lease whose result was taken last, and that result, to recognise a repetition.
    var settledLease: (UInt64, UInt64) = (0, 0)
    var settledOutcome: UInt8 = 0
    /// Leases that senders got, oldest first: a result counts only under one of them.
    var leases: [GivenLease] = []
    /// Digest of the token that the last lease carried.
    var sentToken: UInt64 = 0
    /// The channel that the job is for, and the kind of that token (`ChannelByte`).
    private var channelAndKind: UInt8 = 0
    var badgeApplied = false
    /// By how much the first lease moved the device's badge, and which of the client's own values it moved.
    var badgeChange: Int32 = 0
    var badgeRound: UInt8 = 0
    /// The vendor will not show the alert: the shard took the change back.
    var isBadgeTakenBack = false
    /// The counters have the vendor's acceptance.
    var isAlertCounted = false
    /// A newer message under its collapse key waits for its ack or its return from flight.
    var isCollapsed = false
    /// When the vendor accepted it; 0: never.
    var alertedAt: GatewayTime = 0
    package var steps: [MessageTrace.Step] = []

    init(facts: MessageFacts, state: State, dueAt: GatewayTime) {
        (self.facts, self.state, self.dueAt) = (facts, state, dueAt)
        if let channel = facts.channels.first {
            channelAndKind = ChannelByte.make(channel, .alert)
        } else {
            // Without a content for a channel that this version knows, no sender gets the job.
            channelAndKind = facts.channels.isEmpty ? 0 : ChannelByte.unknown(facts.channels)
        }
    }

    /// The channel that the job is for; `nil`: one that only a later version knows, so that no sender gets it here.
    var channel: VendorChannel? { ChannelByte.channel(channelAndKind) }

    /// The channel as rows have it: in the high four bits.
    var channelBits: UInt8 { channelAndKind & 0xF0 }

    /// The kind of the token that the last lease carried.
    var sentKind: TokenKind {
        get { ChannelByte.tokenKind(channelAndKind) ?? .alert }
        set { channelAndKind = channelAndKind & 0xF0 | newValue.rawValue }
    }

    /// The job that the row of an armed message implies, from `jobDueAt` on, while no job row exists.
    init(impliedBy facts: MessageFacts) {
        self.init(facts: facts, state: .due, dueAt: facts.jobDueAt)
        if facts.fallbackAt > 0 { note(.timedOut, facts.fallbackAt) }
        note(.jobDue, facts.jobDueAt)
    }

    /// When the stored row is due.
    package var wakeAt: GatewayTime {
        switch state {
        case .due: min(dueAt, facts.expiresAt)
        case .leased: max(1, leasedUntil)
        default: facts.expiresAt
        }
    }

    /// Adds a step; past the limit the middle ones go.
    mutating func note(_ event: TraceEvent, _ time: GatewayTime, _ detail: String = "") {
        if steps.count >= Self.stepLimit { steps.remove(at: Self.stepLimit / 2) }
        steps.append(MessageTrace.Step(event: event, time: time, detail: detail))
    }

    /// Adds the step of a job given back unsent; one that repeats the last one takes its place, with the lease between.
    mutating func noteUnsent(_ time: GatewayTime, _ reason: String) {
        if steps.count >= 2, steps[steps.count - 1].event == .leased, steps[steps.count - 2].event == .unsent,
            steps[steps.count - 2].detail == reason
        {
            steps.removeLast(2)
        }
        note(.unsent, time, reason)
    }

    /// Adds a lease that a sender is about to get.
    ///
    /// Past the limit the oldest of those goes whose job never reached the vendor, else the oldest of all.
    mutating func give(_ lease: (UInt64, UInt64)) {
        self.lease = lease
        if leases.count >= Self.leaseLimit {
            leases.remove(at: leases.firstIndex { $0.hasTaken(.unsent) } ?? 0)
            leases[0].markForgotten()
        }
        leases.append(GivenLease(id: lease))
    }

    /// A lease that the row does not name may be one that a sender got.
    var hasForgottenLeases: Bool { leases.first?.isAfterForgotten ?? false }

    /// Notes the outcome that was taken as the result of a lease.
    mutating func settle(_ lease: (UInt64, UInt64), _ outcome: JobResult.Outcome) {
        (settledLease, settledOutcome) = (lease, outcome.rawValue)
        if let index = leases.firstIndex(where: { $0.id == lease }) { leases[index].take(outcome) }
    }

    /// What a row has, and how its numbers stand.
    struct Parts: OptionSet {
        let rawValue: UInt16
        static let badgeApplied = Parts(rawValue: 1)
        static let collapsed = Parts(rawValue: 2)
        static let badgeTakenBack = Parts(rawValue: 4)
        static let alertCounted = Parts(rawValue: 8)
        /// The task's id is as this version mints them.
        static let plainTask = Parts(rawValue: 16)
        /// The item is the low word of the msgId.
        static let itemOfID = Parts(rawValue: 32)
        /// The time of acceptance is not the one in the msgId.
        static let otherTime = Parts(rawValue: 64)
        /// The message ends as its TTL says.
        static let plainExpiry = Parts(rawValue: 128)
        static let fallback = Parts(rawValue: 256)
        /// The message's row has the alarm that its facts say.
        static let plainAlarm = Parts(rawValue: 512)
        /// The current lease is the last of the given ones.
        static let lastLease = Parts(rawValue: 1024)
        /// There is a current lease, and it is not the last of the given ones.
        static let otherLease = Parts(rawValue: 2048)
        static let leasedUntil = Parts(rawValue: 4096)
        static let sentToken = Parts(rawValue: 8192)
        static let alerted = Parts(rawValue: 16384)
        static let badgeChange = Parts(rawValue: 32768)
    }

    private var parts: Parts {
        var parts: Parts = []
        if badgeApplied { parts.insert(.badgeApplied) }
        if isCollapsed { parts.insert(.collapsed) }
        if isBadgeTakenBack { parts.insert(.badgeTakenBack) }
        if isAlertCounted { parts.insert(.alertCounted) }
        if RowWriter.isPlain(facts.task) { parts.insert(.plainTask) }
        if facts.item == facts.message.low { parts.insert(.itemOfID) }
        if facts.acceptedAt != facts.message.acceptedAtMilliseconds { parts.insert(.otherTime) }
        if facts.expiresAt == facts.acceptedAt &+ facts.timeToLive { parts.insert(.plainExpiry) }
        if facts.fallbackAt != 0 { parts.insert(.fallback) }
        if facts.wakeAt == facts.firstAlarm { parts.insert(.plainAlarm) }
        if let last = leases.last, last.id == lease {
            parts.insert(.lastLease)
        } else if lease != (0, 0) {
            parts.insert(.otherLease)
        }
        if leasedUntil != 0 { parts.insert(.leasedUntil) }
        if sentToken != 0 { parts.insert(.sentToken) }
        if alertedAt != 0 { parts.insert(.alerted) }
        if badgeChange != 0 { parts.insert(.badgeChange) }
        return parts
    }

    /// Before the steps: the bytes at the head, then those of what is written by difference or only when it is there.
    static let headByteCount = 6 + 2 + 8 + 16
    /// The most that a row has besides its steps and its leases.
    package static let fixedByteCount =
        headByteCount + 16 + 16 + 12 * RowWriter.varintByteCount + 16 + 8 + 2 + SettledLease.byteCountLimit

    package var byteCount: Int {
        var meter = RowMeter()
        writeFields(&meter)
        return meter.byteCount + DenseSteps.byteCount(steps, since: facts.acceptedAt) + SettledLease(self).byteCount
            + LeaseBytes.byteCount(leases)
    }

    package func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writeFields(&writer)
        DenseSteps.write(steps, since: facts.acceptedAt, &writer)
        SettledLease(self).write(&writer)
        LeaseBytes.write(leases, &writer)
    }

    @inline(__always)
    private func writeFields(_ writer: inout some RowSink) {
        let parts = parts
        writer.put(Self.version)
        writer.put(state.rawValue)
        writer.put(facts.strategy.rawValue)
        writer.put(facts.flags.rawValue)
        writer.put(facts.table.rawValue)
        writer.put(channelAndKind)
        writer.put(parts.rawValue)
        writer.put(facts.app.word)
        writer.put(facts.message.high)
        writer.put(facts.message.low)
        if parts.contains(.otherTime) {
            writer.put(signed: facts.acceptedAt &- facts.message.acceptedAtMilliseconds)
        }
        writer.put(signed: facts.timeToLive)
        if !parts.contains(.plainExpiry) { writer.put(signed: facts.expiresAt &- facts.acceptedAt) }
        writer.put(signed: dueAt &- facts.acceptedAt)
        writer.put(facts.task, isPlain: parts.contains(.plainTask))
        writer.put(facts.cid.high)
        writer.put(facts.cid.low)
        if !parts.contains(.itemOfID) { writer.put(varint: facts.item) }
        if parts.contains(.fallback) { writer.put(signed: facts.fallbackAt &- facts.acceptedAt) }
        if !parts.contains(.plainAlarm) { writer.put(signed: facts.wakeAt &- facts.acceptedAt) }
        writer.put(varint: UInt64(facts.byteCount))
        writer.put(varint: UInt64(facts.channels.rawValue | (facts.vendorCarriesAll ? Self.carriesAllBit : 0)))
        writer.put(varint: UInt64(attempts))
        if parts.contains(.otherLease) {
            writer.put(lease.0)
            writer.put(lease.1)
        }
        if parts.contains(.leasedUntil) { writer.put(signed: leasedUntil &- facts.acceptedAt) }
        if parts.contains(.sentToken) { writer.put(sentToken) }
        if parts.contains(.alerted) { writer.put(signed: alertedAt &- facts.acceptedAt) }
        if parts.contains(.badgeChange) { writer.put(signed: Int64(badgeChange)) }
        writer.put(badgeRound)
    }

    /// - Returns: `nil` for bytes that are no job row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version else { return nil }
        self.init(&reader)
    }

    /// The fields that a reader of alarms looks at, too, in front of all others.
    struct Head {
        var state: State
        var strategy: Strategy
        var flags: MessageFacts.Flags
        var table: StoreKey.Table
        var channelAndKind: UInt8
        var parts: Parts
        var app: AppKey
        var message: MessageID
        var acceptedAt: GatewayTime
        var timeToLive: Int64
        var expiresAt: GatewayTime
        var dueAt: GatewayTime

        /// Reads on behind the version.
        init?(_ reader: inout RowReader) {
            guard let state = State(rawValue: reader.next() ?? 0),
                let strategy = Strategy(rawValue: reader.next() ?? 0),
                let flags = reader.next(UInt8.self), let table = StoreKey.Table(rawValue: reader.next() ?? 0),
                table == .message || table == .vendorMessage || table == .broadcast,
                let channelAndKind = reader.next(UInt8.self), let bits = reader.next(UInt16.self),
                let app = reader.next(UInt64.self), let message = reader.nextIdentifier(MessageID.self),
                message.bucket != nil
            else { return nil }
            (self.state, self.strategy, self.table) = (state, strategy, table)
            self.channelAndKind = channelAndKind
            (self.flags, parts) = (MessageFacts.Flags(rawValue: flags), Parts(rawValue: bits))
            (self.app, self.message) = (AppKey(app), message)
            guard let other = parts.contains(.otherTime) ? reader.nextSigned() : 0,
                let timeToLive = reader.nextSigned(),
                let wait = parts.contains(.plainExpiry) ? timeToLive : reader.nextSigned(),
                let due = reader.nextSigned()
            else { return nil }
            acceptedAt = message.acceptedAtMilliseconds &+ other
            self.timeToLive = timeToLive
            (expiresAt, dueAt) = (acceptedAt &+ wait, acceptedAt &+ due)
        }
    }

    private init?(_ reader: inout RowReader) {
        guard let head = Head(&reader), let task = reader.nextTask(isPlain: head.parts.contains(.plainTask)),
            let cid = reader.nextIdentifier(DeviceID.self),
            let item = head.parts.contains(.itemOfID) ? head.message.low : reader.nextVarint()
        else { return nil }
        let (parts, acceptedAt) = (head.parts, head.acceptedAt)
        func time(_ part: Bool) -> GatewayTime? { part ? reader.nextSigned().map { acceptedAt &+ $0 } : 0 }
        guard let fallbackAt = time(parts.contains(.fallback)), let wakeAt = time(!parts.contains(.plainAlarm)),
            let byteCount = reader.nextVarint().flatMap({ UInt32(exactly: $0) }),
            let channels = reader.nextVarint().flatMap({ UInt16(exactly: $0) }),
            let attempts = reader.nextVarint().flatMap({ UInt16(exactly: $0) })
        else { return nil }
        var facts = MessageFacts(
            message: head.message, task: task, app: head.app, cid: cid, strategy: head.strategy, flags: head.flags,
            table: head.table, vendorCarriesAll: channels & Self.carriesAllBit != 0, item: item,
            acceptedAt: acceptedAt, expiresAt: head.expiresAt, fallbackAt: fallbackAt, wakeAt: wakeAt,
            timeToLive: head.timeToLive, byteCount: byteCount,
            channels: ChannelSet(rawValue: channels & ~Self.carriesAllBit))
        if parts.contains(.plainAlarm) { facts.wakeAt = facts.firstAlarm }
        self.init(facts: facts, state: head.state, dueAt: head.dueAt)
        (self.attempts, channelAndKind) = (attempts, head.channelAndKind)
        if parts.contains(.otherLease) {
            guard let high = reader.next(UInt64.self), let low = reader.next(UInt64.self) else { return nil }
            lease = (high, low)
        }
        guard let until = time(parts.contains(.leasedUntil)),
            let token = parts.contains(.sentToken) ? reader.next(UInt64.self) : 0,
            let alertedAt = time(parts.contains(.alerted)),
            let change = (parts.contains(.badgeChange) ? reader.nextSigned() : 0).flatMap({ Int32(exactly: $0) }),
            let round = reader.next(UInt8.self), let steps = DenseSteps.read(&reader, since: acceptedAt),
            let settled = SettledLease(&reader), let leases = LeaseBytes.read(&reader),
            let settledLease = settled.lease(among: leases), reader.isAtEnd
        else { return nil }
        (leasedUntil, sentToken, self.alertedAt) = (until, token, alertedAt)
        (badgeChange, badgeRound, self.steps, self.leases) = (change, round, steps, leases)
        (self.settledLease, settledOutcome) = (settledLease, settled.outcome)
        if parts.contains(.lastLease) {
            guard let last = leases.last else { return nil }
            lease = last.id
        }
        (badgeApplied, isCollapsed) = (parts.contains(.badgeApplied), parts.contains(.collapsed))
        (isBadgeTakenBack, isAlertCounted) = (parts.contains(.badgeTakenBack), parts.contains(.alertCounted))
    }
}

extension RowReader {
    mutating func nextIdentifier<Identifier: WideIdentifier>(_ type: Identifier.Type) -> Identifier? {
        guard let high = next(UInt64.self), let low = next(UInt64.self) else { return nil }
        return Identifier(high: high, low: low)
    }
}

/// A lease that a sender got, and which outcomes were taken under it: a bit each.
struct GivenLease: Equatable {
    var high: UInt64
    var low: UInt64
    var outcomes: UInt8 = 0

    init(id: (UInt64, UInt64), outcomes: UInt8 = 0) { (high, low, self.outcomes) = (id.0, id.1, outcomes) }

    var id: (UInt64, UInt64) { (high, low) }

    func hasTaken(_ outcome: JobResult.Outcome) -> Bool { outcomes & 1 << outcome.rawValue != 0 }

    mutating func take(_ outcome: JobResult.Outcome) { outcomes |= 1 << outcome.rawValue }

    /// No outcome has this bit.
    private static let forgotten: UInt8 = 1 << 7

    /// Leases were given that the list, which this one leads, has no room for.
    var isAfterForgotten: Bool { outcomes & Self.forgotten != 0 }

    mutating func markForgotten() { outcomes |= Self.forgotten }
}

/// The lease whose result was taken last: its outcome and its place among the leases that the row names.
struct SettledLease {
    /// The place of a lease that the row does not name, because too many came after it.
    private static let isApart: UInt8 = 255
    static let byteCountLimit = 2 + 16

    var outcome: UInt8
    /// Its index plus 1; 0: none.
    private var place: UInt8
    private var apart: (UInt64, UInt64) = (0, 0)

    init(_ job: JobRow) {
        outcome = job.settledOutcome
        if job.settledLease == (0, 0) {
            place = 0
        } else if let index = job.leases.lastIndex(where: { $0.id == job.settledLease }) {
            place = UInt8(truncatingIfNeeded: index + 1)
        } else {
            (place, apart) = (Self.isApart, job.settledLease)
        }
    }

    init?(_ reader: inout RowReader) {
        guard let outcome = reader.next(UInt8.self), let place = reader.next(UInt8.self) else { return nil }
        (self.outcome, self.place) = (outcome, place)
        guard place == Self.isApart else { return }
        guard let high = reader.next(UInt64.self), let low = reader.next(UInt64.self) else { return nil }
        apart = (high, low)
    }

    var byteCount: Int { place == Self.isApart ? Self.byteCountLimit : 2 }

    func write(_ writer: inout RowWriter) {
        writer.put(outcome)
        writer.put(place)
        guard place == Self.isApart else { return }
        writer.put(apart.0)
        writer.put(apart.1)
    }

    /// - Returns: `nil` for a place that the leases do not have.
    func lease(among leases: [GivenLease]) -> (UInt64, UInt64)? {
        if place == 0 { return (0, 0) }
        if place == Self.isApart { return apart }
        return Int(place) <= leases.count ? leases[Int(place) - 1].id : nil
    }
}

/// Given leases as they stand after the steps of job and trace rows.
enum LeaseBytes {
    static let leaseByteCount = 17

    static func byteCount(_ leases: [GivenLease]) -> Int { 1 + leaseByteCount * leases.count }

    static func write(_ leases: [GivenLease], _ writer: inout RowWriter) {
        writer.put(UInt8(truncatingIfNeeded: leases.count))
        for lease in leases {
            writer.put(lease.high)
            writer.put(lease.low)
            writer.put(lease.outcomes)
        }
    }

    static func read(_ reader: inout RowReader) -> [GivenLease]? {
        guard let count = reader.next(UInt8.self), Int(count) <= JobRow.leaseLimit else { return nil }
        var leases: [GivenLease] = []
        for _ in 0..<count {
            guard let high = reader.next(UInt64.self), let low = reader.next(UInt64.self),
                let outcomes = reader.next(UInt8.self)
            else { return nil }
            leases.append(GivenLease(id: (high, low), outcomes: outcomes))
        }
        return leases
    }
}

/// Steps as they stand in the rows of late events: a count, then event, time and detail of each.
enum StepBytes {
    static func byteCount(_ steps: [MessageTrace.Step]) -> Int {
        steps.reduce(2) { $0 + 9 + RowWriter.byteCount(text: $1.detail) }
    }

    static func write(_ steps: [MessageTrace.Step], _ writer: inout RowWriter) {
        writer.put(UInt16(truncatingIfNeeded: steps.count))
        for step in steps {
            writer.put(step.event.rawValue)
            writer.put(step.time)
            writer.put(text: step.detail)
        }
    }

    static func read(_ reader: inout RowReader) -> [MessageTrace.Step]? {
        guard let count = reader.next(UInt16.self) else { return nil }
        var steps: [MessageTrace.Step] = []
        for _ in 0..<count {
            guard let event = reader.next(UInt8.self), let time = reader.next(Int64.self),
                let detail = reader.nextText()
            else { return nil }
            // An event of a later version is left out; the row is still valid.
            if let event = TraceEvent(rawValue: event) {
                steps.append(MessageTrace.Step(event: event, time: time, detail: detail))
            }
        }
        return steps
    }
}
