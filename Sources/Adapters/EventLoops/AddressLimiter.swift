internal import Glibc

/// The limits of one network address; 0 means no limit.
package struct AddressRules: Sendable, Equatable {
    package var connections: Int
    package var arrivalsPerSecond: Int
    package var requestsPerSecond: Int
    package var requestBytesPerSecond: Int

    package init(
        connections: Int = 0, arrivalsPerSecond: Int = 0, requestsPerSecond: Int = 0, requestBytesPerSecond: Int = 0
    ) {
        (self.connections, self.arrivalsPerSecond) = (connections, arrivalsPerSecond)
        (self.requestsPerSecond, self.requestBytesPerSecond) = (requestsPerSecond, requestBytesPerSecond)
    }
}

/// The reason for refusing an address and the range of its retry delay in milliseconds.
package struct AddressRefusal: Sendable, Equatable {
    package enum Kind: Int, Sendable, CaseIterable {
        case connections, arrivals, requests, bytes

        package var label: String {
            switch self {
            case .connections: "connections"
            case .arrivals: "newConnections"
            case .requests: "requests"
            case .bytes: "requestBytes"
            }
        }
    }

    package let kind: Kind
    package let least: UInt32
    package let most: UInt32

    /// The retry delay in seconds, rounded up, for the header `Retry-After`.
    package var retryAfterSeconds: Int { Int(least + 999) / 1_000 }
}

/// The rate limits of network addresses, in a table of fixed size, so that many addresses cannot exhaust memory.
///
/// An address is an IPv4 address or an IPv6 network of 64 bits (`SocketAddress.network`). The table is 8-way set associative: a
/// full set evicts the entry with the fewest connections and, among these, the least recently seen. An address with many
/// connections therefore keeps its entry. An evicted address starts again without a history, so a quiet address is never refused
/// because of others.
///
/// A rate is stored as the time until which the granted work is covered. A request is refused if this time is further ahead than
/// the burst.
///
/// The type performs no I/O. Times are in a loop's milliseconds, which may lag slightly behind those of another loop.
struct AddressLimiter: ~Copyable {
    private struct Entry {
        /// The address, or 0 for a free entry.
        var network: UInt64
        /// The last use in milliseconds.
        var seenAt: UInt64
        /// The time until which granted connections are covered, in microseconds.
        var arrivalsPaidAt: UInt64
        /// The same time for HTTP connections, so that a client without keep-alive does not use up the rate of devices behind the
        /// same address.
        var httpArrivalsPaidAt: UInt64
        var requestsPaidAt: UInt64
        var bytesPaidAt: UInt64
        /// The retry time given to the last refused connection, in microseconds.
        var slotAt: UInt64
        var connections: Int
    }

    private static let wayCount = 8
    private let setCount: Int
    // Zeroed by the system, so unused pages take no memory.
    private let entries: UnsafeMutablePointer<Entry>

    var capacity: Int { setCount * Self.wayCount }

    /// - Parameter setCount: a power of two.
    init(setCount: Int = Limits.addressSetCount) {
        precondition(setCount > 0 && setCount & (setCount - 1) == 0, "sets of addresses are a power of two")
        self.setCount = setCount
        guard let memory = calloc(setCount * Self.wayCount, MemoryLayout<Entry>.stride) else {
            preconditionFailure("no memory for the book of addresses")
        }
        entries = memory.bindMemory(to: Entry.self, capacity: setCount * Self.wayCount)
    }

    deinit { free(entries) }

    // MARK: Connections

    /// Counts a connection or returns a refusal; a counted connection requires a call of `leave`.
    mutating func arrive(_ network: UInt64, _ rules: AddressRules, isHTTP: Bool = false, now: UInt64) -> AddressRefusal?
    {
        let entry = entry(of: network, now: now)
        if rules.connections > 0, entry.pointee.connections >= rules.connections {
            return AddressRefusal(
                kind: .connections, least: Limits.addressFullMilliseconds, most: 2 * Limits.addressFullMilliseconds)
        }
        // Only devices get successive retry times (`slotAt`). HTTP clients retry independently.
        var noSlot: UInt64 = 0
        let refusal =
            isHTTP
            ? Self.take(
                &entry.pointee.httpArrivalsPaidAt, &noSlot, rules.arrivalsPerSecond, .arrivals, now: now)
            : Self.take(
                &entry.pointee.arrivalsPaidAt, &entry.pointee.slotAt, rules.arrivalsPerSecond, .arrivals, now: now)
        if let refusal { return refusal }
        entry.pointee.connections += 1
        return nil
    }

    /// Counts the end of a connection.
    ///
    /// Has no effect for an evicted address. If an evicted address has returned, the ends of its earlier connections reduce the
    /// new count. The address may then exceed its limit by as many connections.
    mutating func leave(_ network: UInt64) {
        guard let entry = find(network), entry.pointee.connections > 0 else { return }
        entry.pointee.connections -= 1
    }

