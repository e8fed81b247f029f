package import Wire

/// The content of stored rows, for external checkers: the simulation and the crash tests; the gateway does not use this.
package enum RowInspection {
    package struct Message {
        package var message: MessageID
        package var strategy: Strategy
        package var isOffline: Bool
        package var isArmed: Bool
        package var acceptedAt: GatewayTime
        package var expiresAt: GatewayTime
        package var fallbackAt: GatewayTime
        package var byteCount: Int
    }

    package struct Job {
        package enum State: UInt8, Sendable { case due = 1, leased, accepted, rejected, exhausted, cancelled }
        package var message: MessageID
        package var state: State
        package var attempts: Int
        package var lease: (UInt64, UInt64)
        package var leasedUntil: GatewayTime
        package var settledLease: (UInt64, UInt64)
        package var settledOutcome: UInt8
        package var badgeApplied: Bool
        /// The `badgeRound` of the badge change, and whether the change was reverted.
        package var badgeRound: UInt8
        package var isBadgeTakenBack: Bool
        package var isCollapsed: Bool
        package var alertedAt: GatewayTime
    }

    package struct Trace {
        package var message: MessageID
        package var finalState: FinalState
        package var isOffline: Bool
        package var settledLease: (UInt64, UInt64)
        package var settledOutcome: UInt8
        package var reason: String
        /// See `Job`.
        package var isBadgeTakenBack: Bool
    }

    package struct Ledger {
        package var message: MessageID
        package var cid: DeviceID
        package var isBroadcast: Bool
        package var number: UInt64
        package var finalState: FinalState?
        package var isLive: Bool
        package var acceptedAt: GatewayTime
        /// Whether this was the first acked message of a task with `firstAckWins`.
        package var isFirstAck: Bool
        package var isAlerted: Bool
    }

    package struct Device {
        package var app: AppKey
        package var generation: UInt64
        package var lastTimestamp: UInt64
        package var reservedSequence: UInt64
        package var queueEpoch: UInt64
        package var badge: Int32
        package var badgeRound: UInt8
        package var pushModeOff: Bool
        package var isBlacklisted: Bool
        package var alias: AliasName?
        package var tags: [TagName]
        /// The APNs alert tokens that are not quarantined.
        package var tokens: [String]
        /// The tokens that a sender reported as bad.
        package var quarantined: [String]
    }

    package static func message(_ bytes: UnsafeRawBufferPointer) -> Message? {
        guard let row = unsafe MessageRow(bytes) else { return nil }
        let facts = row.facts(cid: .none, table: .message, item: 0)
        return Message(
            message: facts.message, strategy: facts.strategy, isOffline: facts.flags.contains(.offline),
            isArmed: facts.flags.contains(.isArmed), acceptedAt: facts.acceptedAt, expiresAt: facts.expiresAt,
            fallbackAt: facts.fallbackAt, byteCount: Int(facts.byteCount))
    }

    package static func ledger(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) -> Ledger? {
        guard let row = unsafe LedgerRow(bytes) else { return nil }
        return Ledger(
            message: MessageID(bucket: key.bucket, acceptedAt: row.acceptedAt, digest: key.item), cid: row.cid,
            isBroadcast: row.table == .broadcast, number: row.item, finalState: row.state,
            isLive: row.flags.contains(.live), acceptedAt: row.acceptedAt, isFirstAck: row.flags.contains(.firstAck),
            isAlerted: row.flags.contains(.alerted))
    }

    package static func job(_ bytes: UnsafeRawBufferPointer) -> Job? {
        guard let row = unsafe JobRow(bytes), let state = Job.State(rawValue: row.state.rawValue) else { return nil }
        return Job(
            message: row.facts.message, state: state, attempts: Int(row.attempts), lease: row.lease,
            leasedUntil: row.leasedUntil, settledLease: row.settledLease, settledOutcome: row.settledOutcome,
            badgeApplied: row.badgeApplied, badgeRound: row.badgeRound, isBadgeTakenBack: row.isBadgeTakenBack,
            isCollapsed: row.isCollapsed, alertedAt: row.alertedAt)
    }

    /// Returns the trace of a row; `nil` for a late event and for an invalid row.
    package static func trace(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) -> Trace? {
        guard lateEvent(key) == nil, let row = unsafe TraceRow(bytes, of: tracedMessage(key)) else { return nil }
        return Trace(
            message: row.facts.message, finalState: row.finalState, isOffline: row.isOffline,
            settledLease: row.settledLease, settledOutcome: row.settledOutcome, reason: row.reason,
            isBadgeTakenBack: row.isBadgeTakenBack)
    }

    package static func device(_ bytes: UnsafeRawBufferPointer) -> Device? {
        guard let (row, rest) = unsafe DeviceRow.read(bytes), let profile = unsafe DeviceProfile(rest) else {
            return nil
        }
        return Device(
            app: row.app, generation: row.generation, lastTimestamp: row.lastTimestamp,
            reservedSequence: row.reservedSequence, queueEpoch: row.queueEpoch, badge: row.badge,
            badgeRound: row.badgeRound,
            pushModeOff: row.flags.contains(.pushModeOff), isBlacklisted: row.flags.contains(.blacklisted),
            alias: profile.names.alias(ofType: 0)?.name, tags: profile.names.tags,
            tokens: profile.tokens.filter { $0.kind == .alert && !$0.isQuarantined }.map(
                \.token),
            quarantined: profile.tokens.filter(\.isQuarantined).map(\.token))
    }

    /// Returns the event of a late event's row; `nil` for a trace.
    package static func lateEvent(_ key: StoreKey) -> TraceEvent? {
        let index = Int(key.ownerHigh >> 60)
        return index > 0 && index <= LateEventRow.events.count ? LateEventRow.events[index - 1] : nil
    }

    package static func tracedMessage(_ key: StoreKey) -> MessageID {
        MessageID(high: key.ownerHigh & ~(15 << 60), low: key.ownerLow)
    }
}
