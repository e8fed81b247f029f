internal import Delivery

/// Replay protection for Hellos proven with a shared secret: registrations and senders.
///
/// A device's own Hello needs no such protection, because its timestamp must exceed the device's previous one. Registrations and
/// senders have no previous timestamp, so each proof is accepted once. A proof covers its timestamp, which must be within the
/// clock tolerance. A proof is therefore forgotten once its timestamp is outside the tolerance. Hellos from before the process's
/// start are refused, because an earlier process may have accepted them.
struct ReplayGuard: ~Copyable {
    enum Verdict: Equatable {
        case fresh
        /// The timestamp is outside the tolerance or before the process's start, or the proof was used before.
        ///
        /// The client corrects its clock and retries with a new timestamp.
        case stale
        /// The table is full; the client retries later.
        case full
    }

    /// The capacity: 17,000 registrations a second at the default tolerance, in about 40 MB.
    static let proofLimit = 1 << 21
    static let staleReason: StaticString =
        "the timestamp is too far from server_time, or this Hello was sent before: send a new one"
    static let fullReason: StaticString = "too many registrations at once; retry later"
    /// The span, in milliseconds, of a group of proofs that expire together.
    private static let span: Int64 = 60_000

    /// The earliest accepted timestamp; older proofs were forgotten, or an earlier process may have accepted them.
    private var notBefore: GatewayTime
    private let limit: Int
    /// The first eight bytes of each proof, grouped by the minute of its timestamp; a client without the secret cannot choose
    /// proofs that collide.
    private var minutes: [Int64: Set<UInt64>] = [:]
    private(set) var count = 0

    init(startedAt: GatewayTime, limit: Int = ReplayGuard.proofLimit) {
        (notBefore, self.limit) = (startedAt, limit)
    }

    /// Accepts a verified proof once; proofs from before `servedSince` are refused, because another gateway may have accepted
    /// them.
    mutating func take(
        _ proof: [UInt8], timestamp: UInt64, now: GatewayTime, tolerance: Int64, servedSince: GatewayTime = 0
    ) -> Verdict {
        let time = Int64(clamping: timestamp)
        let skew = time.subtractingReportingOverflow(now)
        guard !skew.overflow, skew.partialValue.magnitude <= tolerance.magnitude,
            time >= max(notBefore, servedSince)
        else {
            return .stale
        }
        forget(before: now - tolerance)
        let word = proof.prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        guard minutes[time / Self.span]?.contains(word) != true else { return .stale }
        guard count < limit else { return .full }
        minutes[time / Self.span, default: []].insert(word)
        count += 1
        return .fresh
    }

    private mutating func forget(before time: GatewayTime) {
        let oldest = time / Self.span
        // `notBefore` refuses forgotten proofs even if a later reload increases the tolerance.
        notBefore = max(notBefore, oldest * Self.span)
        // The dictionary holds only a few minutes, and usually none has expired.
        for (minute, proofs) in minutes where minute < oldest {
            count -= proofs.count
            minutes[minute] = nil
        }
    }
}
