internal import Glibc

/// What one network address may do; 0: no bound.
package struct AddressRules: Sendable, Equatable {
    /// Connections at once.
    package var connections: Int
    /// New connections a second.
    package var arrivalsPerSecond: Int
    package var requestsPerSecond: Int
    /// Bytes of requests' bodies a second.
    package var requestBytesPerSecond: Int

    package init(
        connections: Int = 0, arrivalsPerSecond: Int = 0, requestsPerSecond: Int = 0, requestBytesPerSecond: Int = 0
    ) {
        (self.connections, self.arrivalsPerSecond) = (connections, arrivalsPerSecond)
        (self.requestsPerSecond, self.requestBytesPerSecond) = (requestsPerSecond, requestBytesPerSecond)
    }
}

/// Why an address was refused, and when it may come back, in milliseconds.
package struct AddressRefusal: Sendable, Equatable {
    package enum Kind: Int, Sendable, CaseIterable {
        case connections, arrivals, requests, bytes

        /// As metrics and the log name it.
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

    /// Whole seconds, rounded up, as the header `Retry-After` has it.
    package var retryAfterSeconds: Int { Int(least + 999) / 1_000 }
}

/// What network addresses do now: a fixed table, so that a crowd of addresses fills no memory.
///
/// An address is an IPv4 address, or an IPv6 network of 64 bits (`SocketAddress.network`). A table of sets: an address has its
/// place in one set of eight. A set that is full forgets the entry with the fewest connections, of these the one that was heard of
/// longest ago. So who has many connections is not forgotten, and who is forgotten begins anew and is let in: the book never
/// refuses a calm address because others are not.
///
/// A rate is kept as the moment at which all that was granted is paid for; a moment further ahead than the burst refuses.
///
/// A value that does no I/O; times are a loop's milliseconds, which may be a moment behind those of another loop.
struct AddressLimiter: ~Copyable {
    private struct Entry {
        /// 0: nobody's.
        var network: UInt64
        /// In milliseconds.
        var seenAt: UInt64
        /// When what was granted is paid for, in microseconds.
        var arrivalsPaidAt: UInt64
        /// The same of HTTP connections: a client without keep-alive leaves an address's devices theirs.
        var httpArrivalsPaidAt: UInt64
        var requestsPaidAt: UInt64
        var bytesPaidAt: UInt64
        /// When those may come that were sent away, in microseconds.
        var slotAt: UInt64
        var connections: Int
    }

    private static let wayCount = 8
    private let setCount: Int
    // Zeroed by the system: pages that nobody needs are not there.
    private let entries: UnsafeMutablePointer<Entry>

    /// How many addresses have a place.
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

    /// Counts a connection in, or says why not; after a yes `leave` is owed.
    mutating func arrive(_ network: UInt64, _ rules: AddressRules, isHTTP: Bool = false, now: UInt64) -> AddressRefusal?
    {
        let entry = entry(of: network, now: now)
        if rules.connections > 0, entry.pointee.connections >= rules.connections {
            return AddressRefusal(
                kind: .connections, least: Limits.addressFullMilliseconds, most: 2 * Limits.addressFullMilliseconds)
        }
        // A slot is for devices; an HTTP client waits its second.
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

    /// A connection that was counted in is over; nothing is taken from an address that was forgotten.
    ///
    /// One that was forgotten and has come again cannot tell its earlier connections from its later ones: their ends take from the new
    /// count, so the address may have as many more.
    mutating func leave(_ network: UInt64) {
        guard let entry = find(network), entry.pointee.connections > 0 else { return }
        entry.pointee.connections -= 1
    }

    func connectionCount(of network: UInt64) -> Int { find(network)?.pointee.connections ?? 0 }

    // MARK: Requests

    /// Counts a request with its body, or says why not.
    ///
    /// Of bytes the last request may have more than is left; the address pays for it before its next one. One that is refused while
    /// the address pays counts nothing. One that is refused for its number has been read, and its bytes count.
    mutating func request(
        _ network: UInt64, byteCount: Int, _ rules: AddressRules, now: UInt64
    ) -> AddressRefusal? {
        guard rules.requestsPerSecond > 0 || rules.requestBytesPerSecond > 0 else { return nil }
        let entry = entry(of: network, now: now)
        if let refusal = Self.debt(entry.pointee.bytesPaidAt, rules, now: now) { return refusal }
        // Requests come on connections that are open: a client waits its second and goes on, so nobody needs a slot.
        var slot: UInt64 = 0
        let refusal = Self.take(&entry.pointee.requestsPaidAt, &slot, rules.requestsPerSecond, .requests, now: now)
        guard rules.requestBytesPerSecond > 0, byteCount > 0 else { return refusal }
        let (now, rate) = (now * 1_000, UInt64(rules.requestBytesPerSecond))
        // No body is so large that the product would not fit.
        let price = UInt64(min(byteCount, 1 << 40)) * 1_000_000 / rate
        entry.pointee.bytesPaidAt = min(
            max(entry.pointee.bytesPaidAt, now) + price, now + Limits.addressDebtMilliseconds * 1_000)
        return refusal
    }

    /// Whether an address still pays for bytes; counts nothing, and makes nobody an entry.
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
        // Those who are sent away come one after the other, behind what is granted already.
        slotAt = min(max(slotAt, next) + price, now + UInt64(Limits.addressLongestMilliseconds) * 1_000)
        let least = max(Limits.addressLeastMilliseconds, UInt32(clamping: (slotAt - now) / 1_000))
        return AddressRefusal(kind: kind, least: least, most: min(2 * least, Limits.addressLongestMilliseconds * 2))
    }

    // MARK: Places

    private func places(of network: UInt64) -> Range<Int> {
        // Seeded anew in each process, so that nobody chooses addresses that meet in one set.
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

    /// The address's entry, made in another's place if need be.
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
