// The compact encoding of rare messages between gateways, based on Codable.
//
// A value is a tag followed by its content. A structure is a list of names and values with its length in front. Readers can skip
// unknown names, so a release may add fields. A list also starts with its length in bytes.

internal import Wire

/// The first byte of each value.
enum CompactTag: UInt8 {
    case none = 0
    case no
    case yes
    /// A non-negative number: seven bits per byte, lowest first.
    case positive
    /// The bitwise complement of a negative number, encoded like `positive`.
    case negative
    /// A floating-point number in eight bytes.
    case double
    /// A text or bytes, after their count.
    case bytes
    /// The total length of the values in four bytes, then the values.
    case list
    /// Names, each followed by a value, after their total length in four bytes.
    case fields
    /// An identifier in sixteen bytes.
    case identifier
}

struct CompactEncoder {
    /// Encodes a value.
    ///
    /// - Throws: `EncodingError` for a value that cannot be encoded; messages between gateways always can.
    static func encode(_ value: some Encodable) throws -> [UInt8] {
        let writer = CompactWriter()
        try writer.put(any: value)
        return writer.bytes
    }
}

/// The output of an encoding; a write to an outer container closes the containers inside it.
private final class CompactWriter {
    private(set) var bytes: [UInt8] = []
    /// The offset of each open container's length field.
    private var open: [Int] = []

    var depth: Int { open.count }

    func begin(_ tag: CompactTag) {
        put(tag)
        open.append(bytes.count)
        bytes.append(contentsOf: [0, 0, 0, 0])
    }

    func close(to depth: Int) throws {
        while open.count > depth, let start = open.popLast() {
            guard let count = UInt32(exactly: bytes.count - start - 4) else {
                throw EncodingError.invalidValue(
                    start, .init(codingPath: [], debugDescription: "a container is too large"))
            }
            for place in 0..<4 { bytes[start + place] = UInt8(truncatingIfNeeded: count >> UInt32(8 * place)) }
        }
    }

    func put(_ tag: CompactTag) { bytes.append(tag.rawValue) }

    func put(varint value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: rest))
    }

    func put(name: String) {
        put(varint: UInt64(name.utf8.count))
        bytes.append(contentsOf: name.utf8)
    }

    func put(_ value: Bool) { put(value ? CompactTag.yes : .no) }

    func put(_ value: some FixedWidthInteger) {
        if value < 0 {
            put(CompactTag.negative)
            put(varint: UInt64(truncatingIfNeeded: ~value))
        } else {
            put(CompactTag.positive)
            put(varint: UInt64(truncatingIfNeeded: value))
        }
    }

    func put(_ value: Double) {
        put(CompactTag.double)
        put(word: value.bitPattern)
    }

    func put(_ text: String) {
        put(CompactTag.bytes)
        put(name: text)
    }

    private func put(word: UInt64) {
        for place in 0..<8 { bytes.append(UInt8(truncatingIfNeeded: word >> UInt64(8 * place))) }
    }

    private func put(identifier: some WideIdentifier) {
        put(CompactTag.identifier)
        put(word: identifier.high)
        put(word: identifier.low)
    }

    func put<Value: Encodable>(any value: Value) throws {
        // Types are compared before the cast, because a failing cast is slow.
        if Value.self == [UInt8].self, let value = value as? [UInt8] {
            put(CompactTag.bytes)
            put(varint: UInt64(value.count))
            bytes.append(contentsOf: value)
        } else if Value.self == DeviceID.self, let value = value as? DeviceID {
            put(identifier: value)
        } else if Value.self == MessageID.self, let value = value as? MessageID {
            put(identifier: value)
        } else if Value.self == TaskID.self, let value = value as? TaskID {
            put(identifier: value)
        } else {
            let (depth, start) = (open.count, bytes.count)
            try value.encode(to: CompactValueEncoder(writer: self))
            try close(to: depth)
            if bytes.count == start { put(CompactTag.none) }
        }
    }
}

private struct CompactValueEncoder: Encoder {
    let writer: CompactWriter
    var codingPath: [any CodingKey] { [] }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        writer.begin(.fields)
        return KeyedEncodingContainer(CompactFields<Key>(writer: writer, depth: writer.depth))
    }

    func unkeyedContainer() -> any UnkeyedEncodingContainer {
        writer.begin(.list)
        return CompactList(writer: writer, depth: writer.depth)
    }

    func singleValueContainer() -> any SingleValueEncodingContainer { CompactSingle(writer: writer) }
}

private struct CompactFields<Key: CodingKey>: KeyedEncodingContainerProtocol {
    let writer: CompactWriter
    let depth: Int
    var codingPath: [any CodingKey] { [] }

    private func name(_ key: some CodingKey) throws {
        try writer.close(to: depth)
        writer.put(name: key.stringValue)
    }

    mutating func encodeNil(forKey key: Key) throws {
        try name(key)
        writer.put(CompactTag.none)
    }

    mutating func encode(_ value: Bool, forKey key: Key) throws {
        try name(key)
        writer.put(value)
    }

    mutating func encode(_ value: String, forKey key: Key) throws {
        try name(key)
        writer.put(value)
    }

