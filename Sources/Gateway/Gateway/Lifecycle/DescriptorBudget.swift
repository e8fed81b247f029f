struct ConnectionLimits: Sendable, Equatable {
    var devices: Int
    var senders: Int
    /// The limit of both public HTTP listeners together.
    var http: Int
    var admin: Int
    /// The limit per loop, if each loop has its own descriptor table; otherwise unlimited.
    var devicesPerLoop = Int.max
    var sendersPerLoop = Int.max
    /// The limit of descriptors for devices; a relayed device takes two (`hasRoom`).
    var deviceDescriptors = Int.max

    /// Returns whether `count` devices fit; a relayed device needs a second descriptor for its inner socket-pair end.
    func hasRoom(devices count: Int, relayEnds: Int) -> Bool {
        count <= devices && count + relayEnds <= deviceDescriptors
    }
}

/// The limit of open files is too low to run the gateway.
struct DescriptorShortage: Error, CustomStringConvertible {
    let description: String
}

/// The distribution of the process's descriptors: the store and internal use first, then connections.
///
/// Connections and store files share the descriptor limit. If connections could use all descriptors, idle connections from
/// attackers would make the store, and therefore the process, fail. The store's share is reserved first, and the configured
/// limits are reduced to the remainder. Each kind of connection has its own share, so a flood on one listener does not affect the
/// others.
struct DescriptorBudget: Sendable {
    /// The number of files that the ordered store may keep open.
    let storeFileCount: Int
    /// The closing connections of a loop that may wait until their peers close, in addition to those in `ConnectionLimits`.
    let closingPerLoop: Int
    let capacity: Int
    private let room: Int
    private let loopCount: Int
    private let hasOwnTables: Bool

    /// The minimum and maximum of the ordered store's open files; below the minimum it would reopen files constantly.
    private static let storeFileCounts = 64...512
    /// The descriptors for everything else: twice what journal segments, spills, merges, the hook, the log, reloads and a
    /// connection being rejected need.
    private static let otherCount = 96
    /// The descriptors of a loop: its poller, wake-ups, listening sockets, and the passage by which it gets connections.
    private static let perLoopCount = 12
    /// The minimum of connections for a useful gateway.
    private static let leastRoom = 64
    private static let leastPart = 4

    /// Reserves the store's and the loops' descriptors.
    ///
    /// - Parameters:
    ///   - capacity: The descriptors of one table.
    ///   - loopCount: The number of event loops.
    ///   - hasOwnTables: Whether each loop has its own table with its own limit.
    /// - Throws: `DescriptorShortage` with the required number, if too few remain for connections.
    init(capacity: Int, loopCount: Int, hasOwnTables: Bool) throws(DescriptorShortage) {
        (self.capacity, self.loopCount, self.hasOwnTables) = (capacity, loopCount, hasOwnTables)
        let counts = Self.storeFileCounts
        storeFileCount = min(counts.upperBound, max(counts.lowerBound, capacity / 8))
        let closing = min(1_024, capacity / 32)
        closingPerLoop = max(Self.leastPart, hasOwnTables ? closing : closing / loopCount)
        let reserved: Int
        if hasOwnTables {
            // A loop's table contains the event descriptors and passages of all loops, but no store files.
            reserved = Self.otherCount + Self.perLoopCount + 4 * loopCount + closingPerLoop
        } else {
            reserved = storeFileCount + Self.otherCount + Self.perLoopCount * loopCount + closingPerLoop * loopCount
        }
        room = capacity - reserved
        guard room >= Self.leastRoom else {
            throw DescriptorShortage(
                description: "the limit of open files is \(capacity), and the store and \(loopCount) loops alone need "
                    + "\(reserved) of them; raise it (LimitNOFILE under systemd, ulimit -n) to \(reserved + 1_000) or more"
            )
        }
    }

    /// Reduces the configured limits to the available descriptors.
    func limits(_ wanted: GatewayLimits) -> ConnectionLimits {
        guard hasOwnTables else { return Self.share(room, wanted, of: 1) }
        var one = Self.share(room, wanted, of: loopCount)
        one.deviceDescriptors = .max
        (one.devicesPerLoop, one.sendersPerLoop) = (room - one.http - one.admin - one.senders, one.senders)
        one.devices = min(wanted.connections, one.devicesPerLoop * loopCount)
        one.senders = min(wanted.senderConnections, one.senders * loopCount)
        one.http = min(wanted.httpConnections, one.http * loopCount)
        one.admin = min(wanted.adminConnections, one.admin * loopCount)
        return one
    }

    /// Divides `room`: up to 1/16 each for senders and admin, up to 1/4 for public HTTP, and the remainder for devices.
    ///
    /// Unused shares go to the other kinds.
    private static func share(_ room: Int, _ wanted: GatewayLimits, of count: Int) -> ConnectionLimits {
        func part(_ wanted: Int, _ divisor: Int) -> Int {
            min((wanted + count - 1) / count, max(leastPart, room / divisor))
        }
        var limits = ConnectionLimits(
            devices: 0, senders: part(wanted.senderConnections, 16), http: part(wanted.httpConnections, 4),
            admin: part(wanted.adminConnections, 16))
        var left = room - limits.senders - limits.http - limits.admin
        limits.devices = min((wanted.connections + count - 1) / count, left)
        left -= limits.devices
        func grow(_ limit: inout Int, to wanted: Int) {
            let more = min(left, (wanted + count - 1) / count - limit)
            limit += more
            left -= more
        }
        grow(&limits.http, to: wanted.httpConnections)
        grow(&limits.senders, to: wanted.senderConnections)
        grow(&limits.admin, to: wanted.adminConnections)
        // The remaining descriptors are for relays. Only gateways of a cluster relay, and their loops share one table.
        limits.deviceDescriptors = limits.devices + left
        return limits
    }
}

extension ConnectionLimits {
    func isBelow(_ wanted: GatewayLimits) -> Bool {
        devices < wanted.connections || senders < wanted.senderConnections || http < wanted.httpConnections
            || admin < wanted.adminConnections
    }
}
