// The layout of a batch in a segment: a header of 32 bytes, then operations, then zeros up to a multiple of eight.
//
// The loop that encodes a batch fills in all fields except the segment's generation, the group start and the header checksum.
// Only the committer knows these three fields. The checksum is seeded with the whole generation, so that stale bytes of an
// earlier use of the file never pass. The group start states that everything before that offset was synced when this record was
// written. With durability `os` nothing was synced, and the field is 0.
//
//     0  body bytes    u32     8  body CRC32C      u32     16  ticket       u64     28  header CRC32C  u32
//     4  bucket        u16    12  generation, low  u32     24  group start  u32
//     6  operations    u16
//
// An operation has only the fields that its flags byte names. The owner is omitted if it equals the owner of the previous
// operation in the batch.
//
//     flags u8 · table u8 · [owner 16] · [item] · [wakeAt] · [alarm of the prior row] · [value bytes] · value
//     flags: 1–2 kind · 4–8 prior · 16 owner as before · 32 item · 64 wakeAt · 128 alarm of the prior row
//
// The header's numbers and the owner are little-endian, because Longwire runs only on little-endian machines. All other numbers
// use `PackedNumber`: seven bits a byte, least significant first, and eight bits in a ninth byte.

internal import Platform

package struct RecordHeader: Equatable {
    package static let byteCount = 32

    package var bodyByteCount: Int
    package var bucket: UInt16
    package var operationCount: Int
    package var bodyChecksum: UInt32
    package var generation: UInt64
    package var groupStart: Int
    /// The batch's sequence number within its shard and run.
    package var ticket: UInt64

    /// Returns the padded size of a batch with `bodyByteCount` bytes of operations.
    @inline(__always) package static func recordByteCount(bodyByteCount: Int) -> Int {
        (byteCount + bodyByteCount + Limits.alignment - 1) & ~(Limits.alignment - 1)
    }
    package var recordByteCount: Int { Self.recordByteCount(bodyByteCount: bodyByteCount) }

    /// Writes the fields that the encoding loop knows.
    package static func write(
        bodyByteCount: Int, bucket: UInt16, operationCount: Int, bodyChecksum: UInt32, ticket: UInt64,
        to header: UnsafeMutableRawPointer
    ) {
        header.storeBytes(of: UInt32(bodyByteCount), as: UInt32.self)
        header.storeBytes(of: bucket, toByteOffset: 4, as: UInt16.self)
        header.storeBytes(of: UInt16(operationCount), toByteOffset: 6, as: UInt16.self)
        header.storeBytes(of: bodyChecksum, toByteOffset: 8, as: UInt32.self)
        header.storeBytes(of: ticket, toByteOffset: 16, as: UInt64.self)
    }

    /// Writes the fields that the committer knows, and the checksum.
    package static func seal(_ header: UnsafeMutableRawPointer, generation: UInt64, groupStart: Int) {
        header.storeBytes(of: UInt32(truncatingIfNeeded: generation), toByteOffset: 12, as: UInt32.self)
        header.storeBytes(of: UInt32(groupStart), toByteOffset: 24, as: UInt32.self)
        let checksum = Checksum.crc32c(
            UnsafeRawBufferPointer(start: header, count: 28), seed: seed(generation: generation))
        header.storeBytes(of: checksum, toByteOffset: 28, as: UInt32.self)
    }

    /// Reads the header at `offset`; `nil` unless it is a valid header of this generation.
    package init?(in bytes: UnsafeRawBufferPointer, at offset: Int, generation: UInt64) {
        guard offset >= 0, bytes.count - offset >= Self.byteCount else { return nil }
        let header = UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + Self.byteCount])
        // Compare the generation first: the check is cheap and fails at nearly every offset of a search behind a damaged record.
        guard header.loadUnaligned(fromByteOffset: 12, as: UInt32.self) == UInt32(truncatingIfNeeded: generation) else {
            return nil
        }
        let checksum = Checksum.crc32c(
            UnsafeRawBufferPointer(rebasing: header[..<28]), seed: Self.seed(generation: generation))
        guard header.loadUnaligned(fromByteOffset: 28, as: UInt32.self) == checksum else { return nil }
        bodyByteCount = Int(header.loadUnaligned(as: UInt32.self))
        bucket = header.loadUnaligned(fromByteOffset: 4, as: UInt16.self)
        operationCount = Int(header.loadUnaligned(fromByteOffset: 6, as: UInt16.self))
        bodyChecksum = header.loadUnaligned(fromByteOffset: 8, as: UInt32.self)
        self.generation = generation
        ticket = header.loadUnaligned(fromByteOffset: 16, as: UInt64.self)
        groupStart = Int(header.loadUnaligned(fromByteOffset: 24, as: UInt32.self))
    }

    package static func seed(generation: UInt64) -> UInt32 {
        // Mix the generation, so that a few damaged bits cannot compensate for the seed difference of adjacent generations.
        let mixed = (generation &+ 0x9E37_79B9_7F4A_7C15) &* 0xBF58_476D_1CE4_E5B9
        return UInt32(truncatingIfNeeded: mixed >> 32)
    }
}

