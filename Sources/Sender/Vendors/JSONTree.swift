internal import JSON

/// An owned JSON value that a publisher's options can change before it is written.
package indirect enum JSONTree: Sendable, Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    /// The text of a number that is no 64-bit integer.
    case number(String)
    case string(String)
    case array([JSONTree])
    case object([Member])

    package struct Member: Sendable, Equatable {
        package var name: String
        package var value: JSONTree
    }

    /// The maximum number of values in a tree that is read.
    static let valueCount = 1_024
    static let depth = 16

    /// Copies a parsed value; the result is `nil` if it exceeds a bound or has an unreadable part.
    init?(_ value: JSONValue) {
        var budget = Self.valueCount
        guard let tree = Self.copy(value, depth: Self.depth, &budget) else { return nil }
        self = tree
    }

    private static func copy(_ value: JSONValue, depth: Int, _ budget: inout Int) -> JSONTree? {
        budget -= 1
        guard budget >= 0, depth >= 0 else { return nil }
        switch value.kind {
        case .null: return .null
        case .bool: return .bool(value.bool ?? false)
        case .integer: return value.integer.map { .integer($0) } ?? value.unsignedInteger.map { .number(String($0)) }
        case .double: return unsafe value.numberText.map { unsafe .number(String(decoding: $0, as: UTF8.self)) }
        case .unreadable: return nil
        case .string: return value.string.map { .string($0) }
        case .array:
            var elements: [JSONTree] = []
            for element in value.elements {
                guard let copied = copy(element, depth: depth - 1, &budget) else { return nil }
                elements.append(copied)
            }
            return .array(elements)
        case .object:
            var members: [Member] = []
            for (key, member) in value.members {
                guard let name = key.string, let copied = copy(member, depth: depth - 1, &budget) else { return nil }
                members.append(Member(name: name, value: copied))
            }
            return .object(members)
        }
    }

    subscript(name: String) -> JSONTree? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.name == name }?.value
    }

    /// Sets or appends a member of an object; another kind becomes an object.
    mutating func set(_ name: String, _ value: JSONTree) {
        var members: [Member] = []
        if case .object(let old) = self { members = old }
        if let place = members.firstIndex(where: { $0.name == name }) {
            members[place].value = value
        } else {
            members.append(Member(name: name, value: value))
        }
        self = .object(members)
    }

    /// The text of a scalar, as a form field shows it; `nil` for arrays and objects.
    var scalarText: String? {
        switch self {
        case .null: ""
        case .bool(let value): value ? "true" : "false"
        case .integer(let value): String(value)
        case .number(let text), .string(let text): text
        case .array, .object: nil
        }
    }

    /// The sum of the lengths of all names and values, which approximates the size of a vendor's payload.
    var textByteCount: Int {
        switch self {
        case .array(let elements): elements.reduce(0) { $0 + $1.textByteCount }
        case .object(let members): members.reduce(0) { $0 + $1.name.utf8.count + $1.value.textByteCount }
        default: scalarText?.utf8.count ?? 0
        }
    }

    var bytes: [UInt8] {
        var writer = JSONWriter(capacity: 1_024)
        write(to: &writer)
        return writer.bytes
    }

    var text: String { String(decoding: bytes, as: UTF8.self) }

    func write(to writer: inout JSONWriter) {
        switch self {
        case .null: writer.null()
        case .bool(let value): writer.bool(value)
        case .integer(let value): writer.integer(value)
        case .number(let text): writer.raw(Array(text.utf8))
        case .string(let text): writer.string(text)
        case .array(let elements): writer.array { for element in elements { element.write(to: &$0) } }
        case .object(let members):
            writer.object { writer in
                for member in members {
                    writer.key(text: member.name)
                    member.value.write(to: &writer)
                }
            }
        }
    }
}

extension JSONTree: ExpressibleByStringLiteral, ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    package init(stringLiteral value: String) { self = .string(value) }
    package init(integerLiteral value: Int64) { self = .integer(value) }
    package init(booleanLiteral value: Bool) { self = .bool(value) }
    package init(arrayLiteral elements: JSONTree...) { self = .array(elements) }

    /// Members whose value is `nil` are omitted.
    package init(dictionaryLiteral elements: (String, JSONTree?)...) {
        self = .object(elements.compactMap { name, value in value.map { Member(name: name, value: $0) } })
    }
}

extension JSONTree {
    /// Parses a complete document of at most `byteLimit` bytes and passes its value to `body`; `nil` for unreadable bytes.
    static func parsing<Result>(
        _ bytes: [UInt8], byteLimit: Int, _ body: (JSONValue) throws -> Result?
    ) rethrows -> Result? {
        guard !bytes.isEmpty, bytes.count <= byteLimit else { return nil }
        let parser = JSONParser(byteLimit: byteLimit, depthLimit: JSONParser.standardDepth)
        return try unsafe bytes.withUnsafeBytes { buffer in
            guard let value = try? unsafe parser.parse(buffer) else { return nil }
            return try withExtendedLifetime(parser) { try body(value) }
        }
    }
}
