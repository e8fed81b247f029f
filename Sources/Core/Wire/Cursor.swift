/// A read position in a message body; every read checks its bounds and throws: a peer's bytes cannot cause a trap.
///
/// The bytes are passed to each call, so a cursor has two words and no lifetime dependency.
struct Cursor {
    private(set) var offset: Int
    let end: Int

    /// - Parameter range: the whole of `bytes`, or a range from `lengthDelimited(in:)`.
    init(_ range: Range<Int>) { (offset, end) = (range.lowerBound, range.upperBound) }

    /// Advances to the next field of `Field`, skips unknown fields and checks the wire type; returns `nil` at the end.
    @inline(__always)
    mutating func next<Field: MessageField>(_: Field.Type, in bytes: RawSpan) throws(WireError) -> Field? {
        while offset < end {
            let (number, wireType) = try tag(in: bytes)
            if let field = Field(rawValue: number) {
                guard wireType == field.shape.wireType else { throw .wrongWireType(field: number) }
                return field
            }
            try skip(wireType, in: bytes)
        }
        return nil
    }

    mutating func tag(in bytes: RawSpan) throws(WireError) -> (number: UInt32, wireType: WireType) {
        let tag = try varint(in: bytes)
        // Field numbers have 29 bits, so a tag has 32.
        guard tag <= UInt64(UInt32.max), tag >> 3 != 0, let wireType = WireType(rawValue: UInt8(tag & 7)) else {
            throw .badTag
        }
        return (UInt32(tag >> 3), wireType)
    }

    mutating func skip(_ wireType: WireType, in bytes: RawSpan) throws(WireError) {
        switch wireType {
        case .varint: _ = try varint(in: bytes)
        case .fixed64: try advance(8)
        case .fixed32: try advance(4)
        case .lengthDelimited: _ = try lengthDelimited(in: bytes)
        }
    }

    private mutating func advance(_ byteCount: Int) throws(WireError) {
        guard end - offset >= byteCount else { throw .truncated }
        offset += byteCount
    }

    // MARK: Numbers

    @inline(__always)
    mutating func varint(in bytes: RawSpan) throws(WireError) -> UInt64 {
        guard offset < end else { throw .truncated }
        let first = bytes.byte(at: offset)
        guard first >= 0x80 else {
            offset += 1
            return UInt64(first)
        }
        return try longVarint(in: bytes)
    }

    private mutating func longVarint(in bytes: RawSpan) throws(WireError) -> UInt64 {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while offset < end {
            let byte = bytes.byte(at: offset)
            offset += 1
            // The tenth byte holds the 64th bit and nothing else.
            if shift == 63 && byte > 1 { throw .varintTooLong }
            value |= UInt64(byte & 0x7F) << shift
            if byte < 0x80 { return value }
            shift += 7
        }
        throw .truncated
    }

    /// Reads a 32-bit field; as in every protobuf decoder, a longer number is truncated to its low half.
    mutating func uint32(in bytes: RawSpan) throws(WireError) -> UInt32 {
        UInt32(truncatingIfNeeded: try varint(in: bytes))
    }

    mutating func bool(in bytes: RawSpan) throws(WireError) -> Bool { try varint(in: bytes) != 0 }

    mutating func sint32(in bytes: RawSpan) throws(WireError) -> Int32 {
        let value = try uint32(in: bytes)
        return Int32(bitPattern: value >> 1) ^ -Int32(bitPattern: value & 1)
    }

    mutating func sint64(in bytes: RawSpan) throws(WireError) -> Int64 {
        let value = try varint(in: bytes)
        return Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
    }

    /// Reads an enum's value, or returns `nil` for an unknown number.
    mutating func value<Value: RawRepresentable>(
        _: Value.Type, in bytes: RawSpan
    ) throws(WireError) -> Value? where Value.RawValue == UInt8 {
        guard let raw = UInt8(exactly: try uint32(in: bytes)) else { return nil }
        return Value(rawValue: raw)
    }

    /// Reads an enum's value and throws for an unknown number, which has no safe meaning.
    mutating func knownValue<Value: RawRepresentable>(
        _ type: Value.Type, _ field: some MessageField, in bytes: RawSpan
    ) throws(WireError) -> Value where Value.RawValue == UInt8 {
        guard let value = try value(type, in: bytes) else { throw .unknownValue(field: field.rawValue) }
        return value
    }

    /// Reads an application state; an unknown one becomes `background`, which at worst causes an extra vendor alert.
    mutating func applicationState(in bytes: RawSpan) throws(WireError) -> ApplicationState {
        try value(ApplicationState.self, in: bytes) ?? .background
    }

    // MARK: Bytes

