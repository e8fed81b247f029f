// Keys in RocksDB's sort order. A row's key is `StoreKey`'s stored form. An alarm's key is bucket, time and the row's key.
//
// A stored row consists of its alarm time (8 bytes, little-endian) and its value.

internal import Delivery
internal import Wire

enum KeyCoding {
    static let rowKeyByteCount = StoreKey.encodedByteCount
    static let alarmKeyByteCount = 2 + 8 + StoreKey.encodedByteCount
    static let partitionByteCount = 19
    static let rowPrefixByteCount = 8

    static func write(_ key: StoreKey, to bytes: UnsafeMutableRawPointer) {
        bytes.storeBytes(of: key.bucket.index.bigEndian, as: UInt16.self)
        bytes.storeBytes(of: key.table.rawValue, toByteOffset: 2, as: UInt8.self)
        bytes.storeBytes(of: key.ownerHigh.bigEndian, toByteOffset: 3, as: UInt64.self)
        bytes.storeBytes(of: key.ownerLow.bigEndian, toByteOffset: 11, as: UInt64.self)
        bytes.storeBytes(of: key.item.bigEndian, toByteOffset: 19, as: UInt64.self)
    }

    static func readKey(_ bytes: UnsafeRawBufferPointer) -> StoreKey? {
        guard bytes.count == rowKeyByteCount,
            let bucket = Bucket(exactly: UInt64(UInt16(bigEndian: bytes.loadUnaligned(as: UInt16.self)))),
            let table = StoreKey.Table(rawValue: bytes[2])
        else { return nil }
        return StoreKey(
            bucket, table, ownerHigh: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 3, as: UInt64.self)),
            ownerLow: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 11, as: UInt64.self)),
            item: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 19, as: UInt64.self)))
    }

    /// Splits a stored row into its alarm time and value; `nil` if the bytes are too short.
    ///
    /// In tables without alarms the time field may have another meaning.
    static func row(_ key: StoreKey, _ stored: UnsafeRawBufferPointer) -> StoredRow? {
        guard stored.count >= rowPrefixByteCount else { return nil }
        guard key.table != .counters else {
            return StoredRow(key: key, wakeAt: 0, value: CountStamp.read(stored).value)
        }
        return StoredRow(
            key: key, wakeAt: stored.loadUnaligned(as: Int64.self),
            value: UnsafeRawBufferPointer(rebasing: stored[rowPrefixByteCount...]))
    }

    static func write(_ alarm: Alarm, to bytes: UnsafeMutableRawPointer) {
        bytes.storeBytes(of: alarm.key.bucket.index.bigEndian, as: UInt16.self)
        bytes.storeBytes(of: order(alarm.wakeAt).bigEndian, toByteOffset: 2, as: UInt64.self)
        write(alarm.key, to: bytes + 10)
    }

    static func readAlarm(_ bytes: UnsafeRawBufferPointer) -> Alarm? {
        guard bytes.count == alarmKeyByteCount,
            let key = readKey(UnsafeRawBufferPointer(rebasing: bytes[10...]))
        else { return nil }
        let order = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 2, as: UInt64.self))
        return Alarm(wakeAt: Int64(bitPattern: order ^ 1 << 63), key: key)
    }

    /// Maps signed times to unsigned numbers in the same order.
    private static func order(_ time: Int64) -> UInt64 { UInt64(bitPattern: time) ^ 1 << 63 }
}

/// The alarm of a cold row; alarms of a bucket sort by time, then by key.
struct Alarm: Comparable, Sendable {
    var wakeAt: Int64
    var key: StoreKey

    static func < (left: Alarm, right: Alarm) -> Bool {
        left.wakeAt != right.wakeAt ? left.wakeAt < right.wakeAt : left.key < right.key
    }
}

extension StoreKey {
    @inline(__always) var hasItems: Bool { table.hasItems }

    @inline(__always) func isInPartition(of other: StoreKey) -> Bool {
        ownerLow == other.ownerLow && ownerHigh == other.ownerHigh && bucket == other.bucket && table == other.table
    }

    /// Whether Delivery stores locations and deadlines of the row and must be notified when the row becomes cold.
    var isReportedWhenCooled: Bool { table.hasAlarms }
}
