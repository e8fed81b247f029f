/// Leases whose answers were lost, usually with a link between gateways.
///
/// Their partitions may have leased jobs that no caller received. Each partition is asked for these until it answers, so that
/// they become due again before the lease expires.
struct LostLeases {
    struct Lease {
        var partition: Int
        var leaseID: (UInt64, UInt64)
        /// The end of the lease, in monotonic milliseconds.
        var until: Int64
    }

    /// The most leases kept; jobs of a lease beyond it wait until it expires.
    static let limit = 1_024

    private var waiting: [Lease] = []

    mutating func add(_ lease: Lease, now: Int64) {
        guard lease.until > now, waiting.count < Self.limit else { return }
        waiting.append(lease)
    }

    /// Removes and returns all leases, to ask for their jobs.
    mutating func takeAll() -> [Lease] {
        let taken = waiting
        waiting = []
        return taken
    }
}
