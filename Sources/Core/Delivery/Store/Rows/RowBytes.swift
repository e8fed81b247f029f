// Fields in little-endian order at any alignment, and varints. Readers check every bound because rows are read from disk.

internal import Wire

/// Writes consecutive fields into a buffer whose size the caller has computed.
///
/// `@safe`: the row's `byteCount` and `write` describe the same fields. A write of texts checks the remaining room. A debug build
/// also checks it for numbers.
@safe package struct RowWriter {
    let bytes: UnsafeMutableRawBufferPointer
    package private(set) var offset = 0

    package init(_ bytes: UnsafeMutableRawBufferPointer) { unsafe self.bytes = bytes }

    mutating func put<Value: FixedWidthInteger>(_ value: Value) {
        unsafe bytes.storeBytes(of: value.littleEndian, toByteOffset: offset, as: Value.self)
        offset += MemoryLayout<Value>.size
    }

    mutating func put(_ bytes: ArraySlice<UInt8>) { unsafe bytes.withUnsafeBytes { unsafe put($0) } }
    mutating func put(_ bytes: [UInt8]) { put(bytes[...]) }

    mutating func put(utf8 text: String) {
        var text = text
        text.withUTF8 { unsafe put(UnsafeRawBufferPointer($0)) }
    }

    mutating func put(_ other: UnsafeRawBufferPointer) {
        guard let source = other.baseAddress, other.count > 0 else { return }
        unsafe precondition(offset + other.count <= bytes.count, "row is longer than announced")
        unsafe (bytes.baseAddress! + offset).copyMemory(from: source, byteCount: other.count)
        offset += other.count
    }
}

/// Reads the fields that `RowWriter` wrote; `nil` from any read means that the row is truncated.
///
/// `@safe`: each read is checked against the remaining bytes.
@safe struct RowReader {
    let bytes: UnsafeRawBufferPointer
    private(set) var offset = 0
    var isAtEnd: Bool { unsafe offset == bytes.count }

    init(_ bytes: UnsafeRawBufferPointer) { unsafe self.bytes = bytes }

    mutating func next<Value: FixedWidthInteger>(_ type: Value.Type = Value.self) -> Value? {
        guard unsafe bytes.count - offset >= MemoryLayout<Value>.size else { return nil }
        defer { offset += MemoryLayout<Value>.size }
        return unsafe Value(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: Value.self))
    }

    mutating func skip(_ byte: UInt8) -> Bool {
        guard unsafe offset < bytes.count, unsafe bytes[offset] == byte else { return false }
        offset += 1
        return true
    }

    mutating func next(byteCount: Int) -> LentBytes? {
        guard byteCount >= 0, unsafe bytes.count - offset >= byteCount else { return nil }
        defer { offset += byteCount }
        return unsafe LentBytes(UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + byteCount]))
    }

    func bytes(from start: Int) -> LentBytes {
        unsafe LentBytes(UnsafeRawBufferPointer(rebasing: bytes[start..<offset]))
    }

    /// Reads up to 255 bytes of text after its length.
    mutating func nextText() -> String? {
        guard let count = next(UInt8.self), let text = next(byteCount: Int(count)) else { return nil }
        return text.text
    }
}

extension RowWriter {
    /// Writes a text of at most 255 bytes after its length; a longer text is cut between two scalars.
    mutating func put(text: String) {
        var text = text
        let count = Self.byteCount(text: text) - 1
        put(UInt8(count))
        text.withUTF8 { unsafe put(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer($0)[..<count])) }
    }

    static func byteCount(text: String) -> Int {
        let bytes = text.utf8
        guard bytes.count > 255 else { return 1 + bytes.count }
        var (count, end) = (255, bytes.index(bytes.startIndex, offsetBy: 255))
        while bytes[end] & 0xC0 == 0x80 { (count, end) = (count - 1, bytes.index(before: end)) }
        return 1 + count
    }
}

// MARK: Varints: seven bits per byte, the lowest first; a set top bit means that another byte follows