    /// Returns the range of a length-delimited field and advances past it.
    @inline(__always)
    mutating func lengthDelimited(in bytes: RawSpan) throws(WireError) -> Range<Int> {
        let byteCount = try varint(in: bytes)
        guard byteCount <= UInt64(end - offset) else { throw .truncated }
        let start = offset
        offset += Int(byteCount)
        return start..<offset
    }

    mutating func lengthDelimited(
        _ field: some MessageField, limit: Int, in bytes: RawSpan
    ) throws(WireError) -> Range<Int> {
        let range = try lengthDelimited(in: bytes)
        guard range.count <= limit else { throw .tooLong(field: field.rawValue) }
        return range
    }

    /// Returns the range of a text that is valid UTF-8.
    mutating func text(
        _ field: some MessageField, limit: Int = .max, in bytes: RawSpan
    ) throws(WireError) -> Range<Int> {
        let range = try lengthDelimited(field, limit: limit, in: bytes)
        guard bytes.isUTF8(range) else { throw .badText(field: field.rawValue) }
        return range
    }

    mutating func string(_ field: some MessageField, limit: Int, in bytes: RawSpan) throws(WireError) -> String {
        bytes.string(try text(field, limit: limit, in: bytes))
    }

    mutating func array(
        _ field: some MessageField, limit: Int = .max, in bytes: RawSpan
    ) throws(WireError) -> [UInt8] {
        bytes.array(try lengthDelimited(field, limit: limit, in: bytes))
    }

    /// Reads an identifier of sixteen bytes; an empty field is `ID.none`.
    mutating func identifier<ID: WideIdentifier>(
        _: ID.Type, _ field: some MessageField, in bytes: RawSpan
    ) throws(WireError) -> ID {
        let range = try lengthDelimited(in: bytes)
        if range.isEmpty { return .none }
        guard range.count == ID.byteCount else { throw .badIdentifier(field: field.rawValue) }
        return ID(high: bytes.word(at: range.lowerBound), low: bytes.word(at: range.lowerBound + 8))
    }

    mutating func element<Body: MessageBody>(
        of list: inout [Body], _ field: some MessageField, limit: Int, in bytes: RawSpan
    ) throws(WireError) {
        let range = try lengthDelimited(in: bytes)
        guard list.count < limit else { throw .tooMany(field: field.rawValue) }
        list.append(try Body(bytes, at: range))
    }
}

extension RawSpan {
    /// Returns the byte at `offset`, which must be inside the span.
    @inline(__always)
    func byte(at offset: Int) -> UInt8 {
        // Safe: the load checks its bounds, and every bit pattern is a UInt8.
        unsafe unsafeLoad(fromByteOffset: offset, as: UInt8.self)
    }

    /// Returns eight bytes in network order as a number.
    @inline(__always)
    func word(at offset: Int) -> UInt64 {
        // Safe: the load checks its bounds, and every bit pattern is a UInt64. It is unaligned because a field may start
        // anywhere.
        unsafe UInt64(bigEndian: unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }

    func array(_ range: Range<Int>) -> [UInt8] {
        // Safe: the pointer does not leave the closure, and `extracting` checks the range.
        unsafe extracting(range).withUnsafeBytes { unsafe [UInt8]($0) }
    }

    /// Returns the text in `range`; the range must be valid UTF-8: invalid bytes are replaced, not reported.
    func string(_ range: Range<Int>) -> String {
        // Safe for the same reasons as `array`.
        unsafe extracting(range).withUnsafeBytes { unsafe String(decoding: $0, as: UTF8.self) }
    }

    /// Returns whether the bytes are well-formed UTF-8 (Unicode, table 3-7), without overlong forms, surrogates or values above
    /// U+10FFFF.
    func isUTF8(_ range: Range<Int>) -> Bool {
        var offset = range.lowerBound
        let end = range.upperBound
        while offset < end {
            let lead = byte(at: offset)
            offset += 1
            if lead < 0x80 { continue }
            // The number of continuation bytes and the allowed values of the first.
            let followers: Int
            var allowed: ClosedRange<UInt8> = 0x80...0xBF
            switch lead {
            case 0xC2...0xDF: followers = 1
            case 0xE0: (followers, allowed) = (2, 0xA0...0xBF)
            case 0xED: (followers, allowed) = (2, 0x80...0x9F)
            case 0xE1...0xEF: followers = 2
            case 0xF0: (followers, allowed) = (3, 0x90...0xBF)
            case 0xF1...0xF3: followers = 3
            case 0xF4: (followers, allowed) = (3, 0x80...0x8F)
            default: return false
            }
            guard end - offset >= followers else { return false }
            for _ in 0..<followers {
                guard allowed.contains(byte(at: offset)) else { return false }
                allowed = 0x80...0xBF
                offset += 1
            }
        }
        return true
    }
}
