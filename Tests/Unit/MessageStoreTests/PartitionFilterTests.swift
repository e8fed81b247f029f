import Delivery
import Foundation
import Testing
import Wire

@testable import MessageStore

/// A report scans thousands of mostly empty partitions, and so does each device that reconnects without messages.
@Suite("Row database: missing partitions")
struct PartitionFilterTests {
    private static let rowsPerPartition: UInt64 = 4
    private static let partitionCount: UInt64 = 4_000
    private static let value = [UInt8](repeating: 7, count: 200)

    private static func key(_ owner: UInt64, _ item: UInt64) -> StoreKey {
        StoreKey(Bucket(3), .message, ownerHigh: 1, ownerLow: owner, item: item)
    }

    private static func bytes(_ key: StoreKey) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: KeyCoding.rowKeyByteCount)
        bytes.withUnsafeMutableBytes { if let start = $0.baseAddress { KeyCoding.write(key, to: start) } }
        return bytes
    }

    private static func items(_ database: RowDatabase, _ owner: UInt64, from item: UInt64 = 0) throws -> [UInt64] {
        var found: [UInt64] = []
        let start = bytes(key(owner, item))
        try start.withUnsafeBytes { start in
            try database.scan(from: start, prefixCount: KeyCoding.partitionByteCount, in: database.rows) { key, _ in
                if let key = KeyCoding.readKey(key) { found.append(key.item) }
                return true
            }
        }
        return found
    }

    @Test("a scan of an empty partition reads no block, and others find all rows")
    func absent() throws {
        let folder = try TemporaryFolder()
        let database = try RowDatabase(path: folder.path + "/rows", cacheByteCount: 16 << 20)
        defer { database.close() }
        var writer = try SortedFileWriter(database, path: folder.path + "/rows.sst")
        for owner in stride(from: 0, to: 2 * Self.partitionCount, by: 2) {
            for item in 0..<Self.rowsPerPartition {
                let key = Self.bytes(Self.key(owner, item))
                try key.withUnsafeBytes { key in try Self.value.withUnsafeBytes { try writer.put(key, $0) } }
            }
        }
        try writer.finish()
        try database.ingest([writer.path], into: database.rows)
        // The first scan loads the file's index and filter into memory.
        #expect(try Self.items(database, 1) == [])
        let before = database.cachedByteCount
        let absent = stride(from: UInt64(1), to: 2 * Self.partitionCount, by: 2)
        for owner in absent { #expect(try Self.items(database, owner) == []) }
        // The filters are wrong for one partition in a hundred. A block has 8 KiB.
        let blocks = (database.cachedByteCount - before) / (8 << 10)
        #expect(blocks < absent.underestimatedCount / 20, "\(blocks) blocks were read for nothing")
        for owner in stride(from: 0, to: 2 * Self.partitionCount, by: 400) {
            #expect(try Self.items(database, owner) == Array(0..<Self.rowsPerPartition))
            #expect(try Self.items(database, owner, from: 2) == Array(2..<Self.rowsPerPartition))
        }
        // A scan across partitions must not use the filter.
        var count = 0
        try database.visit(.message, of: 3, in: database.rows) { _, _ in
            count += 1
            return true
        }
        #expect(count == Int(Self.partitionCount * Self.rowsPerPartition))
    }
}