package struct Operation {
    package enum Kind: UInt8 {
        case put = 1
        case delete = 2
        /// Adds to the numbers in a row; the value encodes the change.
        case add = 3
    }

    /// The place of an earlier row with the same key, as far as the writer knew.
    package enum Prior: UInt8 {
        /// No row in the journal or on the disk.
        case nothing = 0
        /// The ordered store may have a row, with the alarm `coldAlarm` (0 for none).
        case maybeCold = 1
        /// A row of this journal that was never moved to the ordered store.
        case journalOnly = 2
    }

    package var kind: Kind
    package var bucket: UInt16
    package var ticket: UInt64
    package var table: UInt8
    package var prior: Prior
    package var ownerHigh: UInt64
    package var ownerLow: UInt64
    package var item: UInt64
    package var wakeAt: Int64
    package var coldAlarm: Int64
    /// The new value, or the change of an `add`; empty for a delete.
    package var value: UnsafeRawBufferPointer

    /// Calls `visit` for each operation of a body; returns `false` if the bytes do not match the header's operation count.
    package static func readAll(
        in body: UnsafeRawBufferPointer, of header: RecordHeader, _ visit: (Operation) -> Void
    ) -> Bool {
        var offset = 0
        var owner: (high: UInt64, low: UInt64)?
        for _ in 0..<header.operationCount {
            guard let operation = read(in: body, at: &offset, header, &owner) else { return false }
            visit(operation)
        }
        return offset == body.count
    }

    private static func read(
        in body: UnsafeRawBufferPointer, at offset: inout Int, _ header: RecordHeader,
        _ owner: inout (high: UInt64, low: UInt64)?
    ) -> Operation? {
        guard body.count - offset >= 2 else { return nil }
        let flags = OperationFlags(rawValue: body[offset])
        guard let kind = flags.kind, let prior = flags.prior else { return nil }
        let table = body[offset + 1]
        offset += 2
        if !flags.contains(.ownerAsBefore) {
            guard body.count - offset >= 16 else { return nil }
            owner = (
                body.loadUnaligned(fromByteOffset: offset, as: UInt64.self),
                body.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self)
            )
            offset += 16
        }
        guard let owner, let item = number(flags.contains(.item), in: body, at: &offset),
            let wakeAt = number(flags.contains(.wakeAt), in: body, at: &offset),
            let coldAlarm = number(flags.contains(.coldAlarm), in: body, at: &offset),
            let valueByteCount = number(kind != .delete, in: body, at: &offset),
            valueByteCount <= UInt64(body.count - offset)
        else { return nil }
        let value = UnsafeRawBufferPointer(rebasing: body[offset..<offset + Int(valueByteCount)])
        offset += value.count
        return Operation(
            kind: kind, bucket: header.bucket, ticket: header.ticket, table: table, prior: prior,
            ownerHigh: owner.high, ownerLow: owner.low, item: item, wakeAt: Int64(bitPattern: wakeAt),
            coldAlarm: Int64(bitPattern: coldAlarm), value: value)
    }

    private static func number(_ isThere: Bool, in body: UnsafeRawBufferPointer, at offset: inout Int) -> UInt64? {
        isThere ? PackedNumber.read(body, at: &offset) : 0
    }
}

private struct OperationFlags: OptionSet {
    var rawValue: UInt8
    static let ownerAsBefore = OperationFlags(rawValue: 16)
    static let item = OperationFlags(rawValue: 32)
    static let wakeAt = OperationFlags(rawValue: 64)
    static let coldAlarm = OperationFlags(rawValue: 128)

    init(rawValue: UInt8) { self.rawValue = rawValue }
    init(_ kind: Operation.Kind, _ prior: Operation.Prior) { rawValue = kind.rawValue | prior.rawValue << 2 }