extension RowWriter {
    mutating func put(varint value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            put(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        put(UInt8(truncatingIfNeeded: rest))
    }

    /// Writes a signed number in zigzag form: the sign is the lowest bit.
    mutating func put(signed value: Int64) { put(varint: Self.folded(value)) }

    static func byteCount(varint value: UInt64) -> Int { max(1, (70 - value.leadingZeroBitCount) / 7) }

    static func byteCount(signed value: Int64) -> Int { byteCount(varint: folded(value)) }

    private static func folded(_ value: Int64) -> UInt64 { UInt64(bitPattern: value << 1 ^ value >> 63) }

    static let varintByteCount = 10
}

extension RowReader {
    mutating func nextVarint() -> UInt64? {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while let byte = next(UInt8.self) {
            // Nine bytes hold 63 bits, so the tenth byte is at most 1.
            guard shift < 63 || byte <= 1 else { return nil }
            value |= UInt64(byte & 0x7F) << shift
            guard byte >= 0x80 else { return value }
            shift += 7
        }
        return nil
    }

    mutating func nextSigned() -> Int64? {
        guard let folded = nextVarint() else { return nil }
        return Int64(bitPattern: folded >> 1) ^ -Int64(bitPattern: folded & 1)
    }
}

// MARK: Parts of a row, each with its length before it

extension RowWriter {
    mutating func put(part: UnsafeRawBufferPointer) {
        put(varint: UInt64(part.count))
        unsafe put(part)
    }

    static func byteCount(part count: Int) -> Int { byteCount(varint: UInt64(count)) + count }
}

extension RowReader {
    /// Reads the length of a part; `nil` if it exceeds the row.
    mutating func nextCount() -> Int? {
        guard let count = nextVarint(), unsafe count <= UInt64(bytes.count) else { return nil }
        return Int(count)
    }

    mutating func nextOffset() -> Int32? { nextVarint().flatMap { Int32(exactly: $0) } }

    /// Skips bytes; returns false if the row has fewer bytes.
    mutating func skip(_ byteCount: Int) -> Bool { next(byteCount: byteCount) != nil }
}

// MARK: Task ids

extension RowWriter {
    /// Returns whether the id has the compact form: a kind, a date, and a spare byte of 0.
    static func isPlain(_ task: TaskID) -> Bool {
        task.high >> 63 == 0 && (task.high >> 48) & 0xFF < 16 && (task.high >> 40) & 0xFF < 32
            && (task.high >> 32) & 0xFF == 0
    }

    static func byteCount(_ task: TaskID) -> Int { isPlain(task) ? 14 : 16 }

    /// Writes kind, month and day in two bytes and twelve random bytes; all sixteen bytes if the id is not plain.
    mutating func put(_ task: TaskID, isPlain: Bool) {
        if isPlain {
            put(Self.plainHead(task))
            put(UInt32(truncatingIfNeeded: task.high))
        } else {
            put(task.high)
        }
        put(task.low)
    }

    static func plainHead(_ task: TaskID) -> UInt16 {
        let (kind, month, day) = (task.high >> 56, task.high >> 48 & 0xF, task.high >> 40 & 0x1F)
        return UInt16(truncatingIfNeeded: kind << 9 | month << 5 | day)
    }
}

extension RowReader {
    mutating func nextTask(isPlain: Bool) -> TaskID? {
        guard isPlain else { return nextIdentifier(TaskID.self) }
        guard let head = next(UInt16.self), let first = next(UInt32.self), let low = next(UInt64.self) else {
            return nil
        }
        return Self.task(head, random: UInt64(first), low)
    }

    static func task(_ head: UInt16, random first: UInt64, _ low: UInt64) -> TaskID {
        let (kind, month, day) = (UInt64(head >> 9), UInt64(head >> 5 & 0xF), UInt64(head & 0x1F))
        return TaskID(high: kind << 56 | month << 48 | day << 40 | first, low: low)
    }
}

// MARK: Sizes

/// A target for a row's fields: a writer, or a meter that computes their size.
///
/// One function can then list a row's fields for both.
protocol RowSink {
    mutating func put<Value: FixedWidthInteger>(_ value: Value)
    mutating func put(varint value: UInt64)
    mutating func put(signed value: Int64)
    mutating func put(_ task: TaskID, isPlain: Bool)
}

extension RowWriter: RowSink {}

struct RowMeter: RowSink {
    private(set) var byteCount = 0
    mutating func put<Value: FixedWidthInteger>(_ value: Value) { byteCount += MemoryLayout<Value>.size }
    mutating func put(varint value: UInt64) { byteCount += RowWriter.byteCount(varint: value) }
    mutating func put(signed value: Int64) { byteCount += RowWriter.byteCount(signed: value) }
    mutating func put(_ task: TaskID, isPlain: Bool) { byteCount += RowWriter.byteCount(task) }
}
