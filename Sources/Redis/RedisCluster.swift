// Which server has which slot, shared by all threads of a process. Threads talk to the servers through a `RedisClient`
// each; what one of them learns (a MOVED reply, a new map) all of them use.
//
// A server without cluster mode owns every slot. Its replicas are those that it names itself; of several seeds the one
// that is no replica counts.

internal import Platform

/// The map of a cluster's slots.
package final class RedisCluster: Sendable {
    /// A primary and the replicas that the cluster names for it now.
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
        /// By slot: the place in `primaries`, or -1.
        var owners = [Int16](repeating: -1, count: RedisSlot.count)
        /// The map has an answer of a server, not only seeds.
        var isKnown = false
        var askedAt: UInt64?
        var hasWaitAOF = false
    }

    package let network: any RedisNetwork
    private let seeds: [RedisAddress]
    private let map = Lock(Map())

    /// - Parameters:
    ///   - seeds: servers to ask for the map; those that it names are asked, too.
    ///   - network: where connections and time come from.
    package init(seeds: [RedisAddress], network: any RedisNetwork) {
        (self.seeds, self.network) = (seeds, network)
    }

    /// Every primary with its replicas, as the map has them now; empty before the first answer.
    package var primaries: [Primary] { map.withLock { $0.primaries } }
    /// Whether the servers run in cluster mode.
    package var isCluster: Bool { map.withLock { $0.isCluster } }
    /// Whether every server that was asked knows `WAITAOF` (7.2 and later).
    package var hasWaitAOF: Bool { map.withLock { $0.hasWaitAOF } }
    package var isKnown: Bool { map.withLock { $0.isKnown } }

    /// The server that has a slot, as far as the map knows.
    package func primary(of slot: Int) -> RedisAddress? {
        map.withLock { map in
            let place = map.owners[slot]
            return place < 0 ? nil : map.primaries[Int(place)].address
        }
    }

    /// The place of a slot's server among the primaries.
    package func place(of slot: Int) -> Int? {
        map.withLock { map in map.owners[slot] < 0 ? nil : Int(map.owners[slot]) }
    }

    /// How many replicas the map names for a primary.
    package func replicaCount(of address: RedisAddress) -> Int {
        map.withLock { map in map.primaries.first { $0.address == address }?.replicas.count ?? 0 }
    }

    /// Takes a server's word for where a slot is.
    func note(slot: Int, at address: RedisAddress) {
        map.withLock { map in
            if let place = map.primaries.firstIndex(where: { $0.address == address }) {
                map.owners[slot] = Int16(place)
            } else {
                map.primaries.append(Primary(address: address, replicas: []))
                map.owners[slot] = Int16(map.primaries.count - 1)
            }
            // What else has moved, and which replicas it has, the next map tells.
            map.askedAt = nil
        }
    }

    /// Whether the caller is to ask for the map now; others have asked a moment ago otherwise.
    func mayAsk(now: UInt64) -> Bool {
        map.withLock { map in
            if let askedAt = map.askedAt, now < askedAt + Limits.mapPauseMilliseconds { return false }
            map.askedAt = now
            return true
        }
    }

    /// Servers to ask for the map, those of the present map first.
    var candidates: [RedisAddress] {
        let known = map.withLock { map in map.primaries.flatMap { [$0.address] + $0.replicas } }
        var seen: Set<RedisAddress> = []
        return (known + seeds).filter { seen.insert($0).inserted }
    }

    /// Takes a map that a server gave.
    func take(_ ranges: [SlotRange], isCluster: Bool, hasWaitAOF: Bool) {
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
            (map.isCluster, map.isKnown, map.hasWaitAOF) = (isCluster, true, hasWaitAOF)
        }
    }
}

/// Slots that one primary has.
struct SlotRange: Equatable {
    var slots: ClosedRange<Int>
    var primary: RedisCluster.Primary

    /// The reply to `CLUSTER SLOTS`; `nil` when it makes no sense.
    static func parse(_ reply: RedisReply, askedAt server: RedisAddress) -> [SlotRange]? {
        guard let entries = reply.array else { return nil }
        var ranges: [SlotRange] = []
        for entry in entries {
            guard let parts = entry.array, parts.count >= 3, let first = parts[0].integer, let last = parts[1].integer,
                (0...last).contains(first), last < RedisSlot.count, let primary = node(parts[2], server)
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
        // A server that does not know its own address names none: then it is the one that was asked.
        let host = parts[0].text ?? ""
        if host == "?" { return nil }
        return RedisAddress(host: host.isEmpty ? server.host : host, port: port)
    }
}

/// The lines `name:value` of an `INFO` reply.
package struct RedisInformation {
    private var values: [Substring: Substring] = [:]
    /// Of `INFO replication`: the replicas that are in step.
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

    /// The server's version as three numbers; zeros where it names none.
    package var version: (Int, Int, Int) {
        let parts = (self["redis_version"] ?? "").split(separator: ".").map { Int($0.prefix(while: \.isNumber)) ?? 0 }
        func part(_ index: Int) -> Int { index < parts.count ? parts[index] : 0 }
        return (part(0), part(1), part(2))
    }
}
