import Glibc
import Testing

@testable import EventLoops

/// A reference to a limiter, because test macros copy the values that they inspect.
private final class HeldLimiter {
    private var book: AddressLimiter
    init(setCount: Int) { book = AddressLimiter(setCount: setCount) }
    var capacity: Int { book.capacity }
    func arrive(_ network: UInt64, _ rules: AddressRules, isHTTP: Bool = false, now: UInt64) -> AddressRefusal? {
        book.arrive(network, rules, isHTTP: isHTTP, now: now)
    }
    func request(_ network: UInt64, byteCount: Int = 0, _ rules: AddressRules, now: UInt64) -> AddressRefusal? {
        book.request(network, byteCount: byteCount, rules, now: now)
    }
    func bodyRefusal(_ network: UInt64, _ rules: AddressRules, now: UInt64) -> AddressRefusal? {
        book.bodyRefusal(network, rules, now: now)
    }
    func leave(_ network: UInt64) { book.leave(network) }
    func connectionCount(of network: UInt64) -> Int { book.connectionCount(of: network) }
}

@Suite struct AddressLimiterTests {
    private static let rules = AddressRules(connections: 3, arrivalsPerSecond: 10, requestsPerSecond: 100)

    @Test func connectionsAtOnceAreBoundAndCountedDown() {
        let book = HeldLimiter(setCount: 1)
        let rules = AddressRules(connections: 3)
        for _ in 0..<3 { #expect(book.arrive(7, rules, now: 1_000) == nil) }
        #expect(book.arrive(7, rules, now: 1_000)?.kind == .connections)
        // Another address is not affected.
        #expect(book.arrive(8, rules, now: 1_000) == nil)
        book.leave(7)
        #expect(book.connectionCount(of: 7) == 2)
        #expect(book.arrive(7, rules, now: 1_000) == nil)
    }

    @Test func newConnectionsHaveABurstAndThenTheRate() {
        let book = HeldLimiter(setCount: 1)
        let rules = AddressRules(arrivalsPerSecond: 10)
        // A burst of two seconds' worth.
        for _ in 0..<20 { #expect(book.arrive(7, rules, now: 5_000) == nil) }
        #expect(book.arrive(7, rules, now: 5_000)?.kind == .arrivals)
        #expect(book.arrive(7, rules, now: 5_099)?.kind == .arrivals)
        #expect(book.arrive(7, rules, now: 5_100) == nil)
        // A loop whose time lags behind takes no tokens twice.
        #expect(book.arrive(7, rules, now: 5_050)?.kind == .arrivals)
        for _ in 0..<20 { #expect(book.arrive(7, rules, now: 60_000) == nil) }
    }

    @Test func thoseWhoAreSentAwayComeBackOneAfterTheOther() throws {
        let book = HeldLimiter(setCount: 1)
        let rules = AddressRules(arrivalsPerSecond: 10)
        var slots: [AddressRefusal] = []
        for _ in 0..<600 {
            guard let refusal = book.arrive(7, rules, now: 1_000) else { continue }
            slots.append(refusal)
        }
        #expect(slots.count == 580)
        #expect(zip(slots, slots.dropFirst()).allSatisfy { $0.least <= $1.least })
        let (first, last) = (try #require(slots.first), try #require(slots.last))
        #expect(first.least >= Limits.addressLeastMilliseconds && first.retryAfterSeconds >= 1)
        // 580 at ten a second would take a minute, but the delay is capped.
        #expect(9_000...10_000 ~= last.least)
        #expect(last.most <= 2 * Limits.addressLongestMilliseconds)
        // The debt is dropped after `quietPeriod`.
        #expect(book.arrive(7, rules, now: 300_000) == nil)
        for _ in 0..<30 { _ = book.arrive(7, rules, now: 300_000) }
        #expect(try #require(book.arrive(7, rules, now: 300_000)).least < 5_000)
    }

    @Test func newHTTPConnectionsLeaveDevicesTheirs() throws {
        let book = HeldLimiter(setCount: 1)
        let rules = AddressRules(arrivalsPerSecond: 10)
        // A client without keep-alive that does not stop.
        for _ in 0..<20 { #expect(book.arrive(7, rules, isHTTP: true, now: 1_000) == nil) }
        for _ in 0..<1_000 {
            #expect(try #require(book.arrive(7, rules, isHTTP: true, now: 1_000)).retryAfterSeconds <= 3)
        }
        for _ in 0..<20 { #expect(book.arrive(7, rules, now: 1_000) == nil) }
        // The refusals of HTTP requests do not delay devices.
        #expect(try #require(book.arrive(7, rules, now: 1_000)).least < 3_000)
    }

    @Test func requestsAreBoundApartFromConnections() {
        let book = HeldLimiter(setCount: 1)
        var granted = 0
        for _ in 0..<1_000 where book.request(7, Self.rules, now: 1_000) == nil { granted += 1 }
        #expect(granted == 200)
        #expect(book.request(7, Self.rules, now: 1_000)?.kind == .requests)
        #expect(book.arrive(7, Self.rules, now: 1_000) == nil)
        #expect(book.request(7, AddressRules(), now: 1_000) == nil)
    }

    @Test func bytesOfRequestsArePaidForBeforeTheNextOne() throws {
        let book = HeldLimiter(setCount: 1)
        let rules = AddressRules(requestsPerSecond: 1_000, requestBytesPerSecond: 1_000)
        // A lookup creates no entry.
        #expect(book.bodyRefusal(7, rules, now: 1_000) == nil)
        // A burst of two seconds' worth. The last request may exceed the remainder.
        #expect(book.request(7, byteCount: 2_000, rules, now: 1_000) == nil)
        #expect(book.request(7, byteCount: 3_000, rules, now: 1_000) == nil)
        let refusal = try #require(book.request(7, byteCount: 1, rules, now: 1_000))
        #expect(refusal.kind == .bytes && refusal.retryAfterSeconds == 3)
        #expect(book.bodyRefusal(7, rules, now: 1_000) == refusal)
        #expect(book.request(7, byteCount: 0, rules, now: 3_999)?.retryAfterSeconds == 1)
        // Refused requests count nothing, and another address is not affected.
        #expect(book.request(8, byteCount: 2_000, rules, now: 1_000) == nil)
        #expect(book.request(7, byteCount: 1, rules, now: 4_000) == nil)
        #expect(book.bodyRefusal(7, rules, now: 4_000)?.kind == .bytes)
        // One body far above the limit is charged for a minute at most.
        #expect(book.request(7, byteCount: 8 << 20, rules, now: 100_000) == nil)
        #expect(book.request(7, rules, now: 100_000)?.retryAfterSeconds == 58)
        #expect(book.request(7, byteCount: 1, rules, now: 158_000) == nil)
        // A request refused for its number was read, so its bytes count. Without a byte limit nothing is charged.
        let few = AddressRules(requestsPerSecond: 1, requestBytesPerSecond: 1_000)
        for _ in 0..<2 { #expect(book.request(9, byteCount: 10, few, now: 1_000) == nil) }
        #expect(book.request(9, byteCount: 4_000, few, now: 1_000)?.kind == .requests)
        #expect(book.bodyRefusal(9, few, now: 1_000)?.kind == .bytes)
        for _ in 0..<1_000 { #expect(book.request(9, byteCount: 2_000, few, now: 1_000)?.kind == .bytes) }
        #expect(book.bodyRefusal(9, few, now: 3_020) == nil)
        #expect(book.bodyRefusal(7, AddressRules(requestsPerSecond: 1_000), now: 158_000) == nil)
    }

    @Test func aCrowdOfAddressesFillsNoMemoryAndHidesNobodyWhoHasMany() {
        let book = HeldLimiter(setCount: 64)
        let rules = AddressRules(connections: 100, requestsPerSecond: 10)
        for _ in 0..<100 { #expect(book.arrive(1, rules, now: 1) == nil) }
        var refused = 0
        for address in 2..<200_002 {
            // Half of them stay.
            if book.arrive(UInt64(address), rules, now: 2) != nil { refused += 1 }
            if address % 2 == 0 { book.leave(UInt64(address)) }
        }
        #expect(refused == 0)
        #expect(book.capacity == 512)
        #expect(book.arrive(1, rules, now: 3)?.kind == .connections)
        // The leaves of evicted addresses do not affect other entries.
        for address in 2..<200_002 { book.leave(UInt64(address)) }
        #expect(book.connectionCount(of: 1) == 100)
    }

    @Test func ofTheCalmTheOldestIsForgotten() {
        let book = HeldLimiter(setCount: 1)
        for address in 1...8 as ClosedRange<UInt64> {
            _ = book.arrive(address, AddressRules(), now: 10 + address)
            book.leave(address)
        }
        let rules = AddressRules(requestsPerSecond: 1)
        // The first address is active again, so the second one is the oldest.
        for _ in 0..<2 { #expect(book.request(1, rules, now: 100) == nil) }
        _ = book.arrive(9, AddressRules(), now: 101)
        #expect(book.request(1, rules, now: 102)?.kind == .requests)
    }

    private static func address(_ text: String) -> SocketAddress? {
        var storage = sockaddr_storage()
        return withUnsafeMutablePointer(to: &storage) { place in
            let raw = UnsafeMutableRawPointer(place)
            let four = raw.bindMemory(to: sockaddr_in.self, capacity: 1)
            if inet_pton(AF_INET, text, &four.pointee.sin_addr) == 1 {
                four.pointee.sin_family = sa_family_t(AF_INET)
                return SocketAddress(place)
            }
            let six = raw.bindMemory(to: sockaddr_in6.self, capacity: 1)
            guard inet_pton(AF_INET6, text, &six.pointee.sin6_addr) == 1 else { return nil }
            six.pointee.sin6_family = sa_family_t(AF_INET6)
            return SocketAddress(place)
        }
    }

    @Test func translatedAddressesCountByTheIPv4AddressInThem() throws {
        func network(_ text: String) throws -> UInt64 { try #require(Self.address(text)).network }
        // The prefix of RFC 6052, and a neighboring prefix.
        let four = try network("198.51.100.7")
        #expect(try network("64:ff9b::198.51.100.7") == four)
        #expect(try network("::ffff:198.51.100.7") == four)
        #expect(try network("64:ff9b::198.51.100.8") != four)
        #expect(try network("64:ff9b::1:198.51.100.7") == network("64:ff9b::1:198.51.100.8"))
        #expect(try network("64:ff9b:1::198.51.100.7") != four)
        // The address is not local, and an exemption of the embedded IPv4 address does not apply.
        #expect(try #require(Self.address("64:ff9b::127.0.0.1")).isLoopback == false)
        let keeper = AddressGuard()
        keeper.set(AddressRules(connections: 1), exempt: [try #require(AddressRange("198.51.100.0/24"))])
        guard case .counted = keeper.admit(try #require(Self.address("64:ff9b::198.51.100.7")), now: 1_000) else {
            return #expect(Bool(false))
        }
    }

    @Test func loopbackAndExemptRangesAreNotCounted() throws {
        let keeper = AddressGuard()
        keeper.set(AddressRules(connections: 1), exempt: [try #require(AddressRange("198.51.100.0/24"))])
        func admit(_ text: String) throws -> AddressGuard.Admission {
            keeper.admit(try #require(Self.address(text)), now: 1_000)
        }
        for address in ["127.0.0.1", "::1", "198.51.100.7", "::ffff:198.51.100.7"] {
            for _ in 0..<3 {
                guard case .exempt = try admit(address) else { return #expect(Bool(false), "\(address)") }
            }
        }
        guard case .counted(let network) = try admit("2001:db8:0:1::1") else { return #expect(Bool(false)) }
        // Another address in the same /64 network, and one in the neighboring network.
        guard case .refused(let refusal) = try admit("2001:db8:0:1:ffff::2") else { return #expect(Bool(false)) }
        #expect(refusal.kind == .connections)
        guard case .counted = try admit("2001:db8:0:2::1") else { return #expect(Bool(false)) }
        #expect(keeper.counts[.connections] == 1)
        let report = try #require(keeper.takeReport())
        #expect(report.address == "2001:db8:0:1:ffff::2" && report.counts.map(\.count) == [1])
        #expect(keeper.takeReport() == nil)
        keeper.leave(network)
        guard case .counted = try admit("2001:db8:0:1::3") else { return #expect(Bool(false)) }
    }
}
