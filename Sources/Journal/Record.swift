// How a batch stands in a segment: a header of 40 bytes, then operations, then zeros up to a multiple of eight.
//
// The loop that encodes a batch fills in everything but the last three fields, which only the committer knows: the
// generation of the segment, the offset at which the group of this batch begins, and the header's checksum. The
// checksum is seeded with the generation, so that what an earlier use of the file left behind never passes. The
// group's start says what was synced when this record was written: everything before it. With durability `os` nothing
// was, and it is 0.
//
//     0  body bytes    u32     8  body CRC32C  u32     16  generation   u64     32  header CRC32C  u32
//     4  bucket        u16    12  reserved     u32     24  group start  u64     36  reserved       u32
//     6  operations    u16
//
// An operation is a header of 48 bytes and, for a put, the value:
//
//     0  kind u8   1  table u8   2  prior u8   3  reserved   4  value bytes u32
//     8  owner u64 u64          24  item u64  32  wakeAt i64  40  alarm of the prior row i64
//
// Numbers are little-endian. They are written as the machine has them: Longwire runs on little-endian machines only.

internal import Platform

/// The header of a batch.
package struct RecordHeader: Equatable {
    package static let byteCount = 40

    package var bodyByteCount: Int
    package var bucket: UInt16
    package var operationCount: Int
    package var bodyChecksum: UInt32
    package var generation: UInt64
    package var groupStart: Int

    /// The space of a batch with `bodyByteCount` bytes of operations.
    @inline(__always) package static func recordByteCount(bodyByteCount: Int) -> Int {
        (byteCount + bodyByteCount + Limits.alignment - 1) & ~(Limits.alignment - 1)
    }
    package var recordByteCount: Int { Self.recordByteCount(bodyByteCount: bodyByteCount) }

    /// Writes what the loop knows.
    package static func write(
        bodyByteCount: Int, bucket: UInt16, operationCount: Int, bodyChecksum: UInt32,
        to header: UnsafeMutableRawPointer
    ) {
        header.storeBytes(of: UInt32(bodyByteCount), as: UInt32.self)
        header.storeBytes(of: bucket, toByteOffset: 4, as: UInt16.self)
        header.storeBytes(of: UInt16(operationCount), toByteOffset: 6, as: UInt16.self)
        header.storeBytes(of: bodyChecksum, toByteOffset: 8, as: UInt32.self)
        header.storeBytes(of: 0, toByteOffset: 12, as: UInt32.self)
        header.storeBytes(of: 0, toByteOffset: 36, as: UInt32.self)
    }

    /// Writes what the committer knows.
    package static func seal(_ header: UnsafeMutableRawPointer, generation: UInt64, groupStart: Int) {
        header.storeBytes(of: generation, toByteOffset: 16, as: UInt64.self)
        header.storeBytes(of: UInt64(groupStart), toByteOffset: 24, as: UInt64.self)
        let checksum = Checksum.crc32c(
            UnsafeRawBufferPointer(start: header, count: 32), seed: seed(generation: generation))
        header.storeBytes(of: checksum, toByteOffset: 32, as: UInt32.self)
    }

    /// Reads the header at `offset`; `nil` unless it is one of this generation and lies, body and all, in `bytes`.
    package init?(in bytes: UnsafeRawBufferPointer, at offset: Int, generation: UInt64) {
        guard offset >= 0, bytes.count - offset >= Self.byteCount else { return nil }
        let header = UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + Self.byteCount])
        // The generation first: cheap, and wrong nearly everywhere in the search behind a damaged record.
        guard header.loadUnaligned(fromByteOffset: 16, as: UInt64.self) == generation else { return nil }
        let checksum = Checksum.crc32c(
            UnsafeRawBufferPointer(rebasing: header[..<32]), seed: Self.seed(generation: generation))
        guard header.loadUnaligned(fromByteOffset: 32, as: UInt32.self) == checksum else { return nil }
        bodyByteCount = Int(header.loadUnaligned(as: UInt32.self))
        bucket = header.loadUnaligned(fromByteOffset: 4, as: UInt16.self)
        operationCount = Int(header.loadUnaligned(fromByteOffset: 6, as: UInt16.self))
        bodyChecksum = header.loadUnaligned(fromByteOffset: 8, as: UInt32.self)
        self.generation = generation
        groupStart = Int(truncatingIfNeeded: header.loadUnaligned(fromByteOffset: 24, as: UInt64.self))
    }

    package static func seed(generation: UInt64) -> UInt32 {
        // Neighbouring generations must not give seeds that a few bits of damage can make up for.
        let mixed = (generation &+ 0x9E37_79B9_7F4A_7C15) &* 0xBF58_476D_1CE4_E5B9
        return UInt32(truncatingIfNeeded: mixed >> 32)
    }
}

