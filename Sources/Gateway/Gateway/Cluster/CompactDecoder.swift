internal import Wire

/// Decodes the output of `CompactEncoder` from an untrusted process: checks every length, and skips unknown field names.
///
/// Memory use is proportional to the input: the decoder reserves nothing for a count that a peer sends. Signed numbers are
/// bounded, so sums of a few of them cannot overflow.
enum CompactDecoder {
    /// The limit for nested values; the deepest message has six levels.
    static let depthLimit = 24
    /// The largest magnitude of a signed number; a time in milliseconds needs 41 bits.
    static let signedLimit: Int64 = 1 << 54

    /// Decodes the single value in `bytes`.
    ///
    /// - Throws: `DecodingError` for bytes that are not exactly one such value.
    static func decode<Value: Decodable>(_ type: Value.Type, from bytes: UnsafeRawBufferPointer) throws -> Value {
        var cursor = CompactCursor(bytes, depth: 0)
        let value = try cursor.next()
        guard cursor.isAtEnd else { throw CompactCursor.failure("bytes behind the value") }
        return try value.decode(type)
    }
}

private struct CompactValue {
    let tag: CompactTag
    let number: UInt64
    let content: UnsafeRawBufferPointer
    let depth: Int

    func integer<Number: FixedWidthInteger>(_ type: Number.Type) throws -> Number {
        let value: Number?
        switch tag {
        case .positive: value = Number(exactly: number)
        case .negative: value = Int64(exactly: number).flatMap { Number(exactly: ~$0) }
        default: value = nil
        }
        guard let value else { throw CompactCursor.failure("no number of this width") }
        if Number.isSigned, value.magnitude > Number.Magnitude(clamping: CompactDecoder.signedLimit) {
            throw CompactCursor.failure("a number beyond its bound")
        }
        return value
    }

    func bool() throws -> Bool {
        switch tag {
        case .yes: true
        case .no: false
        default: throw CompactCursor.failure("no truth value")
        }
    }

    func double() throws -> Double {
        guard tag == .double else { throw CompactCursor.failure("no floating-point number") }
        return Double(bitPattern: number)
    }

    func text() throws -> String {
        guard tag == .bytes, let text = String(validating: content, as: UTF8.self) else {
            throw CompactCursor.failure("no text")
        }
        return text
    }

    private func identifier<Identifier: WideIdentifier>(_ type: Identifier.Type) throws -> Identifier {
        guard tag == .identifier, content.count == 16 else { throw CompactCursor.failure("no identifier") }
        return Identifier(
            high: UInt64(littleEndian: content.loadUnaligned(fromByteOffset: 0, as: UInt64.self)),
            low: UInt64(littleEndian: content.loadUnaligned(fromByteOffset: 8, as: UInt64.self)))
    }

    func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
        if type == [UInt8].self {
            guard tag == .bytes else { throw CompactCursor.failure("no bytes") }
            if let value = Array(content) as? Value { return value }
        } else if type == DeviceID.self {
            if let value = try identifier(DeviceID.self) as? Value { return value }
        } else if type == MessageID.self {
            if let value = try identifier(MessageID.self) as? Value { return value }
        } else if type == TaskID.self {
            if let value = try identifier(TaskID.self) as? Value { return value }
        }
        guard depth < CompactDecoder.depthLimit else { throw CompactCursor.failure("too deep") }
        return try Value(from: CompactValueDecoder(value: self))
    }
}

private struct CompactCursor {
    private var rest: UnsafeRawBufferPointer
    private let depth: Int

    init(_ bytes: UnsafeRawBufferPointer, depth: Int) { (rest, self.depth) = (bytes, depth) }

    var isAtEnd: Bool { rest.isEmpty }

    static func failure(_ what: String) -> DecodingError {
        .dataCorrupted(DecodingError.Context(codingPath: [], debugDescription: what))
    }

