// The keys in Redis. NAME is the cluster's name.
//
//     {lw:NAME:p<part>}:log      stream: the log of a partition; ids are `epoch-number`
//         f   the fence: the first entry of an owner's epoch (number 0)
//         b   a group of records in the journal's format (`RecordHeader`)
//         w   empty: written so that a wait for replicas covers writes of another connection
//     {lw:NAME:g<group>}:m       hash: `epoch` of the owner; `done`, its last batch of rows; `p<letter><period>`, the
//                                bytes of each period
//     {lw:NAME:g<group>}:r       hash: key (27 bytes) → row in the embedded engine's format (`CountStamp`, `KeyCoding`)
//     {lw:NAME:g<group>}:i       sorted set, all scores 0: the keys of tables that are read in order
//     {lw:NAME:g<group>}:a       sorted set, all scores 0: alarms (bucket, time, key), in byte order
//     {lw:NAME:g<group>}:e<letter><period>   hash: request ids (`r`) or traces (`t`) of a period
//
// All keys of a group share a slot, so that a script can access them together.

internal import Delivery
internal import Redis
internal import Wire

struct LogID: Comparable, Sendable, CustomStringConvertible {
    var epoch: UInt64
    var number: UInt64

    init(epoch: UInt64, number: UInt64) { (self.epoch, self.number) = (epoch, number) }

    init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let epoch = UInt64(parts[0]), let number = UInt64(parts[1]) else { return nil }
        self.init(epoch: epoch, number: number)
    }

    var description: String { "\(epoch)-\(number)" }

    static func < (left: LogID, right: LogID) -> Bool {
        left.epoch != right.epoch ? left.epoch < right.epoch : left.number < right.number
    }
}

/// The number of groups that the buckets are divided into, which is part of the stored format.
enum RedisGroups {
    static let count = 256

    static func group(of bucket: Bucket) -> Int { Int(bucket.index) % count }

    /// Returns the groups of a partition; a group lies in one partition, because the number of partitions divides the number of
    /// groups.
    static func groups(part: Int, of partCount: Int) -> [Int] { Array(stride(from: part, to: count, by: partCount)) }
}

struct GroupKeys: Sendable {
    let group: Int
    let slot: Int
    let marks: [UInt8]
    let rows: [UInt8]
    let index: [UInt8]
    let alarms: [UInt8]
    private let prefix: String

    init(_ name: String, group: Int) {
        self.group = group
        prefix = "{lw:\(name):g\(group)}:"
        marks = Array("\(prefix)m".utf8)
        rows = Array("\(prefix)r".utf8)
        index = Array("\(prefix)i".utf8)
        alarms = Array("\(prefix)a".utf8)
        slot = RedisSlot.of(marks)
    }

    func ephemeral(_ period: RedisPeriod) -> [UInt8] { Array("\(prefix)e\(period)".utf8) }

    static func log(_ name: String, part: Int) -> [UInt8] { Array("{lw:\(name):p\(part)}:log".utf8) }
}

/// A time span of request ids or traces, in gateway time: one hash for each group, dropped as a whole.
struct RedisPeriod: Hashable, Sendable, CustomStringConvertible {
    var kind: Period.Kind
    var number: Int64

    init(_ kind: Period.Kind, number: Int64) { (self.kind, self.number) = (kind, number) }

    init(_ kind: Period.Kind, at time: Int64) {
        self.init(kind, number: max(0, time) / Limits.redisPeriodMilliseconds)
    }

    /// Parses a field of the group's marks, such as `pr123`.
    init?(field: String) {
        guard field.hasPrefix("p"), let number = Int64(field.dropFirst(2)), Self.numbers.contains(number) else {
            return nil
        }
        switch field.dropFirst().first {
        case "r": self.init(.requests, number: number)
        case "t": self.init(.traces, number: number)
        default: return nil
        }
    }

    /// The valid period numbers; the bound keeps the end times in range.
    private static let numbers: Range<Int64> = 0..<1 << 32

    var description: String { "\(kind == .traces ? "t" : "r")\(number)" }
    var field: String { "p\(self)" }
    /// The time at which all rows of the period are expired.
    var end: Int64 { (number + 1) * Limits.redisPeriodMilliseconds + Limits.ephemeralMilliseconds }
}

extension StoreKey.Table {
    /// Whether rows of the table are read in key order; in other tables only single rows are looked up.
    var isIndexed: Bool { hasItems || isReadAtStart }
}

extension KeyCoding {
    static func bytes(_ key: StoreKey) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: rowKeyByteCount) { bytes, count in
            if let start = bytes.baseAddress { write(key, to: UnsafeMutableRawPointer(start)) }
            count = rowKeyByteCount
        }
    }

    static func bytes(_ alarm: Alarm) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: alarmKeyByteCount) { bytes, count in
            if let start = bytes.baseAddress { write(alarm, to: UnsafeMutableRawPointer(start)) }
            count = alarmKeyByteCount
        }
    }
}
