// The slot map, shared by all threads of a process. Each thread connects through its own `RedisClient`, and an update by one
// thread (a MOVED reply, a new map) is visible to all.
//
// A server without cluster mode owns every slot, and its replicas are those it reports. Among several seeds, the one that is not
// a replica is used.

internal import Platform

package final class RedisCluster: Sendable {
    package struct Primary: Sendable, Equatable {
        package var address: RedisAddress
        package var replicas: [RedisAddress]
        package init(address: RedisAddress, replicas: [RedisAddress]) {
            (self.address, self.replicas) = (address, replicas)
        }
    }

    private struct Map {
        var isCluster = false
        var primaries: [Primary] = []
        /// The index in `primaries` for each slot, or -1.
        var owners = [Int16](repeating: -1, count: RedisSlot.count)
        /// Whether the map comes from a server and not only from the seeds.
        var isKnown = false
        var askedAt: UInt64?
        /// The cluster's epoch, as reported by the server that returned the map.
        var epoch = 0
        /// The servers asked so far, and whether their version supports `WAITAOF` (7.2 and later).
        var waitsForDisks: [RedisAddress: Bool] = [:]
        var refusesWaitAOF: Set<RedisAddress> = []
        /// Primaries known only from a redirect, whose replicas are unknown.
        var noted: Set<RedisAddress> = []
        /// The servers that timed out, with the time of the timeout.
        var silent: [RedisAddress: UInt64] = [:]
    }

    package let network: any RedisNetwork
    private let seeds: [RedisAddress]
    private let map = Lock(Map())

    /// - Parameters:
    ///   - seeds: the servers to ask for the map, besides those in the map.
    ///   - network: the source of connections and time.
    package init(seeds: [RedisAddress], network: any RedisNetwork) {
        (self.seeds, self.network) = (seeds, network)
    }

    /// All primaries with their replicas, or empty before the first map.
    package var primaries: [Primary] { map.withLock { $0.primaries } }
    package var isCluster: Bool { map.withLock { $0.isCluster } }
    var epoch: Int { map.withLock { $0.epoch } }

    package func note(version: (Int, Int, Int), of address: RedisAddress) {
        map.withLock { $0.waitsForDisks[address] = version >= (7, 2, 0) }
    }

    /// Records that a server does not support `WAITAOF` or denies it to this user.
    package func noteRefusedWaitAOF(at address: RedisAddress) {
        map.withLock { _ = $0.refusesWaitAOF.insert(address) }
    }

    /// Returns whether a primary and all its replicas support `WAITAOF`; versions may differ during an upgrade.
    package func waitsForDisks(at address: RedisAddress) -> Bool {
        map.withLock { map in
            guard !map.refusesWaitAOF.contains(address),
                let primary = map.primaries.first(where: { $0.address == address }), !map.noted.contains(address)
            else { return false }
            return ([address] + primary.replicas).allSatisfy { map.waitsForDisks[$0] == true }
        }
    }
    package var isKnown: Bool { map.withLock { $0.isKnown } }

    package func primary(of slot: Int) -> RedisAddress? {
        map.withLock { map in
            let place = map.owners[slot]
            return place < 0 ? nil : map.primaries[Int(place)].address
        }
    }

    package func place(of slot: Int) -> Int? {
        map.withLock { map in map.owners[slot] < 0 ? nil : Int(map.owners[slot]) }
    }

    /// Returns the number of a primary's replicas; for a primary known only from a redirect it is the maximum of all primaries.
    package func replicaCount(of address: RedisAddress) -> Int {
        map.withLock { map in
            if map.noted.contains(address) { return map.primaries.map(\.replicas.count).max() ?? 0 }
            return map.primaries.first { $0.address == address }?.replicas.count ?? 0
        }
    }

    func note(slot: Int, at address: RedisAddress) {
        map.withLock { map in
            if let place = map.primaries.firstIndex(where: { $0.address == address }) {
                map.owners[slot] = Int16(place)
            } else {
                map.primaries.append(Primary(address: address, replicas: []))
                map.noted.insert(address)
                map.owners[slot] = Int16(map.primaries.count - 1)
            }
            // The next map contains further moves and the replicas, so it may be requested immediately.
            map.askedAt = nil
        }
    }

    /// Returns whether the caller should request the map now, because no other thread did so recently.
    func mayAsk(now: UInt64) -> Bool {
        map.withLock { map in
            if let askedAt = map.askedAt, now < askedAt + Limits.mapPauseMilliseconds { return false }
            map.askedAt = now
            return true
        }
    }

    func noteSilence(of address: RedisAddress) {
        let now = network.monotonicMilliseconds
        map.withLock { map in
            map.silent = map.silent.filter { $0.value + Limits.silenceMilliseconds > now }
            map.silent[address] = now
        }
    }

    func noteAnswer(of address: RedisAddress) {
        map.withLock { map in
            if !map.silent.isEmpty { map.silent[address] = nil }
        }
    }

    /// Primaries that timed out and have not replied since, the earliest timeout first.
    package var silentPrimaries: [RedisAddress] {
        map.withLock { map in
            map.primaries.filter { map.silent[$0.address] != nil }.map(\.address)
                .sorted { map.silent[$0] ?? 0 < map.silent[$1] ?? 0 }
        }
    }

    /// Returns whether a server timed out recently and has not replied since.
    package func isSilent(_ address: RedisAddress) -> Bool {
        let now = network.monotonicMilliseconds
        return map.withLock {
            ($0.silent[address] ?? 0) + Limits.silenceMilliseconds > now && $0.silent[address] != nil
        }
    }

    /// The servers to ask for the map: those of the current map first, those with a recent timeout last.
    var candidates: [RedisAddress] {
        let now = network.monotonicMilliseconds
        let (known, silent) = map.withLock { map in
            (
                map.primaries.flatMap { [$0.address] + $0.replicas },
                map.silent.filter { $0.value + Limits.silenceMilliseconds > now }
            )
        }
        var seen: Set<RedisAddress> = []
        let all = (known + seeds).filter { seen.insert($0).inserted }
        return all.filter { silent[$0] == nil } + all.filter { silent[$0] != nil }
    }

    func take(_ ranges: [SlotRange], isCluster: Bool, epoch: Int) {
        map.withLock { map in
            var primaries: [Primary] = []
            var places: [RedisAddress: Int] = [:]
            var owners = [Int16](repeating: -1, count: RedisSlot.count)
            for range in ranges {
                let place = places[range.primary.address] ?? primaries.count
                if place == primaries.count {
                    guard place < Int(Int16.max) else { continue }
                    places[range.primary.address] = place
                    primaries.append(range.primary)
                }
                for slot in range.slots { owners[slot] = Int16(place) }
            }
            (map.primaries, map.owners) = (primaries, owners)
            (map.isCluster, map.isKnown, map.epoch) = (isCluster, true, epoch)
            map.noted.removeAll()
        }
    }
}

