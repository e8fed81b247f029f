internal import Wire

/// A queued message's way to the vendor: its place, the job's state, its lease, and the message's steps so far.
///
/// A job that is only due has no row: the row of its message implies it. The shard writes the job's row when the job
/// changes on its own: with its first lease, a verdict or a collapse mark. From then on the row is kept until the
/// message ends. So it also says that the vendor showed an alert (`alertedAt`), or that a newer message collapses it.
package struct JobRow {
    enum State: UInt8 { case due = 1, leased, accepted, rejected, exhausted, cancelled }

    static let version: UInt8 = 1
    static let stepLimit = 48
    /// How many leases the row remembers; a result under an older one is stale.
    static let leaseLimit = 16

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

    /// Adds a lease that a sender is about to get.
    mutating func give(_ lease: (UInt64, UInt64)) {
        self.lease = lease
        if leases.count >= Self.leaseLimit { leases.removeFirst() }
        leases.append(GivenLease(id: lease))
    }

    /// Notes the outcome that was taken as the result of a lease.
    mutating func settle(_ lease: (UInt64, UInt64), _ outcome: JobResult.Outcome) {
        (settledLease, settledOutcome) = (lease, outcome.rawValue)
        if let index = leases.firstIndex(where: { $0.id == lease }) { leases[index].take(outcome) }
    }

    package static let fixedByteCount = 184 + 5

    package var byteCount: Int { Self.fixedByteCount + StepBytes.byteCount(steps) + LeaseBytes.byteCount(leases) }

    package func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = RowWriter(bytes)
        writer.put(Self.version)
        writer.put(state.rawValue)
        var bits: UInt8 = badgeApplied ? 1 : 0
        if isCollapsed { bits |= 2 }
        if isBadgeTakenBack { bits |= 4 }
        if isAlertCounted { bits |= 8 }
        writer.put(bits)
        writer.put(facts.strategy.rawValue)
        writer.put(facts.flags.rawValue)
        writer.put(facts.table.rawValue)
        writer.put(attempts)
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
        writer.put(facts.fallbackAt)
        writer.put(facts.wakeAt)
        writer.put(facts.timeToLive)
        // The row's size alone, as in rows from before a message counted more than that.
        writer.put(facts.byteCount &- UInt32(MessageRow.chargeBesideRow))
        writer.put(settledOutcome)
        writer.put(channelAndKind)
        writer.put(facts.channels.rawValue)
        writer.put(dueAt)
        writer.put(lease.0)
        writer.put(lease.1)
        writer.put(leasedUntil)
        writer.put(settledLease.0)
        writer.put(settledLease.1)
        writer.put(sentToken)
        writer.put(alertedAt)
        StepBytes.write(steps, &writer)
        LeaseBytes.write(leases, &writer)
        writer.put(badgeChange)
        writer.put(badgeRound)
    }

    /// - Returns: `nil` for bytes that are no job row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let state = State(rawValue: reader.next() ?? 0),
            let bits = reader.next(UInt8.self), let strategy = Strategy(rawValue: reader.next() ?? 0),
            let flags = reader.next(UInt8.self), let table = StoreKey.Table(rawValue: reader.next() ?? 0),
            table == .message || table == .vendorMessage || table == .broadcast,
            let attempts = reader.next(UInt16.self),
            let message = reader.nextIdentifier(MessageID.self), message.bucket != nil,
            let task = reader.nextIdentifier(TaskID.self), let cid = reader.nextIdentifier(DeviceID.self),
            let app = reader.next(UInt64.self), let item = reader.next(UInt64.self),
            let acceptedAt = reader.next(Int64.self), let expiresAt = reader.next(Int64.self),
            let fallbackAt = reader.next(Int64.self), let wakeAt = reader.next(Int64.self),
            let timeToLive = reader.next(Int64.self), let byteCount = reader.next(UInt32.self),
            let settledOutcome = reader.next(UInt8.self), let channelAndKind = reader.next(UInt8.self),
            let channels = reader.next(UInt16.self),
            let dueAt = reader.next(Int64.self), let leaseHigh = reader.next(UInt64.self),
            let leaseLow = reader.next(UInt64.self), let leasedUntil = reader.next(Int64.self),
            let settledHigh = reader.next(UInt64.self), let settledLow = reader.next(UInt64.self),
            let sentToken = reader.next(UInt64.self), let alertedAt = reader.next(Int64.self),
            let steps = StepBytes.read(&reader)
        else { return nil }
        self.init(
            facts: MessageFacts(
                message: message, task: task, app: AppKey(app), cid: cid, strategy: strategy,
                flags: MessageFacts.Flags(rawValue: flags), table: table, item: item, acceptedAt: acceptedAt,
                expiresAt: expiresAt, fallbackAt: fallbackAt, wakeAt: wakeAt, timeToLive: timeToLive,
                byteCount: byteCount &+ UInt32(MessageRow.chargeBesideRow),
                channels: Self.channels(channels, flags, channelAndKind)), state: state, dueAt: dueAt)
        self.attempts = attempts
        (lease, self.leasedUntil) = ((leaseHigh, leaseLow), leasedUntil)
        (settledLease, self.settledOutcome) = ((settledHigh, settledLow), settledOutcome)
        self.channelAndKind = channelAndKind
        (self.sentToken, self.alertedAt, self.steps) = (sentToken, alertedAt, steps)
        (badgeApplied, isCollapsed) = (bits & 1 != 0, bits & 2 != 0)
        (isBadgeTakenBack, isAlertCounted) = (bits & 4 != 0, bits & 8 != 0)
        if reader.isAtEnd {
            // A row from before leases were kept has only those of its other fields.
            leases = LeaseBytes.known(lease, settled: settledLease, outcome: settledOutcome)
        } else {
            guard let leases = LeaseBytes.read(&reader), let change = reader.next(Int32.self),
                let round = reader.next(UInt8.self)
            else { return nil }
            (self.leases, badgeChange, badgeRound) = (leases, change, round)
        }
    }
}

extension JobRow {
    /// The channels that the row names; one from before there were channels names none, and means APNs.
    private static func channels(_ stored: UInt16, _ flags: UInt8, _ channelAndKind: UInt8) -> ChannelSet {
        guard stored == 0, MessageFacts.Flags(rawValue: flags).contains(.hasVendorContent) else {
            return ChannelSet(rawValue: stored)
        }
        return ChannelSet(rawValue: 1 << UInt16(channelAndKind >> 4))
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
}

/// Given leases as they stand after the steps of job and trace rows; older rows end before them.
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

    /// The leases that a row without a list names.
    static func known(_ lease: (UInt64, UInt64), settled: (UInt64, UInt64), outcome: UInt8) -> [GivenLease] {
        var leases: [GivenLease] = []
        if settled != (0, 0) { leases.append(GivenLease(id: settled, outcomes: outcome < 8 ? 1 << outcome : 0)) }
        if lease != (0, 0), lease != settled { leases.append(GivenLease(id: lease)) }
        return leases
    }
}

/// Steps as they stand in job and trace rows: a count, then event, time and detail of each.
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
