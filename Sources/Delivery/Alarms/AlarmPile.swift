// Alarms of jobs that their app has no room for: of job rows, and of messages whose rows imply a due job.
// The store reports each due alarm once. It passes over a due job while the app's due jobs fill their share in memory,
// and remembers where, by app and bucket (a *pile*). So one app's jobs do not delay the alarms of the others. The row
// stays as it is: a restart forgets the piles and starts anew.

public import Wire

/// Alarms of jobs that the store passed over without a report, or reported and got back.
public struct AlarmPile: Hashable, Sendable {
    /// In the order in which the shard looks through an app's piles.
    public enum Kind: UInt8, Sendable {
        /// Due jobs that the store never reported.
        case due
        /// The same, of jobs that must be leased in time.
        ///
        /// Each is due again a fixed time after it was due, so the first in order is the first to look at.
        case vendorTimeout
        /// Held jobs that the shard gave back.
        case held
    }

    public var app: AppKey
    public var kind: Kind

    public init(app: AppKey, kind: Kind) { (self.app, self.kind) = (app, kind) }
}

extension AlarmPile: Comparable {
    public static func < (left: AlarmPile, right: AlarmPile) -> Bool {
        if left.app != right.app { return left.app.word < right.app.word }
        return left.kind.rawValue < right.kind.rawValue
    }
}

/// A shard's request to the store for due alarms.
public struct AlarmRequest: Sendable {
    /// What a reader does with a due row.
    public enum Verdict: Equatable, Sendable {
        case take
        /// The row stays in the store.
        ///
        /// The reader looks at it with its pile, not before `until` unless `isEager`.
        case leave(AlarmPile, until: Int64)
        /// The row does not belong to this pile.
        case pass
    }

    public var time: Int64
    public var limit: Int
    /// The pile to look through; `nil`: alarms that no pile has.
    public var pile: AlarmPile?
    /// Looks at the pile's alarms even before their `until`.
    public var isEager = false
    /// Apps that have no room for due jobs.
    public var fullApps: [AppKey] = []
    /// How long a message of strategy 4 waits for a sender of its vendor to lease its job.
    var vendorTimeout: Int64 = .max
    /// A planted fault: alarms are reported that another row has taken over.
    var ignoresSuccessors = false

    public init(
        upTo time: Int64, limit: Int, pile: AlarmPile? = nil, isEager: Bool = false, fullApps: [AppKey] = []
    ) {
        (self.time, self.limit, self.pile, self.isEager, self.fullApps) = (time, limit, pile, isEager, fullApps)
    }

    /// Runs on a reader's thread.
    public func judge(_ key: StoreKey, _ value: UnsafeRawBufferPointer) -> Verdict {
        if pile == nil, fullApps.isEmpty { return .take }
        guard let job = JobRow.Glance(key, value, at: time) else { return pile == nil ? .take : .pass }
        if let pile, pile.app != job.app { return .pass }
        // A job that is over or neither due nor leased takes no room.
        guard job.isWaiting else { return pile == nil ? .take : .pass }
        if let pile, pile.kind != .held, pile.kind != job.pile { return .pass }
        let until = job.mayWait(vendorTimeout)
        if until <= time || pile?.kind == .held || !fullApps.contains(job.app) { return .take }
        return .leave(AlarmPile(app: job.app, kind: job.pile), until: until)
    }

    /// The row that has taken over a row's alarm, if it exists: a message's job, which has an alarm of its own.
    ///
    /// `nil`: none can have. Runs on a reader's thread, too.
    public func successor(of key: StoreKey, _ value: UnsafeRawBufferPointer) -> StoreKey? {
        guard key.table == .message || key.table == .vendorMessage, !ignoresSuccessors, let row = MessageRow(value)
        else { return nil }
        let facts = row.facts(cid: DeviceID(high: key.ownerHigh, low: key.ownerLow), table: key.table, item: key.item)
        // A message whose time is over ends, whatever its job's row says.
        return facts.hasDueJob(at: time) && facts.expiresAt > time ? facts.jobKey : nil
    }
}

extension JobRow {
    /// Until when a job may stay in the store without room in memory: then its message ends, or goes to the live
    /// channel.
    func mayWait(_ timeout: Int64) -> GatewayTime {
        Self.mayWait(facts.expiresAt, hasVendorTimeout ? max(facts.acceptedAt, dueAt) : nil, timeout)
    }

    /// The vendor has failed when no sender leases the job in time.
    var hasVendorTimeout: Bool { state == .due && facts.strategy.mustBeLeasedInTime(in: facts.table) }

    /// The pile for this job while it is due.
    var pile: AlarmPile { AlarmPile(app: facts.app, kind: facts.strategy.pile(in: facts.table)) }

    fileprivate static func mayWait(_ expiresAt: GatewayTime, _ since: GatewayTime?, _ timeout: Int64) -> GatewayTime {
        guard let since else { return expiresAt }
        let (end, isBeyond) = since.addingReportingOverflow(timeout)
        return isBeyond ? expiresAt : min(expiresAt, end)
    }

    /// What a reader needs to know of a job.
    struct Glance {
        var app: AppKey
        /// Due, or leased: it is due when the lease lapses.
        var isWaiting: Bool
        private var expiresAt: GatewayTime
        /// The pile for it.
        var pile = AlarmPile.Kind.due
        private var waitsForVendorSince: GatewayTime?

        /// A job by its own row, or by the row of its message; `nil` for a row without a job.
        init?(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, at time: GatewayTime) {
            switch key.table {
            case .job where bytes.first == JobRow.version:
                var reader = RowReader(UnsafeRawBufferPointer(rebasing: bytes.dropFirst()))
                guard let head = Head(&reader) else { return nil }
                (app, expiresAt) = (head.app, head.expiresAt)
                isWaiting = head.state == .due || head.state == .leased
                guard head.state == .due else { return }
                wait(head.strategy, in: head.table, since: max(head.acceptedAt, head.dueAt))
            case .job:
                guard bytes.count >= JobRow.firstByteCount, bytes[0] == JobRow.firstVersion,
                    let state = State(rawValue: bytes[1])
                else { return nil }
                // What rows of the first version have at these places.
                app = AppKey(Self.word(bytes, 56))
                isWaiting = state == .due || state == .leased
                expiresAt = Int64(bitPattern: Self.word(bytes, 80))
                guard state == .due, let table = StoreKey.Table(rawValue: bytes[5]) else { return }
                let since = max(Int64(bitPattern: Self.word(bytes, 72)), Int64(bitPattern: Self.word(bytes, 120)))
                wait(Strategy(stored: bytes[3]), in: table, since: since)
            case .message, .vendorMessage:
                guard let row = MessageRow(bytes) else { return nil }
                let facts = row.facts(cid: .none, table: key.table, item: key.item)
                guard facts.hasDueJob(at: time) else { return nil }
                (app, isWaiting, expiresAt) = (facts.app, true, facts.expiresAt)
                wait(facts.strategy, in: facts.table, since: facts.jobDueAt)
            default: return nil
            }
        }

        private mutating func wait(_ strategy: Strategy, in table: StoreKey.Table, since time: GatewayTime) {
            pile = strategy.pile(in: table)
            if strategy.mustBeLeasedInTime(in: table) { waitsForVendorSince = time }
        }

        private static func word(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> UInt64 {
            UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        }

        func mayWait(_ timeout: Int64) -> GatewayTime { JobRow.mayWait(expiresAt, waitsForVendorSince, timeout) }
    }
}
