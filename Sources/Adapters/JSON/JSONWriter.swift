internal import TextForms

/// A writer that appends a JSON document to a byte array and inserts commas; the caller orders brackets and keys.
@frozen public struct JSONWriter {
    /// The document written so far, to be changed by the writer only.
    public var bytes: [UInt8]
    @usableFromInline var needsComma = false

    @inlinable public init(capacity: Int = 256) {
        bytes = []
        bytes.reserveCapacity(capacity)
    }

    /// Clears the document but keeps its memory.
    @inlinable public mutating func removeAll() {
        bytes.removeAll(keepingCapacity: true)
        needsComma = false
    }

    @frozen public struct Mark: Equatable {
        @usableFromInline let byteCount: Int
        @usableFromInline let needsComma: Bool
        @inlinable init(byteCount: Int, needsComma: Bool) {
            (self.byteCount, self.needsComma) = (byteCount, needsComma)
        }
    }

    @inlinable public var mark: Mark { Mark(byteCount: bytes.count, needsComma: needsComma) }

    @inlinable public mutating func rewind(to mark: Mark) {
        bytes.removeLast(bytes.count - mark.byteCount)
        needsComma = mark.needsComma
    }

    @inlinable mutating func separate() {
        if needsComma { bytes.append(UInt8(ascii: ",")) }
    }

    @inlinable public mutating func beginObject() {
        separate()
        bytes.append(UInt8(ascii: "{"))
        needsComma = false
    }

    @inlinable public mutating func endObject() {
        bytes.append(UInt8(ascii: "}"))
        needsComma = true
    }

    @inlinable public mutating func beginArray() {
        separate()
        bytes.append(UInt8(ascii: "["))
        needsComma = false
    }

    @inlinable public mutating func endArray() {
        bytes.append(UInt8(ascii: "]"))
        needsComma = true
    }

    /// Writes a key that needs no escapes.
    @inlinable public mutating func key(_ name: StaticString) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        bytes.append(contentsOf: UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
        bytes.append(UInt8(ascii: "\""))
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    /// Writes a key that is known only at run time and may need escapes.
    @inlinable public mutating func key(text name: String) {
        string(name)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    @inlinable public mutating func member(_ name: StaticString, _ value: some JSONWritable) {
        key(name)
        value.json(into: &self)
    }
    @inlinable public mutating func member(text name: String, _ value: some JSONWritable) {
        key(text: name)
        value.json(into: &self)
    }

    // These functions write an object or array. `body` must use the writer passed to it.
    public mutating func object(_ body: (inout JSONWriter) -> Void) {
        beginObject()
        body(&self)
        endObject()
    }
    public mutating func object(_ name: StaticString, _ body: (inout JSONWriter) -> Void) {
        key(name)
        object(body)
    }
    public mutating func object(text name: String, _ body: (inout JSONWriter) -> Void) {
        key(text: name)
        object(body)
    }
    public mutating func array(_ body: (inout JSONWriter) -> Void) {
        beginArray()
        body(&self)
        endArray()
    }
    public mutating func array(_ name: StaticString, _ body: (inout JSONWriter) -> Void) {
        key(name)
        array(body)
    }
    public mutating func objects<Values: Sequence>(
        _ name: StaticString, _ values: Values, _ body: (inout JSONWriter, Values.Element) -> Void
    ) {
        array(name) { writer in
            for value in values { writer.object { body(&$0, value) } }
        }
    }
    public mutating func strings(_ name: StaticString, _ values: some Sequence<String>) {
        array(name) { writer in
            for value in values { writer.string(value) }
        }
    }

    /// Writes a key of 32 hexadecimal digits without creating a String.
    public mutating func key(hex high: UInt64, _ low: UInt64) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        for word in [high, low] {
            for shift in stride(from: 60, through: 0, by: -4) {
                bytes.append(lowerHexDigit(UInt8(truncatingIfNeeded: word >> UInt64(shift)) & 15))
            }
        }
        bytes.append(UInt8(ascii: "\""))
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    @inlinable public mutating func key(bytes name: UnsafeRawBufferPointer) {
        string(bytes: name)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
    }

    /// Writes the shortest text that parses to the same number, or `null` for a number that is not finite.
    public mutating func double(_ value: Double) {
        guard value.isFinite else { return null() }
        separate()
        bytes.append(contentsOf: value.description.utf8)
        needsComma = true
    }

    @inlinable public mutating func integer(_ value: Int64) {
        separate()
        append(magnitude: value.magnitude, isNegative: value < 0)
        needsComma = true
    }

    @inlinable public mutating func integer(_ value: UInt64) {
        separate()
        append(magnitude: value, isNegative: false)
        needsComma = true
    }

    @inlinable public mutating func bool(_ value: Bool) { raw(value ? "true" : "false") }

    @inlinable public mutating func null() { raw("null") }

    @inlinable public mutating func raw(_ text: StaticString) {
        separate()
        bytes.append(contentsOf: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
        needsComma = true
    }

    /// Embeds a complete JSON value unchanged.
    @inlinable public mutating func raw(_ json: [UInt8]) { json.withUnsafeBytes { raw($0) } }

    @inlinable mutating func raw(_ json: UnsafeRawBufferPointer) {
        separate()
        bytes.append(contentsOf: json)
        needsComma = true
    }

    /// Reserves the position of a value that the caller inserts later, at the count of `bytes` after this call.
    @inlinable public mutating func hole() {
        separate()
        needsComma = true
    }

    @inlinable public mutating func string(_ text: StaticString) {
        string(bytes: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    @inlinable public mutating func string(_ text: String) {
        var text = text
        text.withUTF8 { string(bytes: UnsafeRawBufferPointer($0)) }
    }

    /// Writes a string; invalid UTF-8 becomes U+FFFD, so the document is always valid.
    public mutating func string(bytes text: UnsafeRawBufferPointer) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        JSONString.appendContent(text, to: &bytes)
        bytes.append(UInt8(ascii: "\""))
        needsComma = true
    }

    @inlinable mutating func append(magnitude: UInt64, isNegative: Bool) {
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

extension JSONWriter {
    /// Writes a parsed value with the same members, order and digits, without white space.
    public mutating func value(_ value: JSONValue) {
        switch value.kind {
        case .null: null()
        case .bool: bool(value.bool ?? false)
        case .integer:
            if let number = value.integer { integer(number) } else { integer(value.unsignedInteger ?? 0) }
        case .double: raw(value.numberText ?? UnsafeRawBufferPointer(start: nil, count: 0))
        case .unreadable: null()
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
