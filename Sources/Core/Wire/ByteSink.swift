/// A destination of encoded bytes; one encoding function per message serves all sinks, so counted and written sizes agree.
package protocol ByteSink {
    mutating func put(_ byte: UInt8)
    mutating func put(varint value: UInt64)
    mutating func put(word: UInt64)
    mutating func put(text: String)
    /// Appends bytes that the caller keeps alive during the call.
    @unsafe mutating func put(bytes: UnsafeRawBufferPointer)
}

struct ByteCounter: ByteSink {
    private(set) var byteCount = 0

    mutating func put(_: UInt8) { byteCount += 1 }
    mutating func put(varint value: UInt64) {
        // One byte per 7 bits, rounded up. For 1 to 64 bits, (9 × bits + 64) / 64 gives that number without a division by 7.
        byteCount += (9 * (64 - (value | 1).leadingZeroBitCount) + 64) >> 6
    }
    mutating func put(word _: UInt64) { byteCount += 8 }
    mutating func put(text: String) { byteCount += text.utf8.count }
    @unsafe mutating func put(bytes: UnsafeRawBufferPointer) { byteCount += bytes.count }
}

/// A sink that appends to an array, for messages off the hot path.
struct ArraySink: ByteSink {
    var bytes: [UInt8] = []

    mutating func put(_ byte: UInt8) { bytes.append(byte) }
    mutating func put(varint value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: rest))
    }
    mutating func put(word: UInt64) {
        for shift in stride(from: 56, through: 0, by: -8) {
            bytes.append(UInt8(truncatingIfNeeded: word >> UInt64(shift)))
        }
    }
    mutating func put(text: String) { bytes.append(contentsOf: text.utf8) }
    @unsafe mutating func put(bytes more: UnsafeRawBufferPointer) { unsafe bytes.append(contentsOf: more) }
}

/// A sink that fills the caller's memory, such as an outbox, without allocation.
///
/// It is unsafe because it stores a pointer: the caller keeps the memory alive until the encoder returns. Each write checks the
/// bound, so a buffer that is too small ends the process instead of corrupting memory.
@unsafe struct BufferFiller: ByteSink {
    let buffer: UnsafeMutableRawBufferPointer
    private(set) var byteCount = 0

    init(_ buffer: UnsafeMutableRawBufferPointer) { unsafe self.buffer = buffer }

    @inline(__always)
    private mutating func reserve(_ count: Int) -> Int {
        let start = unsafe byteCount
        unsafe precondition(buffer.count - start >= count, "the buffer is smaller than the frame's byte count")
        unsafe byteCount = start + count
        return start
    }

    @inline(__always)
    mutating func put(_ byte: UInt8) {
        let start = unsafe reserve(1)
        unsafe buffer.storeBytes(of: byte, toByteOffset: start, as: UInt8.self)
    }

    @inline(__always)
    mutating func put(varint value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            unsafe put(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        unsafe put(UInt8(truncatingIfNeeded: rest))
    }

    mutating func put(word: UInt64) {
        let start = unsafe reserve(8)
        unsafe buffer.storeBytes(of: word.bigEndian, toByteOffset: start, as: UInt64.self)
    }

    mutating func put(text: String) {
        for byte in text.utf8 { unsafe put(byte) }
    }

    mutating func put(bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress else { return }
        let start = unsafe reserve(bytes.count)
        unsafe buffer.baseAddress?.advanced(by: start).copyMemory(from: source, byteCount: bytes.count)
    }
}

/// Fields in proto3: a value equal to its default is omitted, unless its field is `optional` or repeated.
extension ByteSink {
    mutating func number(_ value: UInt64, _ field: some MessageField) {
        if value != 0 { present(value, field) }
    }

    mutating func number(_ value: UInt32, _ field: some MessageField) { number(UInt64(value), field) }

    mutating func number(_ value: Int64, _ field: some MessageField) {
        number(UInt64(bitPattern: value << 1 ^ value >> 63), field)
    }

    mutating func flag(_ value: Bool, _ field: some MessageField) {
        if value { present(1, field) }
    }

    mutating func value<Value: RawRepresentable>(
        _ value: Value, _ field: some MessageField
    ) where Value.RawValue == UInt8 {
        number(UInt64(value.rawValue), field)
    }

    /// Writes a number with its tag, even if it is zero.
    mutating func present(_ value: UInt64, _ field: some MessageField) {
        put(varint: field.tag)
        put(varint: value)
    }

    mutating func optional(_ value: Bool?, _ field: some MessageField) {
        if let value { present(value ? 1 : 0, field) }
    }

    mutating func optional(_ value: Int32?, _ field: some MessageField) {
        if let value { present(UInt64(UInt32(bitPattern: value << 1 ^ value >> 31)), field) }
    }

    mutating func optional(_ value: Int64?, _ field: some MessageField) {
        if let value { present(UInt64(bitPattern: value << 1 ^ value >> 63), field) }
    }

    mutating func optional(_ value: ApplicationState?, _ field: some MessageField) {
        if let value { present(UInt64(value.rawValue), field) }
    }

    mutating func text(_ value: String, _ field: some MessageField) {
        guard !value.isEmpty else { return }
        put(varint: field.tag)
        put(varint: UInt64(value.utf8.count))
        put(text: value)
    }

    mutating func bytes(_ value: [UInt8], _ field: some MessageField) {
        // Safe: the pointer is valid during the call.
        unsafe value.withUnsafeBytes { unsafe bytes($0, field) }
    }

    /// Writes bytes that the caller must keep alive during the call.
    @unsafe mutating func bytes(_ value: UnsafeRawBufferPointer, _ field: some MessageField) {
        guard unsafe !value.isEmpty else { return }
        put(varint: field.tag)
        put(varint: UInt64(value.count))
        unsafe put(bytes: value)
    }

    mutating func identifier(_ value: some WideIdentifier, _ field: some MessageField) {
        if !value.isNone { element(value, field) }
    }

    /// Writes an element of a repeated identifier field; `none` is written as an empty element.
    mutating func element(_ value: some WideIdentifier, _ field: some MessageField) {
        put(varint: field.tag)
        guard !value.isNone else { return put(0) }
        put(16)
        put(word: value.high)
        put(word: value.low)
    }

    /// Writes an embedded message; its size is counted first because the length precedes the message.
    mutating func message(_ value: some MessageBody, _ field: some MessageField) {
        var counter = ByteCounter()
        value.write(to: &counter)
        put(varint: field.tag)
        put(varint: UInt64(counter.byteCount))
        value.write(to: &self)
    }

    mutating func messages(_ values: [some MessageBody], _ field: some MessageField) {
        for value in values { message(value, field) }
    }
}
