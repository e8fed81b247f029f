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
        /// The cluster's own count of its changes, as the map's server has it.
        var epoch = 0
        /// Servers that were asked, and whether they know `WAITAOF` (7.2 and later).
        var waitsForDisks: [RedisAddress: Bool] = [:]
        /// Servers that refused it.
        var refusesWaitAOF: Set<RedisAddress> = []
        /// Primaries that a redirect named: which replicas they have, no map has told.
        var noted: Set<RedisAddress> = []
        /// Servers that did not answer, and when.
        var silent: [RedisAddress: UInt64] = [:]
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
    /// The count of the cluster's changes that the map goes with.
    var epoch: Int { map.withLock { $0.epoch } }

    /// Notes a server's version.
    package func note(version: (Int, Int, Int), of address: RedisAddress) {
        map.withLock { $0.waitsForDisks[address] = version >= (7, 2, 0) }
    }

    /// Notes that a server does not take `WAITAOF` from this user, or does not know it.
    package func noteRefusedWaitAOF(at address: RedisAddress) {
        map.withLock { _ = $0.refusesWaitAOF.insert(address) }
    }

    /// Whether a primary and all its replicas are known to know `WAITAOF`.
    ///
    /// While servers of several versions serve, some do not.
    package func waitsForDisks(at address: RedisAddress) -> Bool {
        map.withLock { map in
            guard !map.refusesWaitAOF.contains(address),
                let primary = map.primaries.first(where: { $0.address == address }), !map.noted.contains(address)
            else { return false }
            return ([address] + primary.replicas).allSatisfy { map.waitsForDisks[$0] == true }
        }
    }
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

    /// How many replicas the map names for a primary; of one that no map has named yet, as many as any has.
    package func replicaCount(of address: RedisAddress) -> Int {
        map.withLock { map in
            if map.noted.contains(address) { return map.primaries.map(\.replicas.count).max() ?? 0 }
            return map.primaries.first { $0.address == address }?.replicas.count ?? 0
        }
    }

    /// Takes a server's word for where a slot is.
    func note(slot: Int, at address: RedisAddress) {
        map.withLock { map in
            if let place = map.primaries.firstIndex(where: { $0.address == address }) {
                map.owners[slot] = Int16(place)
            } else {
                map.primaries.append(Primary(address: address, replicas: []))
                map.noted.insert(address)
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

    /// A server did not answer in time.
    func noteSilence(of address: RedisAddress) {
        let now = network.monotonicMilliseconds
        map.withLock { map in
            map.silent = map.silent.filter { $0.value + Limits.silenceMilliseconds > now }
            map.silent[address] = now
        }
    }

    /// A server has answered.
    func noteAnswer(of address: RedisAddress) {
        map.withLock { map in
            if !map.silent.isEmpty { map.silent[address] = nil }
        }
    }

    /// Primaries that did not answer a moment ago, first the one that was asked longest ago.
    package var silentPrimaries: [RedisAddress] {
        map.withLock { map in
            map.primaries.filter { map.silent[$0.address] != nil }.map(\.address)
                .sorted { map.silent[$0] ?? 0 < map.silent[$1] ?? 0 }
        }
    }

    /// A server did not answer a moment ago, and has not answered since.
    package func isSilent(_ address: RedisAddress) -> Bool {
        let now = network.monotonicMilliseconds
        return map.withLock {
            ($0.silent[address] ?? 0) + Limits.silenceMilliseconds > now && $0.silent[address] != nil
        }
    }

    /// Servers to ask for the map, those of the present map first, and those last that were silent a moment ago.
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

    /// Takes a map that a server gave.
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
