// Repair of a torn end of RocksDB's MANIFEST. RocksDB syncs each record before it relies on the record, and accepts a manifest
// that ends early. A power failure may also leave a hole: a later sector of the last record is on disk, and an earlier one is
// not. RocksDB reports such a hole as corruption and does not open.

internal import Platform

enum ManifestTail {
    /// RocksDB's log format: blocks of `blockByteCount` bytes, and record headers of checksum, length and type.
    private static let (blockByteCount, headerByteCount) = (32_768, 7)
    private static let sectorByteCount = 512
    /// The maximum size of a torn tail; a longer tail is not examined.
    private static let tailLimit = 1 << 20

    /// Truncates a torn last record of the manifest that CURRENT names.
    ///
    /// - Returns: The number of removed bytes.
    static func cut(_ folder: String) throws(StoreError) -> Int {
        do throws(SystemError) {
            let name = String(decoding: try FileSystem.read(folder + "/CURRENT").filter { $0 > 32 }, as: UTF8.self)
            let path = folder + "/" + name
            guard name.hasPrefix("MANIFEST-"), FileSystem.exists(path) else { return 0 }
            let bytes = try FileSystem.read(path)
            guard let end = bytes.withUnsafeBytes(tornAt) else { return 0 }
            let file = try File(path: path, mode: .readWrite)
            try file.truncate(toByteCount: end)
            try file.synchronize()
            return bytes.count - end
        } catch { throw StoreError(error) }
    }

    /// Returns the end of the last whole record if only a torn record follows; otherwise `nil`.
    ///
    /// A torn record contains a sector of zeros that was never written. A sector that was written and then changed is damage,
    /// which must not be removed.
    static func tornAt(_ bytes: UnsafeRawBufferPointer) -> Int? {
        var (offset, whole) = (0, 0)
        while let record = record(bytes, offset) {
            offset = record.end
            if record.isLast { whole = offset }
        }
        guard whole < bytes.count, bytes.count - whole <= tailLimit, hasLostSector(bytes, from: whole) else {
            return nil
        }
        // A whole record further on proves that the torn record had been synced. It is damage then, not a torn tail.
        for later in max(offset + 1, whole + 1)..<bytes.count where record(bytes, later) != nil { return nil }
        return whole
    }

    private static func record(_ bytes: UnsafeRawBufferPointer, _ place: Int) -> (end: Int, isLast: Bool)? {
        var start = place
        let left = blockByteCount - start % blockByteCount
        if left < headerByteCount { start += left }
        guard start + headerByteCount <= bytes.count else { return nil }
        let length = Int(bytes[start + 4]) | Int(bytes[start + 5]) << 8
        let type = bytes[start + 6]
        let end = start + headerByteCount + length
        // The record types full, first, middle and last.
        guard (1...4).contains(type), end <= bytes.count,
            start % blockByteCount + headerByteCount + length <= blockByteCount
        else { return nil }
        let stored = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: start, as: UInt32.self))
        let checksum = Checksum.crc32c(UnsafeRawBufferPointer(rebasing: bytes[start + 6..<end]))
        guard (checksum >> 15 | checksum << 17) &+ 0xA282_EAD8 == stored else { return nil }
        return (end, type == 1 || type == 4)
    }

    private static func hasLostSector(_ bytes: UnsafeRawBufferPointer, from start: Int) -> Bool {
        var place = start
        while place < bytes.count {
            let end = min(bytes.count, (place / sectorByteCount + 1) * sectorByteCount)
            if bytes[place..<end].allSatisfy({ $0 == 0 }) { return true }
            place = end
        }
        return false
    }
}
