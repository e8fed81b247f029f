// Keys as RocksDB sorts them. A row's key is `StoreKey`'s stored form; an alarm's is bucket, time, row's key.
//
// A stored row is its alarm (8 bytes, little-endian) and the value.

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

    /// `nil` when the bytes are no key that this version knows.
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

    /// Splits a stored row into its alarm's time and its value; `nil` for bytes that are no row.
    ///
    /// In tables without alarms the time may be something of the store's own.
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

    /// Unsigned numbers that sort as the signed times do.
    private static func order(_ time: Int64) -> UInt64 { UInt64(bitPattern: time) ^ 1 << 63 }
}

/// A cold row's alarm; alarms of a bucket sort by time, then key.
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

    /// Rows that Delivery keeps locations and deadlines of, so that it must be told when they turn cold.
    var isReportedWhenCooled: Bool { table.hasAlarms }
}
