import SimulatedRedis

@testable import MessageStore

/// Another program that rarely writes to partitions' logs, as an operator or a script may do; active with some seeds.
///
/// It has its own generator, so that the other seeds do not change.
struct ForeignWriter {
    var chance: SimulatedRedis.Chance
    private let share: Double
    private(set) var count = 0
    /// `stream id` of each entry.
    private(set) var ids: Set<String> = []
    /// The epochs of its entries that exceeded the stream's epoch.
    private(set) var epochs: Set<UInt64> = []

    init(seed: UInt64) {
        chance = SimulatedRedis.Chance(seed: seed ^ 0xF0E1_6E)
        share = seed % 3 == 2 ? 0.15 : 0
    }

    /// Returns whether it writes now.
    mutating func isDue() -> Bool { share > 0 && chance.happens(share) }

    /// Adds an entry to a partition's log; returns its kind, or `nil` if the stream is missing or refuses it.
    mutating func write(_ part: Int, _ cluster: SimulatedCluster) -> String? {
        let stream = String(decoding: GroupKeys.log("world", part: part), as: UTF8.self)
        guard let last = Self.lastID(stream, cluster), !last.isBeyondEpochs else { return nil }
        let far = last.epoch + UInt64(1 + chance.below(1_000))
        let bytes = String(repeating: "x", count: 200)
        // An operator's copy of a log has the maximum number as its last entry. The server refuses an entry that would wrap
        // around.
        let (kind, id, field, value) =
            switch chance.below(8) {
            case 0, 1: ("the next number", "\(last.epoch)-\(last.number &+ 1)", "b", bytes)
            case 2:
                ("a later number", "\(last.epoch)-\(last.number &+ UInt64(2 + chance.below(1_000)))", "note", "by hand")
            case 3: ("the server's number", "\(last.epoch)-*", "note", "by hand")
            case 4: ("a fence of a far epoch", "\(far)-0", "f", "123456")
            case 5: ("bytes of a far epoch", "\(far)-1", "b", bytes)
            case 6: ("an epoch that nobody can follow", "\(RedisEngine.epochLimit)-1", "note", "by hand")
            default: ("the server's time", "*", "note", "by hand")
            }
        guard case .bulk(let written) = cluster.intrude(["XADD", stream, id, field, value]) else { return nil }
        let entry = String(decoding: written, as: UTF8.self)
        count += 1
        ids.insert("\(stream) \(entry)")
        if let epoch = LogID(entry)?.epoch, epoch > last.epoch { epochs.insert(epoch) }
        return kind
    }

    private static func lastID(_ stream: String, _ cluster: SimulatedCluster) -> LogID? {
        guard case .array(let facts) = cluster.look("XINFO", "STREAM", stream) else { return nil }
        for place in facts.indices.dropLast() {
            guard case .bulk(let name) = facts[place], name == Array("last-generated-id".utf8),
                case .bulk(let id) = facts[place + 1]
            else { continue }
            return LogID(String(decoding: id, as: UTF8.self))
        }
        return nil
    }
}
