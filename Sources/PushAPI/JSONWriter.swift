// JSON out: appends to one byte array, in one pass, without Foundation.

internal import Wire

/// Writes one JSON document.
///
/// The caller keeps brackets and keys in order; commas are the writer's business.
package struct JSONWriter {
    package private(set) var bytes: [UInt8]
    private var needsComma = false

    package init(capacity: Int = 256) {
        bytes = []
        bytes.reserveCapacity(capacity)
    }

    /// Forgets what was written, keeps the memory.
    mutating func removeAll() {
        bytes.removeAll(keepingCapacity: true)
        needsComma = false
    }

    private mutating func separate() {
        if needsComma { bytes.append(UInt8(ascii: ",")) }
    }

    mutating func beginObject() {
        separate()
        bytes.append(UInt8(ascii: "{"))
        needsComma = false
    }

    mutating func endObject() {
        bytes.append(UInt8(ascii: "}"))
        needsComma = true
    }

    mutating func beginArray() {
        separate()
        bytes.append(UInt8(ascii: "["))
        needsComma = false
    }

    mutating func endArray() {
        bytes.append(UInt8(ascii: "]"))
        needsComma = true
    }

    /// A key that needs no escapes.
    mutating func key(_ name: StaticString) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        bytes.append(contentsOf: UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
        bytes.append(UInt8(ascii: "\""))
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    mutating func key(_ name: String) {
        string(name)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    /// An identifier as a key, its digits written without a text in between.
    mutating func key(identifier name: some WideIdentifier) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        for word in [name.high, name.low] {
            for shift in stride(from: 60, through: 0, by: -4) {
                bytes.append(lowerHexDigit(UInt8(truncatingIfNeeded: word >> UInt64(shift)) & 15))
            }
        }
        bytes.append(UInt8(ascii: "\""))
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    mutating func key(bytes name: UnsafeRawBufferPointer) {
        string(bytes: name)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    mutating func integer(_ value: Int64) {
        separate()
        append(magnitude: value.magnitude, isNegative: value < 0)
        needsComma = true
    }

    mutating func integer(_ value: UInt64) {
        separate()
        append(magnitude: value, isNegative: false)
        needsComma = true
    }

    /// The shortest text that reads back as the same number; null for what JSON cannot say.
    mutating func double(_ value: Double) {
        guard value.isFinite else { return null() }
        separate()
        bytes.append(contentsOf: value.description.utf8)
        needsComma = true
    }

    mutating func bool(_ value: Bool) { raw(value ? "true" : "false") }

    mutating func null() { raw("null") }

    mutating func raw(_ text: StaticString) {
        separate()
        bytes.append(contentsOf: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
        needsComma = true
    }

    /// A complete JSON value, embedded as it is.
    mutating func raw(_ json: [UInt8]) {
        separate()
        bytes.append(contentsOf: json)
        needsComma = true
    }

    /// A value that is filled in later: its place is the count of `bytes` after this call.
    mutating func hole() {
        separate()
        needsComma = true
    }

    mutating func string(_ text: StaticString) {
        string(bytes: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    mutating func string(_ text: String) {
        var text = text
        text.withUTF8 { string(bytes: UnsafeRawBufferPointer($0)) }
    }

    /// A string value; what is not valid UTF-8 becomes U+FFFD, so that the document always is.
    mutating func string(bytes text: UnsafeRawBufferPointer) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        appendEscaped(text)
        bytes.append(UInt8(ascii: "\""))
        needsComma = true
    }

    /// Part of a string between `beginString` and `endString`.
    mutating func appendEscaped(_ text: UnsafeRawBufferPointer) {
        var start = 0
        var place = 0
        while place < text.count {
            if place + 8 <= text.count, EightBytes(text, at: place).isPlain {
                place += 8
                continue
            }
            let byte = text[place]
            if byte >= 0x80 {
                let length = validSequenceLength(in: text, at: place)
                if length > 0 {
                    place += length
                    continue
                }
            } else if byte >= 0x20, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\") {
                place += 1
                continue
            }
            bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: text[start..<place]))
            appendEscape(byte)
            place += 1
            start = place
        }
        bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: text[start..<place]))
    }

    private mutating func appendEscape(_ byte: UInt8) {
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"):
            bytes.append(UInt8(ascii: "\\"))
            bytes.append(byte)
        case 0x0A: bytes.append(contentsOf: #"\n"#.utf8)
        case 0x0D: bytes.append(contentsOf: #"\r"#.utf8)
        case 0x09: bytes.append(contentsOf: #"\t"#.utf8)
        case 0..<0x20:
            bytes.append(contentsOf: #"\u00"#.utf8)
            bytes.append(lowerHexDigit(byte >> 4))
            bytes.append(lowerHexDigit(byte & 15))
        default: bytes.append(contentsOf: [0xEF, 0xBF, 0xBD])
        }
    }

    private mutating func append(magnitude: UInt64, isNegative: Bool) {
        if isNegative { bytes.append(UInt8(ascii: "-")) }
        let start = bytes.count
        var rest = magnitude
        repeat {
            bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10))
            rest /= 10
        } while rest > 0
        bytes[start...].reverse()
    }
}

@inline(__always) func lowerHexDigit(_ nibble: UInt8) -> UInt8 {
    nibble < 10 ? UInt8(ascii: "0") + nibble : UInt8(ascii: "a") - 10 + nibble
}

/// Eight bytes of a text at once, for the stretches in which there is nothing to do.
private struct EightBytes {
    private let word: UInt64

    @inline(__always) init(_ text: UnsafeRawBufferPointer, at place: Int) {
        word = text.loadUnaligned(fromByteOffset: place, as: UInt64.self)
    }

    @inline(__always) var isASCII: Bool { word & 0x8080_8080_8080_8080 == 0 }

    /// Neither a quote nor a backslash, no control character, all of it ASCII.
    @inline(__always) var isPlain: Bool {
        let (ones, tops): (UInt64, UInt64) = (0x0101_0101_0101_0101, 0x8080_8080_8080_8080)
        let (quotes, slashes) = (word ^ ones &* 0x22, word ^ ones &* 0x5C)
        // The top bit of each byte that is below the number taken away (Anderson, "Bit Twiddling Hacks": hasless).
        let found = (quotes &- ones) & ~quotes | (slashes &- ones) & ~slashes | (word &- ones &* 0x20) & ~word | word
        return found & tops == 0
    }
}

/// The byte count (2–4) of a well-formed multi-byte UTF-8 sequence at `place`; 0 when there is none (RFC 3629).
func validSequenceLength(in text: UnsafeRawBufferPointer, at place: Int) -> Int {
    let first = text[place]
    let length: Int
    var low: UInt8 = 0x80
    var high: UInt8 = 0xBF
    switch first {
    case 0xC2...0xDF: length = 2
    case 0xE0: (length, low) = (3, 0xA0)
    case 0xED: (length, high) = (3, 0x9F)
    case 0xE1...0xEF: length = 3
    case 0xF0: (length, low) = (4, 0x90)
    case 0xF4: (length, high) = (4, 0x8F)
    case 0xF1...0xF3: length = 4
    default: return 0
    }
    guard place + length <= text.count, text[place + 1] >= low, text[place + 1] <= high else { return 0 }
    for offset in 2..<max(2, length) where text[place + offset] & 0xC0 != 0x80 { return 0 }
    return length
}

/// The number of Unicode scalars in UTF-8 text; `nil` when it is not well formed.
func scalarCount(_ text: UnsafeRawBufferPointer) -> Int? {
    var count = 0
    var place = 0
    while place < text.count {
        if place + 8 <= text.count, EightBytes(text, at: place).isASCII {
            (place, count) = (place + 8, count + 8)
            continue
        }
        if text[place] < 0x80 {
            place += 1
        } else {
            let length = validSequenceLength(in: text, at: place)
            guard length > 0 else { return nil }
            place += length
        }
        count += 1
    }
    return count
}

extension JSONWriter {
    /// Writes a parsed value again: same members, same order, no white space.
    package mutating func value(_ value: JSONValue) {
        switch value.kind {
        case .null: null()
        case .bool: bool(value.bool ?? false)
        case .integer:
            if let number = value.integer { integer(number) } else { integer(value.unsignedInteger ?? 0) }
        case .double: double(value.double ?? 0)
        case .string: string(bytes: value.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0))
        case .array:
            beginArray()
            for element in value.elements { self.value(element) }
            endArray()
        case .object:
            beginObject()
            for member in value.members {
                key(bytes: member.key.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0))
                self.value(member.value)
            }
            endObject()
        }
    }
}