    func connectionCount(of network: UInt64) -> Int { find(network)?.pointee.connections ?? 0 }

    // MARK: Requests

    /// Counts a request with its body or returns a refusal.
    ///
    /// A body may exceed the remaining byte rate, which delays the address's next request. A request refused for the byte rate is
    /// not counted. The bytes of a request refused for the request rate are counted, because they have been read.
    mutating func request(
        _ network: UInt64, byteCount: Int, _ rules: AddressRules, now: UInt64
    ) -> AddressRefusal? {
        guard rules.requestsPerSecond > 0 || rules.requestBytesPerSecond > 0 else { return nil }
        let entry = entry(of: network, now: now)
        if let refusal = Self.debt(entry.pointee.bytesPaidAt, rules, now: now) { return refusal }
        // Successive retry times are not needed for requests, because their clients wait on open connections.
        var slot: UInt64 = 0
        let refusal = Self.take(&entry.pointee.requestsPaidAt, &slot, rules.requestsPerSecond, .requests, now: now)
        guard rules.requestBytesPerSecond > 0, byteCount > 0 else { return refusal }
        let (now, rate) = (now * 1_000, UInt64(rules.requestBytesPerSecond))
        // The bound prevents an overflow of the product.
        let price = UInt64(min(byteCount, 1 << 40)) * 1_000_000 / rate
        entry.pointee.bytesPaidAt = min(
            max(entry.pointee.bytesPaidAt, now) + price, now + Limits.addressDebtMilliseconds * 1_000)
        return refusal
    }

    /// Returns a refusal if the address is over its byte rate; counts nothing and creates no entry.
    func bodyRefusal(_ network: UInt64, _ rules: AddressRules, now: UInt64) -> AddressRefusal? {
        find(network).flatMap { Self.debt($0.pointee.bytesPaidAt, rules, now: now) }
    }

    private static func debt(_ paidAt: UInt64, _ rules: AddressRules, now: UInt64) -> AddressRefusal? {
        let covered = (now + Limits.addressBurstMilliseconds) * 1_000
        guard rules.requestBytesPerSecond > 0, paidAt > covered else { return nil }
        let least = max(Limits.addressLeastMilliseconds, UInt32(clamping: (paidAt - covered + 999) / 1_000))
        return AddressRefusal(kind: .bytes, least: least, most: 2 * least)
    }

    private static func take(
        _ paidAt: inout UInt64, _ slotAt: inout UInt64, _ rate: Int, _ kind: AddressRefusal.Kind, now: UInt64
    ) -> AddressRefusal? {
        guard rate > 0 else { return nil }
        let (now, price) = (now * 1_000, max(1, 1_000_000 / UInt64(rate)))
        let next = max(paidAt, now) + price
        if next <= now + Limits.addressBurstMilliseconds * 1_000 {
            paidAt = next
            return nil
        }
        // Refused clients get successive retry times after the work already granted.
        slotAt = min(max(slotAt, next) + price, now + UInt64(Limits.addressLongestMilliseconds) * 1_000)
        let least = max(Limits.addressLeastMilliseconds, UInt32(clamping: (slotAt - now) / 1_000))
        return AddressRefusal(kind: kind, least: least, most: min(2 * least, Limits.addressLongestMilliseconds * 2))
    }

    // MARK: Places

    private func places(of network: UInt64) -> Range<Int> {
        // The hash is seeded per process, so that clients cannot choose addresses that collide in one set.
        var hasher = Hasher()
        hasher.combine(network)
        let set = hasher.finalize() & (setCount - 1)
        return set * Self.wayCount..<(set + 1) * Self.wayCount
    }

    private func find(_ network: UInt64) -> UnsafeMutablePointer<Entry>? {
        guard network != 0 else { return nil }
        for place in places(of: network) where entries[place].network == network { return entries + place }
        return nil
    }

    /// Returns the address's entry; a new entry may evict another one.
    private mutating func entry(of network: UInt64, now: UInt64) -> UnsafeMutablePointer<Entry> {
        var calmest = entries + places(of: network).lowerBound
        for place in places(of: network) {
            let one = entries + place
            if one.pointee.network == network {
                one.pointee.seenAt = max(one.pointee.seenAt, now)
                return one
            }
            if (one.pointee.connections, one.pointee.seenAt) < (calmest.pointee.connections, calmest.pointee.seenAt) {
                calmest = one
            }
        }
        calmest.pointee = Entry(
            network: network, seenAt: now, arrivalsPaidAt: 0, httpArrivalsPaidAt: 0, requestsPaidAt: 0, bytesPaidAt: 0,
            slotAt: 0, connections: 0)
        return calmest
    }
}
