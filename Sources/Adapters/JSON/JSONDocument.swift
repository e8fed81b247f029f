// A wrapper of the simdjson bridge. Values are views into the parser and become invalid with its next parse.

internal import CSimdjson

public enum JSONError: Error, Equatable {
    case tooLarge, tooDeep, outOfMemory, empty, badStructure, badString, badNumber, badUTF8

    /// The explanation for the sender, as a short English clause.
    public var explanation: String {
        switch self {
        case .tooLarge: "it is too large"
        case .tooDeep: "it nests too deeply"
        case .outOfMemory: "no memory is left to read it"
        case .empty: "it is empty"
        case .badStructure: "a bracket, comma, colon or value is missing or misplaced"
        case .badString: "a string has a bad escape, a raw control character or no end"
        case .badNumber: "a number is malformed or out of range"
        case .badUTF8: "it is not valid UTF-8"
        }
    }
}

/// A JSON parser with its buffers, one per event loop.
public final class JSONParser {
    private let raw: OpaquePointer
    /// The default nesting limit; Getui's deepest documented path has seven levels.
    public static let standardDepth = 64

    public init(byteLimit: Int = 8 << 20, depthLimit: Int = JSONParser.standardDepth) {
        guard let raw = longwire_json_create(byteLimit, depthLimit) else { fatalError("no memory for a JSON parser") }
        self.raw = raw
    }

    deinit { longwire_json_destroy(raw) }

    /// Parses a document into a value that is valid until the next call and as long as the parser exists.
    ///
    /// An invalid string or number does not fail the document: its kind is `unreadable`.
    public func parse(_ bytes: UnsafeRawBufferPointer) throws(JSONError) -> JSONValue {
        var document = longwire_json_document()
        let code = longwire_json_parse(raw, bytes.baseAddress, bytes.count, &document)
        guard code == Int32(LONGWIRE_JSON_OK) else { throw JSONError(code: code) }
        hasUnreadable = document.unreadable_count > 0
        wordCount = document.tape_count
        return JSONValue(tape: document.tape, strings: document.strings, numbers: document.numbers, index: 1)
    }

    /// Whether the last document has an `unreadable` value or key.
    public private(set) var hasUnreadable = false

    /// The size of the last document's tape: a word for each key and value, and another one for a number or a container.
    public private(set) var wordCount = 0
}

extension JSONError {
    fileprivate init(code: Int32) {
        switch Int(code) {
        case LONGWIRE_JSON_TOO_LARGE: self = .tooLarge
        case LONGWIRE_JSON_TOO_DEEP: self = .tooDeep
        case LONGWIRE_JSON_NO_MEMORY: self = .outOfMemory
        case LONGWIRE_JSON_EMPTY: self = .empty
        case LONGWIRE_JSON_BAD_STRING: self = .badString
        case LONGWIRE_JSON_BAD_NUMBER: self = .badNumber
        case LONGWIRE_JSON_BAD_UTF8: self = .badUTF8
        default: self = .badStructure
        }
    }
}

/// A value of a parsed document: pointers into the parser and an index on its tape.
@frozen public struct JSONValue {
    @frozen public enum Kind: Equatable {
        case null, bool, integer
        /// A number that is no 64-bit integer.
        case double
        case string, array, object
        /// A string that is not valid Unicode, or a malformed number (NaN).
        case unreadable
    }

    @usableFromInline let tape: UnsafePointer<UInt64>
    @usableFromInline let strings: UnsafePointer<UInt8>
    /// The texts of numbers that are no 64-bit integers, or `nil` if the document has none.
    @usableFromInline let numbers: UnsafePointer<UInt8>?
    @usableFromInline let index: Int

    @inlinable init(
        tape: UnsafePointer<UInt64>, strings: UnsafePointer<UInt8>, numbers: UnsafePointer<UInt8>?, index: Int
    ) {
        (self.tape, self.strings, self.numbers, self.index) = (tape, strings, numbers, index)
    }

    @inlinable var tag: UInt8 { UInt8(truncatingIfNeeded: tape[index] >> 56) }
    @inlinable var payload: UInt64 { tape[index] & 0x00FF_FFFF_FFFF_FFFF }

    @inlinable public var kind: Kind {
        switch tag {
        case UInt8(ascii: "{"): .object
        case UInt8(ascii: "["): .array
        case UInt8(ascii: "\""): .string
        case UInt8(ascii: "l"), UInt8(ascii: "u"): .integer
        case UInt8(ascii: "#"): numberText == nil ? .unreadable : .double
        case UInt8(ascii: "!"): .unreadable
        case UInt8(ascii: "t"), UInt8(ascii: "f"): .bool
        default: .null
        }
    }

    @inlinable public var isNull: Bool { kind == .null }

    @inlinable public var bool: Bool? {
        switch tag {
        case UInt8(ascii: "t"): true
        case UInt8(ascii: "f"): false
        default: nil
        }
    }

    /// The value of an integer that fits 64 bits, or `nil`.
    @inlinable public var integer: Int64? {
        switch tag {
        case UInt8(ascii: "l"): Int64(bitPattern: tape[index + 1])
        case UInt8(ascii: "u"): Int64(exactly: tape[index + 1])
        default: nil
        }
    }

    /// The value of an integer above `Int64.max`, for which `integer` is `nil`.
    @inlinable public var unsignedInteger: UInt64? { tag == UInt8(ascii: "u") ? tape[index + 1] : nil }

    /// The original text of a number that is no 64-bit integer.
    @inlinable public var numberText: UnsafeRawBufferPointer? {
        guard tag == UInt8(ascii: "#") else { return nil }
        let count = Int(tape[index + 1] & 0xFFFF_FFFF)
        guard count > 0, let numbers else { return nil }
        return UnsafeRawBufferPointer(start: numbers + Int(tape[index + 1] >> 32), count: count)
    }

