// JSON in: a wrapper of the simdjson bridge. Values are views into the parser and die with its next parse.

internal import CSimdjson

/// Why a text is no JSON document that we take.
package enum JSONError: Error, Equatable {
    case tooLarge, tooDeep, outOfMemory, empty, badStructure, badString, badNumber, badUTF8

    /// One short English clause for the one who sent the text.
    package var explanation: String {
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

/// One parser with its buffers; one a loop.
package final class JSONParser {
    private let raw: OpaquePointer

    package init(byteLimit: Int = Limits.requestBodyByteCount, depthLimit: Int = Limits.jsonDepth) {
        guard let raw = longwire_json_create(byteLimit, depthLimit) else { fatalError("no memory for a JSON parser") }
        self.raw = raw
    }

    deinit { longwire_json_destroy(raw) }

    /// Parses a document; the value is valid until the next call and as long as the parser.
    package func parse(_ bytes: UnsafeRawBufferPointer) throws(JSONError) -> JSONValue {
        var document = longwire_json_document()
        let code = longwire_json_parse(raw, bytes.baseAddress, bytes.count, &document)
        guard code == Int32(LONGWIRE_JSON_OK) else { throw JSONError(code: code) }
        return JSONValue(tape: document.tape, strings: document.strings, index: 1)
    }
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

/// One value of a parsed document: two pointers into the parser and a place on its tape.
package struct JSONValue {
    package enum Kind: Equatable { case null, bool, integer, double, string, array, object }

    private let tape: UnsafePointer<UInt64>
    private let strings: UnsafePointer<UInt8>
    private let index: Int

    fileprivate init(tape: UnsafePointer<UInt64>, strings: UnsafePointer<UInt8>, index: Int) {
        (self.tape, self.strings, self.index) = (tape, strings, index)
    }

    private var tag: UInt8 { UInt8(truncatingIfNeeded: tape[index] >> 56) }
    private var payload: UInt64 { tape[index] & 0x00FF_FFFF_FFFF_FFFF }

    package var kind: Kind {
        switch tag {
        case UInt8(ascii: "{"): .object
        case UInt8(ascii: "["): .array
        case UInt8(ascii: "\""): .string
        case UInt8(ascii: "l"), UInt8(ascii: "u"): .integer
        case UInt8(ascii: "d"): .double
        case UInt8(ascii: "t"), UInt8(ascii: "f"): .bool
        default: .null
        }
    }

    var isNull: Bool { kind == .null }

    package var bool: Bool? {
        switch tag {
        case UInt8(ascii: "t"): true
        case UInt8(ascii: "f"): false
        default: nil
        }
    }

    /// The value of an integer that fits; `nil` for anything else.
    package var integer: Int64? {
        switch tag {
        case UInt8(ascii: "l"): Int64(bitPattern: tape[index + 1])
        case UInt8(ascii: "u"): Int64(exactly: tape[index + 1])
        default: nil
        }
    }

    /// An integer above `Int64.max`, which `integer` cannot give.
    var unsignedInteger: UInt64? { tag == UInt8(ascii: "u") ? tape[index + 1] : nil }

    var double: Double? { tag == UInt8(ascii: "d") ? Double(bitPattern: tape[index + 1]) : nil }

    /// A string's bytes with escapes resolved.
    package var stringBytes: UnsafeRawBufferPointer? {
        guard tag == UInt8(ascii: "\"") else { return nil }
        let start = UnsafeRawPointer(strings + Int(payload))
        let count = start.loadUnaligned(as: UInt32.self)
        return UnsafeRawBufferPointer(start: start + 4, count: Int(count))
    }

    package var string: String? { stringBytes.map { String(decoding: $0, as: UTF8.self) } }

    /// The tape's place after this value.
    private var next: Int {
        switch tag {
        case UInt8(ascii: "{"), UInt8(ascii: "["): Int(payload & 0xFFFF_FFFF)
        case UInt8(ascii: "l"), UInt8(ascii: "u"), UInt8(ascii: "d"): index + 2
        default: index + 1
        }
    }

    /// The place of the closing bracket; the contents end there.
    private var end: Int { next - 1 }

    private func value(at index: Int) -> JSONValue { JSONValue(tape: tape, strings: strings, index: index) }

    /// True for `{}` and for `[]`, which PHP writes for an empty object.
    package var isEmptyContainer: Bool {
        switch kind {
        case .object, .array: end == index + 1
        default: false
        }
    }

    /// An array's elements; empty for anything else.
    package var elements: Elements { Elements(array: self) }

    /// An object's members in document order; empty for anything else.
    package var members: Members { Members(object: self) }

    /// The first member of that name which is not null; `nil` also when this is no object.
    package subscript(name: StaticString) -> JSONValue? {
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

    /// True for a string with exactly these bytes.
    package func equals(_ text: StaticString) -> Bool {
        guard let bytes = stringBytes, bytes.count == text.utf8CodeUnitCount else { return false }
        // By hand: generic comparison of two sequences takes ten instructions a byte, and a push has thirty names.
        for place in 0..<bytes.count where bytes[place] != text.utf8Start[place] { return false }
        return true
    }

    package struct Elements: Sequence, IteratorProtocol {
        private let array: JSONValue
        private var place: Int

        fileprivate init(array: JSONValue) { (self.array, place) = (array, array.index + 1) }

        package mutating func next() -> JSONValue? {
            guard array.kind == .array, place < array.end else { return nil }
            let value = array.value(at: place)
            place = value.next
            return value
        }
    }

    package struct Members: Sequence, IteratorProtocol {
        private let object: JSONValue
        private var place: Int

        fileprivate init(object: JSONValue) { (self.object, place) = (object, object.index + 1) }

        package mutating func next() -> (key: JSONValue, value: JSONValue)? {
            guard object.kind == .object, place < object.end else { return nil }
            let key = object.value(at: place)
            let value = object.value(at: place + 1)
            place = value.next
            return (key, value)
        }
    }
}

extension JSONValue {
    /// An integer written as a number or as a decimal string, which Getui's SDKs mix; `nil` for anything else.
    package var lenientInteger: Int64? {
        if let integer { return integer }
        if let double {
            // Beyond 2^53 a double no longer says which integer was meant.
            guard abs(double) <= 9_007_199_254_740_992, Double(Int64(double)) == double else { return nil }
            return Int64(double)
        }
        guard let bytes = stringBytes, bytes.count <= 20 else { return nil }
        return Int64(String(decoding: bytes, as: UTF8.self))
    }

    /// A text, or an integer written out as one: SDKs without types send numbers for names.
    var lenientText: String? { string ?? integer.map(String.init) }

    /// A boolean, or the 0 and 1 (as number or text) that some clients write for one.
    package var lenientBool: Bool? {
        if let bool { return bool }
        if equals("true") { return true }
        if equals("false") { return false }
        switch lenientInteger {
        case 0: return false
        case 1: return true
        default: return nil
        }
    }

    /// True when there is something in it: neither null, nor `[]`, nor `{}`.
    var hasContent: Bool { !isNull && !isEmptyContainer }
}