    private mutating func byte() throws -> UInt8 {
        guard let byte = rest.first else { throw Self.failure("cut short") }
        rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst())
        return byte
    }

    private mutating func varint() throws -> UInt64 {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while true {
            let byte = try byte()
            guard shift < 63 || byte <= 1 else { throw Self.failure("a number is too long") }
            value |= UInt64(byte & 0x7F) << shift
            guard byte >= 0x80 else { return value }
            shift += 7
        }
    }

    private mutating func take(_ count: some BinaryInteger) throws -> UnsafeRawBufferPointer {
        guard let count = Int(exactly: count), count <= rest.count else { throw Self.failure("cut short") }
        defer { rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count)) }
        return UnsafeRawBufferPointer(rebasing: rest.prefix(count))
    }

    mutating func name() throws -> UnsafeRawBufferPointer { try take(varint()) }

    mutating func next() throws -> CompactValue {
        guard let tag = CompactTag(rawValue: try byte()) else { throw Self.failure("an unknown tag") }
        let none = UnsafeRawBufferPointer(start: nil, count: 0)
        func value(_ number: UInt64, _ content: UnsafeRawBufferPointer) -> CompactValue {
            CompactValue(tag: tag, number: number, content: content, depth: depth)
        }
        switch tag {
        case .none, .no, .yes: return value(0, none)
        case .positive, .negative: return value(try varint(), none)
        case .double:
            return value(UInt64(littleEndian: try take(8).loadUnaligned(as: UInt64.self)), none)
        case .bytes: return value(0, try take(varint()))
        case .list, .fields:
            let count = UInt32(littleEndian: try take(4).loadUnaligned(as: UInt32.self))
            return value(0, try take(count))
        case .identifier: return value(0, try take(16))
        }
    }
}

private struct CompactValueDecoder: Decoder {
    let value: CompactValue
    var codingPath: [any CodingKey] { [] }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        KeyedDecodingContainer(try CompactFieldReader<Key>(value))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer { try CompactListReader(value) }

    func singleValueContainer() throws -> any SingleValueDecodingContainer { CompactSingleReader(value: value) }
}

/// A structure's fields; a lookup starts at the last match because readers mostly ask in encoding order.
private final class CompactFieldReader<Key: CodingKey>: KeyedDecodingContainerProtocol {
    private var fields: [(name: UnsafeRawBufferPointer, value: CompactValue)] = []
    private var last = 0
    var codingPath: [any CodingKey] { [] }

    init(_ value: CompactValue) throws {
        guard value.tag == .fields else { throw CompactCursor.failure("no structure") }
        var cursor = CompactCursor(value.content, depth: value.depth + 1)
        while !cursor.isAtEnd { fields.append((try cursor.name(), try cursor.next())) }
    }

    var allKeys: [Key] {
        fields.compactMap { String(validating: $0.name, as: UTF8.self).flatMap { Key(stringValue: $0) } }
    }

    private func find(_ key: some CodingKey) -> CompactValue? {
        var name = key.stringValue
        let place = name.withUTF8 { name in
            let bytes = UnsafeRawBufferPointer(name)
            for step in fields.indices {
                let place = (last + step) % fields.count
                if fields[place].name.elementsEqual(bytes) { return place }
            }
            return -1
        }
        guard place >= 0 else { return nil }
        last = place
        return fields[place].value
    }

    private func value(_ key: some CodingKey) throws -> CompactValue {
        guard let value = find(key) else {
            throw DecodingError.keyNotFound(key, .init(codingPath: [], debugDescription: "a field is missing"))
        }
        return value
    }

    func contains(_ key: Key) -> Bool { find(key) != nil }
    func decodeNil(forKey key: Key) throws -> Bool { try value(key).tag == .none }
    func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool { try value(key).bool() }
    func decode(_ type: String.Type, forKey key: Key) throws -> String { try value(key).text() }
    func decode(_ type: Double.Type, forKey key: Key) throws -> Double { try value(key).double() }
    func decode(_ type: Float.Type, forKey key: Key) throws -> Float { Float(try value(key).double()) }
    func decode(_ type: Int.Type, forKey key: Key) throws -> Int { try value(key).integer(type) }
    func decode(_ type: Int8.Type, forKey key: Key) throws -> Int8 { try value(key).integer(type) }
    func decode(_ type: Int16.Type, forKey key: Key) throws -> Int16 { try value(key).integer(type) }
    func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 { try value(key).integer(type) }
    func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 { try value(key).integer(type) }
    func decode(_ type: UInt.Type, forKey key: Key) throws -> UInt { try value(key).integer(type) }
    func decode(_ type: UInt8.Type, forKey key: Key) throws -> UInt8 { try value(key).integer(type) }
    func decode(_ type: UInt16.Type, forKey key: Key) throws -> UInt16 { try value(key).integer(type) }
    func decode(_ type: UInt32.Type, forKey key: Key) throws -> UInt32 { try value(key).integer(type) }
    func decode(_ type: UInt64.Type, forKey key: Key) throws -> UInt64 { try value(key).integer(type) }
    func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value { try value(key).decode(type) }

