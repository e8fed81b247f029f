internal import Delivery

/// Remembers the Hellos that were proven with a secret of many: registrations and senders.
///
/// A device's own Hello needs none of this: its timestamp must exceed the device's last. Registrations and senders have no
/// such last, so each of their proofs is taken once. A proof covers the timestamp, which must lie within the clock's
/// tolerance; so a proof can be forgotten when its timestamp has left the tolerance, and nothing as old is taken from then
/// on. A Hello from before the process's start is refused, because an earlier process may have taken it.
struct ReplayGuard: ~Copyable {
    enum Verdict: Equatable {
        case fresh
        /// Too far off the gateway's clock, older than the process, or taken before: the client corrects its clock and
        /// comes again with another timestamp.
        case stale
        /// As many proofs as may be remembered: the client comes back later.
        case full
    }

    /// Proofs remembered at most: 17,000 registrations a second at the default tolerance, some 40 MB.
    static let proofLimit = 1 << 21
    static let staleReason: StaticString =
        "the timestamp is too far from server_time, or this Hello was sent before: send a new one"
    static let fullReason: StaticString = "too many registrations at once; come back later"
    /// Proofs are forgotten a minute's worth at a time.
    private static let span: Int64 = 60_000

    /// Proofs of before are taken no more: an earlier process may have taken them, or they were forgotten.
    private var notBefore: GatewayTime
    private let limit: Int
    /// The first eight bytes of proofs, by the minute of their timestamp.
    ///
    /// Without the secret nobody can choose them.
    private var minutes: [Int64: Set<UInt64>] = [:]
    private(set) var count = 0

    init(startedAt: GatewayTime, limit: Int = ReplayGuard.proofLimit) {
        (notBefore, self.limit) = (startedAt, limit)
    }

    /// Takes a proof that was verified, once; what is older than `servedSince` another gateway may have taken.
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
        // Also under a tolerance that a reload has made larger.
        notBefore = max(notBefore, oldest * Self.span)
        // A handful of minutes; nearly always none of them is over.
        for (minute, proofs) in minutes where minute < oldest {
            count -= proofs.count
            minutes[minute] = nil
        }
    }
}