struct SlotRange: Equatable {
    var slots: ClosedRange<Int>
    var primary: RedisCluster.Primary

    /// Parses the reply to `CLUSTER SLOTS`, or returns `nil` if it is malformed.
    static func parse(_ reply: RedisReply, askedAt server: RedisAddress) -> [SlotRange]? {
        guard let entries = reply.array else { return nil }
        var ranges: [SlotRange] = []
        for entry in entries {
            guard let parts = entry.array, parts.count >= 3, let first = parts[0].integer, let last = parts[1].integer,
                0 <= first, first <= last, last < RedisSlot.count, let primary = node(parts[2], server)
            else { return nil }
            let replicas = parts[3...].compactMap { node($0, server) }
            ranges.append(
                SlotRange(
                    slots: Int(first)...Int(last),
                    primary: RedisCluster.Primary(address: primary, replicas: replicas)))
        }
        return ranges
    }

    private static func node(_ reply: RedisReply, _ server: RedisAddress) -> RedisAddress? {
        guard let parts = reply.array, parts.count >= 2, let port = parts[1].integer, let port = UInt16(exactly: port),
            port > 0
        else { return nil }
        // A server that does not know its own address returns an empty host, which means the host that was asked.
        let host = parts[0].text ?? ""
        if host == "?" { return nil }
        return RedisAddress(host: host.isEmpty ? server.host : host, port: port)
    }
}

/// The `name:value` lines of an `INFO` reply.
package struct RedisInformation {
    private var values: [Substring: Substring] = [:]
    /// The replicas in `INFO replication` that are online.
    package private(set) var replicas: [RedisAddress] = []

    package init(_ text: String) {
        for line in text.split(whereSeparator: { $0 == "\r\n" || $0 == "\n" || $0 == "\r" }) {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let (name, value) = (line[..<colon], line[line.index(after: colon)...])
            values[name] = value
            if name.hasPrefix("slave"), name.dropFirst(5).allSatisfy(\.isNumber) { noteReplica(value) }
        }
    }

    private mutating func noteReplica(_ text: Substring) {
        var fields: [Substring: Substring] = [:]
        for field in text.split(separator: ",") {
            let parts = field.split(separator: "=", maxSplits: 1)
            if parts.count == 2 { fields[parts[0]] = parts[1] }
        }
        guard fields["state"] == "online", let host = fields["ip"], let port = fields["port"].flatMap({ UInt16($0) })
        else { return }
        replicas.append(RedisAddress(host: String(host), port: port))
    }

    package subscript(name: String) -> String? { values[name[...]].map(String.init) }
    package func number(_ name: String) -> Int? { self[name].flatMap { Int($0) } }

    /// The server's version, or zeros if missing.
    package var version: (Int, Int, Int) {
        let parts = (self["redis_version"] ?? "").split(separator: ".").map { Int($0.prefix(while: \.isNumber)) ?? 0 }
        func part(_ index: Int) -> Int { index < parts.count ? parts[index] : 0 }
        return (part(0), part(1), part(2))
    }
}
