// RocksDB's list of tables (the MANIFEST) behind its last whole record. RocksDB syncs each record before anything relies on
// it, and reads a list that ends early. A power failure may also leave a hole: a later sector of the record that was being
// written is there and an earlier one is not. RocksDB takes that for damage and does not open.

internal import Platform

enum ManifestTail {
    /// RocksDB's log format: blocks of `blockByteCount` bytes; a record's header is checksum, length and type.
    private static let (blockByteCount, headerByteCount) = (32_768, 7)
    private static let sectorByteCount = 512
    /// A record that a power failure tore is the last one; more than this is not looked through.
    private static let tailLimit = 1 << 20

    /// Cuts a torn record off the list that CURRENT names.
    ///
    /// - Returns: how many bytes went.
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

    /// Where the last whole record ends, if a torn one is behind it and nothing else.
    ///
    /// Torn is only what has a sector of zeros, as one that was never written has: a sector that was written and has
    /// changed since is damage, which is not ours to cut.
    static func tornAt(_ bytes: UnsafeRawBufferPointer) -> Int? {
        var (offset, whole) = (0, 0)
        while let record = record(bytes, offset) {
            offset = record.end
            if record.isLast { whole = offset }
        }
        guard whole < bytes.count, bytes.count - whole <= tailLimit, hasLostSector(bytes, from: whole) else {
            return nil
        }
        // A later record that is whole was written after this one was synced.
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
        // Whole, first, middle, last.
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