    func nestedContainer<Inner: CodingKey>(
        keyedBy type: Inner.Type, forKey key: Key
    ) throws -> KeyedDecodingContainer<Inner> {
        KeyedDecodingContainer(try CompactFieldReader<Inner>(try value(key)))
    }

    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        try CompactListReader(try value(key))
    }

    func superDecoder() throws -> any Decoder { throw CompactCursor.failure("no value of a superclass") }
    func superDecoder(forKey key: Key) throws -> any Decoder { CompactValueDecoder(value: try value(key)) }
}

private struct CompactListReader: UnkeyedDecodingContainer {
    private var cursor: CompactCursor
    private(set) var currentIndex = 0
    var codingPath: [any CodingKey] { [] }
    /// Always `nil`, so that the decoder reserves no memory for a count that a peer claims.
    var count: Int? { nil }
    var isAtEnd: Bool { cursor.isAtEnd }

    init(_ value: CompactValue) throws {
        guard value.tag == .list else { throw CompactCursor.failure("no list") }
        cursor = CompactCursor(value.content, depth: value.depth + 1)
    }

    private mutating func next() throws -> CompactValue {
        currentIndex += 1
        return try cursor.next()
    }

    mutating func decodeNil() throws -> Bool {
        var ahead = cursor
        guard try ahead.next().tag == .none else { return false }
        (cursor, currentIndex) = (ahead, currentIndex + 1)
        return true
    }

    mutating func decode(_ type: Bool.Type) throws -> Bool { try next().bool() }
    mutating func decode(_ type: String.Type) throws -> String { try next().text() }
    mutating func decode(_ type: Double.Type) throws -> Double { try next().double() }
    mutating func decode(_ type: Float.Type) throws -> Float { Float(try next().double()) }
    mutating func decode(_ type: Int.Type) throws -> Int { try next().integer(type) }
    mutating func decode(_ type: Int8.Type) throws -> Int8 { try next().integer(type) }
    mutating func decode(_ type: Int16.Type) throws -> Int16 { try next().integer(type) }
    mutating func decode(_ type: Int32.Type) throws -> Int32 { try next().integer(type) }
    mutating func decode(_ type: Int64.Type) throws -> Int64 { try next().integer(type) }
    mutating func decode(_ type: UInt.Type) throws -> UInt { try next().integer(type) }
    mutating func decode(_ type: UInt8.Type) throws -> UInt8 { try next().integer(type) }
    mutating func decode(_ type: UInt16.Type) throws -> UInt16 { try next().integer(type) }
    mutating func decode(_ type: UInt32.Type) throws -> UInt32 { try next().integer(type) }
    mutating func decode(_ type: UInt64.Type) throws -> UInt64 { try next().integer(type) }
    mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try next().decode(type) }

    mutating func nestedContainer<Inner: CodingKey>(
        keyedBy type: Inner.Type
    ) throws -> KeyedDecodingContainer<Inner> {
        KeyedDecodingContainer(try CompactFieldReader<Inner>(try next()))
    }

    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer { try CompactListReader(try next()) }
    mutating func superDecoder() throws -> any Decoder { CompactValueDecoder(value: try next()) }
}

private struct CompactSingleReader: SingleValueDecodingContainer {
    let value: CompactValue
    var codingPath: [any CodingKey] { [] }

    func decodeNil() -> Bool { value.tag == .none }
    func decode(_ type: Bool.Type) throws -> Bool { try value.bool() }
    func decode(_ type: String.Type) throws -> String { try value.text() }
    func decode(_ type: Double.Type) throws -> Double { try value.double() }
    func decode(_ type: Float.Type) throws -> Float { Float(try value.double()) }
    func decode(_ type: Int.Type) throws -> Int { try value.integer(type) }
    func decode(_ type: Int8.Type) throws -> Int8 { try value.integer(type) }
    func decode(_ type: Int16.Type) throws -> Int16 { try value.integer(type) }
    func decode(_ type: Int32.Type) throws -> Int32 { try value.integer(type) }
    func decode(_ type: Int64.Type) throws -> Int64 { try value.integer(type) }
    func decode(_ type: UInt.Type) throws -> UInt { try value.integer(type) }
    func decode(_ type: UInt8.Type) throws -> UInt8 { try value.integer(type) }
    func decode(_ type: UInt16.Type) throws -> UInt16 { try value.integer(type) }
    func decode(_ type: UInt32.Type) throws -> UInt32 { try value.integer(type) }
    func decode(_ type: UInt64.Type) throws -> UInt64 { try value.integer(type) }
    func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try value.decode(type) }
}
