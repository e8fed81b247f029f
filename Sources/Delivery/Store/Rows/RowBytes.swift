// Little-endian fields at any alignment. Readers check every bound: rows come back from a disk.

/// Writes fields one after the other into a buffer whose size the caller computed.
package struct RowWriter {
    let bytes: UnsafeMutableRawBufferPointer
    package private(set) var offset = 0

    package init(_ bytes: UnsafeMutableRawBufferPointer) { self.bytes = bytes }

    mutating func put<Value: FixedWidthInteger>(_ value: Value) {
        bytes.storeBytes(of: value.littleEndian, toByteOffset: offset, as: Value.self)
        offset += MemoryLayout<Value>.size
    }

    mutating func put(_ other: UnsafeRawBufferPointer) {
        guard let source = other.baseAddress, other.count > 0 else { return }
        precondition(offset + other.count <= bytes.count, "row is longer than announced")
        (bytes.baseAddress! + offset).copyMemory(from: source, byteCount: other.count)
        offset += other.count
    }
}

/// Reads what `RowWriter` wrote; `nil` from any read means that the row is cut short.
struct RowReader {
    let bytes: UnsafeRawBufferPointer
    private(set) var offset = 0
    var isAtEnd: Bool { offset == bytes.count }

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    mutating func next<Value: FixedWidthInteger>(_ type: Value.Type = Value.self) -> Value? {
        guard bytes.count - offset >= MemoryLayout<Value>.size else { return nil }
        defer { offset += MemoryLayout<Value>.size }
        return Value(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: Value.self))
    }

    mutating func next(byteCount: Int) -> UnsafeRawBufferPointer? {
        guard byteCount >= 0, bytes.count - offset >= byteCount else { return nil }
        defer { offset += byteCount }
        return UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + byteCount])
    }

    /// Up to 255 bytes of text, length first.
    mutating func nextText() -> String? {
        guard let count = next(UInt8.self), let text = next(byteCount: Int(count)) else { return nil }
        return String(decoding: text, as: UTF8.self)
    }
}

extension RowWriter {
    /// Writes what fits of a text, its length first; a long one is cut between two of its scalars.
    mutating func put(text: String) {
        var text = text
        let count = Self.byteCount(text: text) - 1
        put(UInt8(count))
        text.withUTF8 { put(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer($0)[..<count])) }
    }

    static func byteCount(text: String) -> Int {
        let bytes = text.utf8
        guard bytes.count > 255 else { return 1 + bytes.count }
        var (count, end) = (255, bytes.index(bytes.startIndex, offsetBy: 255))
        while bytes[end] & 0xC0 == 0x80 { (count, end) = (count - 1, bytes.index(before: end)) }
        return 1 + count
    }
}