/// One change of one row, as it stands in a batch.
package struct Operation {
    package static let headerByteCount = 48
    package static let putKind: UInt8 = 1
    package static let deleteKind: UInt8 = 2

    /// What stood under the key before the operation, as far as its writer knew.
    package enum Prior: UInt8 {
        /// Nothing, in the journal or on the disk.
        case nothing = 0
        /// Perhaps a row in the ordered store, with the alarm `coldAlarm` (0 for none).
        case maybeCold = 1
        /// A row of this journal that the ordered store has never had.
        case journalOnly = 2
    }

    package var isPut: Bool
    package var bucket: UInt16
    package var table: UInt8
    package var prior: Prior
    package var ownerHigh: UInt64
    package var ownerLow: UInt64
    package var item: UInt64
    package var wakeAt: Int64
    package var coldAlarm: Int64
    /// Empty for a delete.
    package var value: UnsafeRawBufferPointer

    /// Writes the header of an operation; a put's value follows it.
    @inline(__always) package static func write(
        isPut: Bool, table: UInt8, prior: Prior, ownerHigh: UInt64, ownerLow: UInt64, item: UInt64, wakeAt: Int64,
        coldAlarm: Int64, valueByteCount: Int, to header: UnsafeMutableRawPointer
    ) {
        header.storeBytes(of: isPut ? putKind : deleteKind, as: UInt8.self)
        header.storeBytes(of: table, toByteOffset: 1, as: UInt8.self)
        header.storeBytes(of: prior.rawValue, toByteOffset: 2, as: UInt8.self)
        header.storeBytes(of: 0, toByteOffset: 3, as: UInt8.self)
        header.storeBytes(of: UInt32(valueByteCount), toByteOffset: 4, as: UInt32.self)
        header.storeBytes(of: ownerHigh, toByteOffset: 8, as: UInt64.self)
        header.storeBytes(of: ownerLow, toByteOffset: 16, as: UInt64.self)
        header.storeBytes(of: item, toByteOffset: 24, as: UInt64.self)
        header.storeBytes(of: wakeAt, toByteOffset: 32, as: Int64.self)
        header.storeBytes(of: coldAlarm, toByteOffset: 40, as: Int64.self)
    }

    /// Calls `visit` for each operation of a body; `false` if the bytes are not what `operationCount` operations fill.
    package static func readAll(
        in body: UnsafeRawBufferPointer, bucket: UInt16, operationCount: Int, _ visit: (Operation) -> Void
    ) -> Bool {
        var offset = 0
        for _ in 0..<operationCount {
            guard body.count - offset >= headerByteCount else { return false }
            let kind = body[offset]
            let valueByteCount = Int(body.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self))
            guard kind == putKind || kind == deleteKind, let prior = Prior(rawValue: body[offset + 2]),
                body.count - offset - headerByteCount >= valueByteCount
            else {
                return false
            }
            let valueStart = offset + headerByteCount
            visit(
                Operation(
                    isPut: kind == putKind, bucket: bucket, table: body[offset + 1], prior: prior,
                    ownerHigh: body.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self),
                    ownerLow: body.loadUnaligned(fromByteOffset: offset + 16, as: UInt64.self),
                    item: body.loadUnaligned(fromByteOffset: offset + 24, as: UInt64.self),
                    wakeAt: body.loadUnaligned(fromByteOffset: offset + 32, as: Int64.self),
                    coldAlarm: body.loadUnaligned(fromByteOffset: offset + 40, as: Int64.self),
                    value: UnsafeRawBufferPointer(rebasing: body[valueStart..<valueStart + valueByteCount])))
            offset = valueStart + valueByteCount
        }
        return offset == body.count
    }
}
