internal import Delivery

/// Lease questions that ended without an answer.
///
/// A partition may have leased jobs that no caller received, for example if a link between gateways broke. Each partition is asked
/// for them, so that they become due again before the lease expires.
struct LostLeases {
    struct Lease {
        var partition: Int
        var key: LeaseKey
        /// The end of the lease, in monotonic milliseconds.
        var until: Int64
        fileprivate var isAsked = false

        init(_ partition: Int, _ key: LeaseKey, until: Int64) {
            (self.partition, self.key, self.until) = (partition, key, until)
        }
    }

    /// The most leases kept; jobs of a lease beyond them wait until it expires.
    static let limit = 1_024

    private var leases: [Lease] = []

    var isAnyAsked: Bool { leases.contains(where: \.isAsked) }

    mutating func add(_ lease: Lease, now: Int64) {
        guard lease.until > now, leases.count < Self.limit else { return }
        leases.append(lease)
    }

    /// Returns the next questions, one for each partition that has none under way; forgets expired leases.
    mutating func questions(now: Int64) -> [(partition: Int, leases: [LeaseKey])] {
        leases.removeAll { $0.until <= now }
        guard !leases.isEmpty else { return [] }
        var busy: Set<Int> = []
        for lease in leases where lease.isAsked { busy.insert(lease.partition) }
        var questions: [Int: [LeaseKey]] = [:]
        for index in leases.indices where !busy.contains(leases[index].partition) {
            guard questions[leases[index].partition, default: []].count < LeasedJobsQuery.leaseLimit else { continue }
            questions[leases[index].partition, default: []].append(leases[index].key)
            leases[index].isAsked = true
        }
        return questions.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    /// Ends a question; without an answer the partition is asked again.
    mutating func end(_ partition: Int, _ keys: [LeaseKey], isAnswered: Bool) {
        if isAnswered {
            leases.removeAll { $0.partition == partition && keys.contains($0.key) }
        } else {
            for index in leases.indices where leases[index].partition == partition { leases[index].isAsked = false }
        }
    }
}
