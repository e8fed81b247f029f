/// How many connections of each kind the gateway holds at once.
struct ConnectionLimits: Sendable, Equatable {
    var devices: Int
    var senders: Int
    /// Of both public listeners.
    var http: Int
    var admin: Int
    /// Where each loop has a descriptor table of its own, its part; otherwise no bound of its own.
    var devicesPerLoop = Int.max
    var sendersPerLoop = Int.max
    /// What devices' connections may take, with the inner ends of those that other gateways relay.
    var deviceDescriptors = Int.max

    /// Whether `count` devices have room; a relayed one has a socket pair here, so its inner end is a second descriptor.
    func hasRoom(devices count: Int, relayEnds: Int) -> Bool {
        count <= devices && count + relayEnds <= deviceDescriptors
    }
}

/// The limit of open files is too low for anything to work.
struct DescriptorShortage: Error, CustomStringConvertible {
    let description: String
}

/// How the process's descriptors are shared: first what the store and everything else needs, then connections.
///
/// Every connection costs one, and so does every file of the store. If connections could take them all, strangers who
/// connect and say nothing would make the store fail, and with it the process. So the store's part is set aside before
/// anybody is accepted, the configured limits are cut to what is left, and each kind of connection has a part of its own:
/// a crowd on one listener leaves the others theirs.
struct DescriptorBudget: Sendable {
    /// Files that the ordered store may keep open.
    let storeFileCount: Int
    /// Connections that may wait for their peer's end after the last word; beside those that are counted.
    let closingPerLoop: Int
    /// What one table may hold, and how much of it is for connections.
    let capacity: Int
    private let room: Int
    private let loopCount: Int
    private let hasOwnTables: Bool

    /// The ordered store's usual number of open files, and the least with which it works without opening files all the time.
    private static let storeFileCounts = 64...512
    /// Journal segments, files that a spill or a merge writes, the hook's connections, the log, what a reload reads, the
    /// connection that is just being turned away: some forty at most, and as many again.
    private static let otherCount = 96
    /// A loop's poller, its wake-ups, its passage and its listening sockets.
    private static let perLoopCount = 12
    /// Fewer connections than this are no service.
    private static let leastRoom = 64
    private static let leastPart = 4

    /// - Parameters:
    ///   - capacity: descriptors of one table.
    ///   - loopCount: event loops.
    ///   - hasOwnTables: each has a table of its own, with a limit of its own.
    /// - Throws: when too little is left for connections; the text says how much is needed.
    init(capacity: Int, loopCount: Int, hasOwnTables: Bool) throws(DescriptorShortage) {
        (self.capacity, self.loopCount, self.hasOwnTables) = (capacity, loopCount, hasOwnTables)
        let counts = Self.storeFileCounts
        storeFileCount = min(counts.upperBound, max(counts.lowerBound, capacity / 8))
        let closing = min(1_024, capacity / 32)
        closingPerLoop = max(Self.leastPart, hasOwnTables ? closing : closing / loopCount)
        let reserved: Int
        if hasOwnTables {
            // A loop's table begins with the event descriptors and passages of all; the store's files are in none of them.
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

    /// The configured limits, cut to what there are descriptors for.
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

    /// A sixteenth at most for senders and for the admin listener, a quarter for public HTTP, the rest for devices; what
    /// one does not want goes to the others.
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
        // Only gateways of a cluster relay, and their loops share one table.
        limits.deviceDescriptors = limits.devices + left
        return limits
    }
}

extension ConnectionLimits {
    /// Whether some configured limit could not be granted.
    func isBelow(_ wanted: GatewayLimits) -> Bool {
        devices < wanted.connections || senders < wanted.senderConnections || http < wanted.httpConnections
            || admin < wanted.adminConnections
    }
}