    var kind: Operation.Kind? { Operation.Kind(rawValue: rawValue & 3) }
    var prior: Operation.Prior? { Operation.Prior(rawValue: rawValue >> 2 & 3) }
}

/// The encoded fields of an operation before its value.
package struct OperationHeader {
    /// The maximum size in bytes: two bytes, the owner, three numbers and a value size below 2^28.
    package static let largestByteCount = 2 + 16 + 3 * 9 + 4

    private let flags: OperationFlags
    private let table: UInt8
    private let ownerHigh: UInt64
    private let ownerLow: UInt64
    private let item: UInt64
    private let wakeAt: UInt64
    private let coldAlarm: UInt64
    private let valueByteCount: UInt64?
    package let byteCount: Int

    @inline(__always)
    package init(
        _ kind: Operation.Kind, table: UInt8, prior: Operation.Prior, ownerHigh: UInt64, ownerLow: UInt64,
        isOwnerAsBefore: Bool, item: UInt64, wakeAt: Int64, coldAlarm: Int64, valueByteCount: Int
    ) {
        var flags = OperationFlags(kind, prior)
        var byteCount = 2
        if isOwnerAsBefore { flags.insert(.ownerAsBefore) } else { byteCount += 16 }
        if item != 0 {
            flags.insert(.item)
            byteCount += PackedNumber.byteCount(item)
        }
        if wakeAt != 0 {
            flags.insert(.wakeAt)
            byteCount += PackedNumber.byteCount(UInt64(bitPattern: wakeAt))
        }
        if coldAlarm != 0 {
            flags.insert(.coldAlarm)
            byteCount += PackedNumber.byteCount(UInt64(bitPattern: coldAlarm))
        }
        if kind != .delete { byteCount += PackedNumber.byteCount(UInt64(valueByteCount)) }
        (self.flags, self.table, self.ownerHigh, self.ownerLow) = (flags, table, ownerHigh, ownerLow)
        (self.item, self.wakeAt) = (item, UInt64(bitPattern: wakeAt))
        self.coldAlarm = UInt64(bitPattern: coldAlarm)
        self.valueByteCount = kind == .delete ? nil : UInt64(valueByteCount)
        self.byteCount = byteCount
    }

    /// Writes exactly `byteCount` bytes; the caller appends the value of a put.
    @inline(__always) package func write(to bytes: UnsafeMutableRawPointer) {
        bytes.storeBytes(of: flags.rawValue, as: UInt8.self)
        bytes.storeBytes(of: table, toByteOffset: 1, as: UInt8.self)
        var next = bytes + 2
        if !flags.contains(.ownerAsBefore) {
            next.storeBytes(of: ownerHigh, as: UInt64.self)
            next.storeBytes(of: ownerLow, toByteOffset: 8, as: UInt64.self)
            next += 16
        }
        if item != 0 { PackedNumber.write(item, to: &next) }
        if wakeAt != 0 { PackedNumber.write(wakeAt, to: &next) }
        if coldAlarm != 0 { PackedNumber.write(coldAlarm, to: &next) }
        if let valueByteCount { PackedNumber.write(valueByteCount, to: &next) }
    }
}

/// Variable-length integers: seven bits a byte, least significant first.
///
/// The top bit marks a following byte; a ninth byte has eight bits.
enum PackedNumber {
    @inline(__always) static func byteCount(_ value: UInt64) -> Int {
        min(9, max(1, (64 - value.leadingZeroBitCount + 6) / 7))
    }

    @inline(__always) static func write(_ value: UInt64, to bytes: inout UnsafeMutableRawPointer) {
        var rest = value
        for _ in 1..<byteCount(value) {
            bytes.storeBytes(of: UInt8(truncatingIfNeeded: rest) | 128, as: UInt8.self)
            bytes += 1
            rest >>= 7
        }
        bytes.storeBytes(of: UInt8(truncatingIfNeeded: rest), as: UInt8.self)
        bytes += 1
    }

    /// Returns `nil` if the bytes end within the number.
    static func read(_ bytes: UnsafeRawBufferPointer, at offset: inout Int) -> UInt64? {
        var value: UInt64 = 0
        for place in 0..<9 {
            guard offset < bytes.count else { return nil }
            let byte = UInt64(bytes[offset])
            offset += 1
            guard place < 8 else { return value | byte << 56 }
            value |= (byte & 127) << (7 * UInt64(place))
            if byte & 128 == 0 { return value }
        }
        return nil
    }
}