    mutating func encode(_ value: Double, forKey key: Key) throws {
        try name(key)
        writer.put(value)
    }

    private func put(_ value: some FixedWidthInteger, _ key: Key) throws {
        try name(key)
        writer.put(value)
    }

    mutating func encode(_ value: Float, forKey key: Key) throws { try encode(Double(value), forKey: key) }
    mutating func encode(_ value: Int, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: Int8, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: Int16, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: Int32, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: Int64, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: UInt, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: UInt8, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: UInt16, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: UInt32, forKey key: Key) throws { try put(value, key) }
    mutating func encode(_ value: UInt64, forKey key: Key) throws { try put(value, key) }

    mutating func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
        try name(key)
        try writer.put(any: value)
    }

    mutating func nestedContainer<Inner: CodingKey>(
        keyedBy type: Inner.Type, forKey key: Key
    ) -> KeyedEncodingContainer<Inner> {
        // The protocol does not allow throwing here; closing the outer container detects a container that is too large.
        try? name(key)
        return CompactValueEncoder(writer: writer).container(keyedBy: type)
    }

    mutating func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
        try? name(key)
        return CompactValueEncoder(writer: writer).unkeyedContainer()
    }

    private struct SuperKey: CodingKey {
        let stringValue = "super"
        var intValue: Int? { nil }
        init() {}
        init?(stringValue: String) { return nil }
        init?(intValue: Int) { return nil }
    }

    mutating func superEncoder() -> any Encoder {
        try? name(SuperKey())
        return CompactValueEncoder(writer: writer)
    }

    mutating func superEncoder(forKey key: Key) -> any Encoder {
        try? name(key)
        return CompactValueEncoder(writer: writer)
    }
}

private struct CompactList: UnkeyedEncodingContainer {
    let writer: CompactWriter
    let depth: Int
    private(set) var count = 0
    var codingPath: [any CodingKey] { [] }

    init(writer: CompactWriter, depth: Int) { (self.writer, self.depth) = (writer, depth) }

    private mutating func next() throws {
        try writer.close(to: depth)
        count += 1
    }

    mutating func encodeNil() throws {
        try next()
        writer.put(CompactTag.none)
    }

    mutating func encode(_ value: Bool) throws {
        try next()
        writer.put(value)
    }

    mutating func encode(_ value: String) throws {
        try next()
        writer.put(value)
    }

    mutating func encode(_ value: Double) throws {
        try next()
        writer.put(value)
    }

    private mutating func put(_ value: some FixedWidthInteger) throws {
        try next()
        writer.put(value)
    }

    mutating func encode(_ value: Float) throws { try encode(Double(value)) }
    mutating func encode(_ value: Int) throws { try put(value) }
    mutating func encode(_ value: Int8) throws { try put(value) }
    mutating func encode(_ value: Int16) throws { try put(value) }
    mutating func encode(_ value: Int32) throws { try put(value) }
    mutating func encode(_ value: Int64) throws { try put(value) }
    mutating func encode(_ value: UInt) throws { try put(value) }
    mutating func encode(_ value: UInt8) throws { try put(value) }
    mutating func encode(_ value: UInt16) throws { try put(value) }
    mutating func encode(_ value: UInt32) throws { try put(value) }
    mutating func encode(_ value: UInt64) throws { try put(value) }

    mutating func encode<Value: Encodable>(_ value: Value) throws {
        try next()
        try writer.put(any: value)
    }

    mutating func nestedContainer<Inner: CodingKey>(keyedBy type: Inner.Type) -> KeyedEncodingContainer<Inner> {
        try? next()
        return CompactValueEncoder(writer: writer).container(keyedBy: type)
    }

    mutating func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
        try? next()
        return CompactValueEncoder(writer: writer).unkeyedContainer()
    }

    mutating func superEncoder() -> any Encoder {
        try? next()
        return CompactValueEncoder(writer: writer)
    }
}

private struct CompactSingle: SingleValueEncodingContainer {
    let writer: CompactWriter
    var codingPath: [any CodingKey] { [] }

    mutating func encodeNil() throws { writer.put(CompactTag.none) }
    mutating func encode(_ value: Bool) throws { writer.put(value) }
    mutating func encode(_ value: String) throws { writer.put(value) }
    mutating func encode(_ value: Double) throws { writer.put(value) }
    mutating func encode(_ value: Float) throws { writer.put(Double(value)) }
    mutating func encode(_ value: Int) throws { writer.put(value) }
    mutating func encode(_ value: Int8) throws { writer.put(value) }
    mutating func encode(_ value: Int16) throws { writer.put(value) }
    mutating func encode(_ value: Int32) throws { writer.put(value) }
    mutating func encode(_ value: Int64) throws { writer.put(value) }
    mutating func encode(_ value: UInt) throws { writer.put(value) }
    mutating func encode(_ value: UInt8) throws { writer.put(value) }
    mutating func encode(_ value: UInt16) throws { writer.put(value) }
    mutating func encode(_ value: UInt32) throws { writer.put(value) }
    mutating func encode(_ value: UInt64) throws { writer.put(value) }
    mutating func encode<Value: Encodable>(_ value: Value) throws { try writer.put(any: value) }
}
