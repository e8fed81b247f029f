internal import Wire

/// The stored job of a queued message: the job's state, its lease, and the message's steps.
///
/// A job that is only due has no row because its message's row implies it. The row is written with the job's first lease, verdict
/// or collapse mark, or when its device leaves before the deadline. The row is then kept until the message ends. It also records
/// that the vendor showed an alert (`alertedAt`), or that a newer message collapses this one.
package struct JobRow {
    enum State: UInt8 { case due = 1, leased, accepted, rejected, exhausted, cancelled }

    static let version: UInt8 = 1
    static let stepLimit = 48
    /// The number of leases remembered; see `hasForgottenLeases` for results of other leases.
    static let leaseLimit = 16
    /// The bit for `MessageFacts.vendorCarriesAll` among the channel bits; no channel has this number.
    static let carriesAllBit: UInt32 = 1 << 16
    /// The bit for `MessageFacts.hasCallback` among the channel bits.
    static let callbackBit: UInt32 = 1 << 17

    var facts: MessageFacts
    var state: State
    /// In state `due`: the earliest time of a lease.
    var dueAt: GatewayTime
    var attempts: UInt16 = 0
    var lease: (UInt64, UInt64) = (0, 0)
    var leasedUntil: GatewayTime = 0
    /// The last settled lease and its outcome, to detect repeated results.
    var settledLease: (UInt64, UInt64) = (0, 0)
    var settledOutcome: UInt8 = 0
    /// The leases given to senders, oldest first; only their results count.
    var leases: [GivenLease] = []
    /// The digest of the last leased token.
    var sentToken: UInt64 = 0
    /// The job's channel, and the kind of the last leased token (`ChannelByte`).
    private var channelAndKind: UInt8 = 0
    var badgeApplied = false
    /// The badge change of the first lease, and the device's `badgeRound` at that time.
    var badgeChange: Int32 = 0
    var badgeRound: UInt8 = 0
    /// Whether the badge change was reverted because the vendor will not show the alert.
    var isBadgeTakenBack = false
    var isAlertCounted = false
    /// Whether a newer message under the collapse key replaces this one once it is no longer in flight.
    var isCollapsed = false
    /// The time of the vendor's acceptance; 0: none.
    var alertedAt: GatewayTime = 0
    package var steps: [MessageTrace.Step] = []
    /// Whether the steps contain the message's first send.
    var hasSent: Bool { steps.contains { $0.event == .sent } }

    init(facts: MessageFacts, state: State, dueAt: GatewayTime) {
        (self.facts, self.state, self.dueAt) = (facts, state, dueAt)
        if let channel = facts.channels.first {
            channelAndKind = ChannelByte.make(channel, .alert)
        } else {
            // Without a content for a known channel no sender gets the job.
            channelAndKind = facts.channels.isEmpty ? 0 : ChannelByte.unknown(facts.channels)
        }
    }

    /// The job's channel; `nil` if only a later version knows it, so no sender gets the job here.
    var channel: VendorChannel? {
        get { ChannelByte.channel(channelAndKind) }
        set { if let newValue { channelAndKind = newValue.rawValue << 4 | channelAndKind & 15 } }
    }

    /// Whether the job is in the follow-up channel: the vendor failed, its time passed, or the message has no vendor content.
    var isFollowUp: Bool { channel?.isFollowUp == true }

    /// The time at which the job moves from the vendor to the follow-up channel; 0: never.
    var followUpAt: GatewayTime { state == .due && !isFollowUp && !isCollapsed ? facts.followUpAt : 0 }

    /// The vendor's channel, even after the move to the follow-up channel; `nil` if the job has none.
    var vendorChannel: VendorChannel? { isFollowUp ? facts.channels.subtracting(.followUps).first : channel }

    /// Whether the vendor may have received the message, because a sender of the vendor leased the job.
    var wasLeased: Bool { attempts > 0 && !isFollowUp || leases.containsOneOfVendor }

    /// Whether the vendor accepted the message, so that the device may have shown its alert.
    ///
    /// An accepted follow-up shows nothing on the device and does not count.
    var isAlerted: Bool { alertedAt > 0 && !isFollowUp }

    /// Returns whether a lease was given in the follow-up channel.
    func isOfFollowUp(_ lease: (UInt64, UInt64)) -> Bool {
        leases.first { $0.id == lease }?.isOfFollowUp ?? false
    }

    /// Returns the channel of a lease, which is not the job's if the job has moved to the follow-up channel or back.
    func channel(of lease: (UInt64, UInt64)) -> VendorChannel? {
        let isOfFollowUp = leases.first { $0.id == lease }?.isOfFollowUp ?? isFollowUp
        guard isOfFollowUp != isFollowUp else { return channel }
        return isFollowUp ? vendorChannel : facts.channels.intersection(.followUps).first
    }

    /// Moves the job to the follow-up channel and resets its attempt count.
    ///
    /// If the follow-up's time has passed, the new due time equals the job's stored alarm (`wakeAt`), so the alarm stays valid.
    mutating func followUp(_ time: GatewayTime) {
        guard let next = VendorChannel.followUps.first(where: { facts.channels.contains(ChannelSet($0)) }) else {
            return
        }
        (channel, state, attempts) = (next, .due, 0)
        dueAt = facts.followUpAt > time ? facts.followUpAt : min(dueAt, facts.followUpAt)
    }

    var channelBits: UInt8 { channelAndKind & 0xF0 }

    /// The kind of the last leased token.
    var sentKind: TokenKind {
        get { ChannelByte.tokenKind(channelAndKind) ?? .alert }
        set { channelAndKind = channelAndKind & 0xF0 | newValue.rawValue }
    }

    /// Creates the job that an armed message's row implies from `jobDueAt` on, while no job row exists.
    init(impliedBy facts: MessageFacts) {
        self.init(facts: facts, state: .due, dueAt: facts.jobDueAt)
        if facts.fallbackAt > 0 { note(.timedOut, facts.fallbackAt) }
        note(.jobDue, facts.jobDueAt)
    }

    package var wakeAt: GatewayTime {
        switch state {
        case .due: min(followUpAt > 0 ? min(dueAt, followUpAt) : dueAt, facts.expiresAt)
        case .leased: max(1, leasedUntil)
        default: facts.expiresAt
        }
    }

    /// Adds a step; at the limit a middle step is removed.
    mutating func note(_ event: TraceEvent, _ time: GatewayTime, _ detail: String = "") {
        if steps.count >= Self.stepLimit { steps.remove(at: Self.stepLimit / 2) }
        steps.append(MessageTrace.Step(event: event, time: time, detail: detail))
    }

    /// Adds a step `unsent`, and removes an equal earlier step with the lease step after it.
    mutating func noteUnsent(_ time: GatewayTime, _ reason: String) {
        if steps.count >= 2, steps[steps.count - 1].event == .leased, steps[steps.count - 2].event == .unsent,
            steps[steps.count - 2].detail == reason
        {
            steps.removeLast(2)
        }
        note(.unsent, time, reason)
    }

    /// Adds a lease; at the limit the oldest `unsent` lease is removed, or the oldest lease if none is `unsent`.
    mutating func give(_ lease: (UInt64, UInt64)) {
        self.lease = lease
        if leases.count >= Self.leaseLimit {
            leases.remove(at: leases.firstIndex { $0.hasTaken(.unsent) } ?? 0)
            leases[0].markForgotten()
        }
        leases.append(GivenLease(id: lease, isOfFollowUp: isFollowUp))
    }

    /// Whether leases were removed from the row, so an unknown lease may be valid.
    var hasForgottenLeases: Bool { leases.first?.isAfterForgotten ?? false }

    mutating func settle(_ lease: (UInt64, UInt64), _ outcome: JobResult.Outcome) {
        (settledLease, settledOutcome) = (lease, outcome.rawValue)
        if let index = leases.firstIndex(where: { $0.id == lease }) { leases[index].take(outcome) }
    }

    /// The flags for optional fields and compact forms.
    struct Parts: OptionSet {
        let rawValue: UInt16
        static let badgeApplied = Parts(rawValue: 1)
        static let collapsed = Parts(rawValue: 2)
        static let badgeTakenBack = Parts(rawValue: 4)
        static let alertCounted = Parts(rawValue: 8)
        /// The task id has the compact form (`RowWriter.isPlain`).
        static let plainTask = Parts(rawValue: 16)
        /// The item is the low word of the msgId.
        static let itemOfID = Parts(rawValue: 32)
        /// The time of acceptance differs from the one in the msgId.
        static let otherTime = Parts(rawValue: 64)
        /// The expiry follows from the TTL.
        static let plainExpiry = Parts(rawValue: 128)
        static let fallback = Parts(rawValue: 256)
        /// The alarm of the message's row is `MessageFacts.firstAlarm`.
        static let plainAlarm = Parts(rawValue: 512)
        /// The current lease is the last of `leases`.
        static let lastLease = Parts(rawValue: 1024)
        /// The current lease exists and is not the last of `leases`.
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

    /// The size of the fixed fields at the head of the row.
    static let headByteCount = 6 + 2 + 8 + 16
    /// The maximum size without steps and leases.
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
        var channels = UInt32(facts.channels.rawValue)
        if facts.vendorCarriesAll { channels |= Self.carriesAllBit }
        if facts.hasCallback { channels |= Self.callbackBit }
        writer.put(varint: UInt64(channels))
        if !facts.channels.isDisjoint(with: .followUps) { writer.put(signed: facts.followUpAt &- facts.acceptedAt) }
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

    /// - Returns: `nil` unless the bytes are a job row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version else { return nil }
        self.init(&reader)
    }

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
            let channels = reader.nextVarint().flatMap({ UInt32(exactly: $0) }),
            let followUpAt = time(channels & UInt32(ChannelSet.followUps.rawValue) != 0),
            let attempts = reader.nextVarint().flatMap({ UInt16(exactly: $0) })
        else { return nil }
        var facts = MessageFacts(
            message: head.message, task: task, app: head.app, cid: cid, strategy: head.strategy, flags: head.flags,
            table: head.table, vendorCarriesAll: channels & Self.carriesAllBit != 0,
            hasCallback: channels & Self.callbackBit != 0, item: item,
            acceptedAt: acceptedAt, expiresAt: head.expiresAt, fallbackAt: fallbackAt, wakeAt: wakeAt,
            timeToLive: head.timeToLive, byteCount: byteCount,
            channels: ChannelSet(rawValue: UInt16(truncatingIfNeeded: channels)), followUpAt: followUpAt)
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

/// A lease given to a sender, and the outcomes recorded under it, one bit each.
struct GivenLease: Equatable {
    var high: UInt64
    var low: UInt64
    var outcomes: UInt8 = 0

    init(id: (UInt64, UInt64), outcomes: UInt8) { (high, low, self.outcomes) = (id.0, id.1, outcomes) }

    init(id: (UInt64, UInt64), isOfFollowUp: Bool = false) {
        self.init(id: id, outcomes: isOfFollowUp ? Self.followUp : 0)
    }

    var id: (UInt64, UInt64) { (high, low) }

    func hasTaken(_ outcome: JobResult.Outcome) -> Bool { outcomes & 1 << outcome.rawValue != 0 }

    mutating func take(_ outcome: JobResult.Outcome) { outcomes |= 1 << outcome.rawValue }

    // Flags in the bits above those of the outcomes.
    private static let followUp: UInt8 = 1 << 6
    private static let forgotten: UInt8 = 1 << 7

    /// Whether the lease was given in the follow-up channel.
    var isOfFollowUp: Bool { outcomes & Self.followUp != 0 }

    /// Whether earlier leases were removed from the list that begins with this one.
    var isAfterForgotten: Bool { outcomes & Self.forgotten != 0 }

    mutating func markForgotten() { outcomes |= Self.forgotten }
}

extension [GivenLease] {
    /// Whether a vendor may have received the message through one of the leases, or through a removed one.
    var containsOneOfVendor: Bool {
        contains { !$0.isOfFollowUp && !$0.hasTaken(.unsent) } || first?.isAfterForgotten == true
    }
}

/// The last settled lease: its outcome and its index among the row's leases.
struct SettledLease {
    /// The value of `place` for a lease that is not among the row's leases.
    private static let isApart: UInt8 = 255
    static let byteCountLimit = 2 + 16

    var outcome: UInt8
    /// The index plus 1; 0: none.
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

    /// - Returns: `nil` if the stored index is outside `leases`.
    func lease(among leases: [GivenLease]) -> (UInt64, UInt64)? {
        if place == 0 { return (0, 0) }
        if place == Self.isApart { return apart }
        return Int(place) <= leases.count ? leases[Int(place) - 1].id : nil
    }
}

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

/// The stored form of steps in the rows of late events: a count, then event, time and detail of each step.
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
            // An event of a later version is skipped; the row is still valid.
            if let event = TraceEvent(rawValue: event) {
                steps.append(MessageTrace.Step(event: event, time: time, detail: detail))
            }
        }
        return steps
    }
}