    /// The nearest double, or infinity beyond the range of doubles.
    public var double: Double? {
        guard let numberText else { return nil }
        // No meaningful number is longer.
        guard numberText.count <= 400 else { return .infinity }
        return Double(String(decoding: numberText, as: UTF8.self))
    }

    /// A string's bytes with escapes resolved.
    @inlinable public var stringBytes: UnsafeRawBufferPointer? {
        guard tag == UInt8(ascii: "\"") else { return nil }
        let start = UnsafeRawPointer(strings + Int(payload))
        let count = start.loadUnaligned(as: UInt32.self)
        return UnsafeRawBufferPointer(start: start + 4, count: Int(count))
    }

    @inlinable public var string: String? { stringBytes.map { String(decoding: $0, as: UTF8.self) } }

    /// The tape index after this value.
    @inlinable var next: Int {
        switch tag {
        case UInt8(ascii: "{"), UInt8(ascii: "["): Int(payload & 0xFFFF_FFFF)
        case UInt8(ascii: "l"), UInt8(ascii: "u"), UInt8(ascii: "#"), UInt8(ascii: "d"): index + 2
        default: index + 1
        }
    }

    @inlinable var end: Int { next - 1 }

    @inlinable func value(at index: Int) -> JSONValue {
        JSONValue(tape: tape, strings: strings, numbers: numbers, index: index)
    }

    /// Whether the value is `{}` or `[]`; PHP writes `[]` for an empty object.
    @inlinable public var isEmptyContainer: Bool {
        switch kind {
        case .object, .array: end == index + 1
        default: false
        }
    }

    /// The elements of an array, or none for another kind.
    @inlinable public var elements: Elements { Elements(array: self) }

    /// The members of an object in document order, or none for another kind.
    @inlinable public var members: Members { Members(object: self) }

    /// The first member with this name that is not null, or `nil`; it is `nil` for a value that is no object, too.
    @inlinable public subscript(name: StaticString) -> JSONValue? {
        guard kind == .object else { return nil }
        var place = index + 1
        while place < end {
            let key = value(at: place)
            let member = value(at: place + 1)
            if key.equals(name) { return member.isNull ? nil : member }
            place = member.next
        }
        return nil
    }

    /// Returns whether the value is a string with exactly these bytes.
    @inlinable public func equals(_ text: StaticString) -> Bool {
        guard let bytes = stringBytes, bytes.count == text.utf8CodeUnitCount else { return false }
        // A manual loop: generic comparison of two sequences takes ten instructions per byte, and a push has thirty names.
        for place in 0..<bytes.count where bytes[place] != text.utf8Start[place] { return false }
        return true
    }

    @frozen public struct Elements: Sequence, IteratorProtocol {
        @usableFromInline let array: JSONValue
        @usableFromInline var place: Int

        @inlinable init(array: JSONValue) { (self.array, place) = (array, array.index + 1) }

        @inlinable public mutating func next() -> JSONValue? {
            guard array.kind == .array, place < array.end else { return nil }
            let value = array.value(at: place)
            place = value.next
            return value
        }
    }

    @frozen public struct Members: Sequence, IteratorProtocol {
        @usableFromInline let object: JSONValue
        @usableFromInline var place: Int

        @inlinable init(object: JSONValue) { (self.object, place) = (object, object.index + 1) }

        @inlinable public mutating func next() -> (key: JSONValue, value: JSONValue)? {
            guard object.kind == .object, place < object.end else { return nil }
            let key = object.value(at: place)
            let value = object.value(at: place + 1)
            place = value.next
            return (key, value)
        }
    }
}

extension JSONValue {
    /// The value of an integer written as a number or as a decimal string, since Getui's SDKs use both.
    public var lenientInteger: Int64? {
        if let integer { return integer }
        if let double {
            // Above 2^53, a double does not identify an integer.
            guard abs(double) <= 9_007_199_254_740_992, Double(Int64(double)) == double else { return nil }
            return Int64(double)
        }
        guard let bytes = stringBytes, bytes.count <= 20 else { return nil }
        return Int64(String(decoding: bytes, as: UTF8.self))
    }

    /// The digits of an integer that does not fit 64 bits.
    public var longIntegerText: UnsafeRawBufferPointer? {
        guard let numberText, numberText.allSatisfy({ $0 == UInt8(ascii: "-") || $0 & 0xF0 == 0x30 }) else {
            return nil
        }
        return numberText
    }

    /// A text, or an integer converted to text, because SDKs without types send numbers for names.
    public var lenientText: String? {
        string ?? integer.map(String.init) ?? unsignedInteger.map(String.init)
            ?? longIntegerText.map { String(decoding: $0, as: UTF8.self) }
    }

    /// A boolean, or the 0 and 1 (as number or text) that some clients send instead.
    public var lenientBool: Bool? {
        if let bool { return bool }
        if equals("true") { return true }
        if equals("false") { return false }
        switch lenientInteger {
        case 0: return false
        case 1: return true
        default: return nil
        }
    }

    /// The maximum length of a key shown in a path.
    private var shownKeyLength: Int { 64 }

    /// The path of the first unreadable value or key, relative to this value.
    public var unreadablePath: String? {
        switch kind {
        case .unreadable: return ""
        case .array:
            for (index, element) in elements.enumerated() {
                if let path = element.unreadablePath { return "[\(index)]\(path)" }
            }
        case .object:
            for (key, value) in members {
                guard let name = key.string else { return ".?" }
                if let path = value.unreadablePath { return ".\(name.prefix(shownKeyLength))\(path)" }
            }
        default: break
        }
        return nil
    }
}
