// Answers as values: an object is written down as a literal, and members without a value are left out.

/// A value that a document can hold.
public protocol JSONWritable {
    func json(into writer: inout JSONWriter)
}

/// The members of an object, in the order of the answer.
///
///     ["jobId": job.description, "attempts": job.attempts, "reason": job.reason.unlessEmpty]
///
/// A member whose value is `nil` is left out; `JSONNull` writes `null`. Each value is boxed: answers of the hot path use
/// `JSONWriter` itself.
public struct JSONObject: JSONWritable, ExpressibleByDictionaryLiteral {
    private var members: [(name: String, value: any JSONWritable)] = []

    public init(dictionaryLiteral elements: (String, (any JSONWritable)?)...) {
        members.reserveCapacity(elements.count)
        for (name, value) in elements { add(name, value) }
    }

    public init(_ members: some Sequence<(String, any JSONWritable)>) {
        for (name, value) in members { self.members.append((name, value)) }
    }

    /// Adds a member behind the others; the names are the caller's to keep apart.
    public mutating func add(_ name: String, _ value: (any JSONWritable)?) {
        if let value { members.append((name, value)) }
    }

    public static func + (first: JSONObject, second: JSONObject) -> JSONObject {
        var both = first
        both.members += second.members
        return both
    }

    /// `nil` for an object without members, so that it is left out of another.
    public var unlessEmpty: JSONObject? { members.isEmpty ? nil : self }

    /// The whole document.
    public var bytes: [UInt8] {
        var writer = JSONWriter(capacity: 64 + 32 * members.count)
        json(into: &writer)
        return writer.bytes
    }

    public func json(into writer: inout JSONWriter) {
        writer.beginObject()
        writer.members(self)
        writer.endObject()
    }

    fileprivate func write(to writer: inout JSONWriter) {
        for (name, value) in members {
            writer.key(text: name)
            value.json(into: &writer)
        }
    }
}

/// JSON that is embedded unchanged.
public struct JSONText: JSONWritable {
    private let bytes: [UInt8]
    public init(_ bytes: [UInt8]) { self.bytes = bytes }
    public func json(into writer: inout JSONWriter) { writer.raw(bytes) }
}

public struct JSONNull: JSONWritable {
    public init() {}
    public func json(into writer: inout JSONWriter) { writer.null() }
}

extension JSONWriter {
    /// Adds members to the object that is being written.
    public mutating func members(_ object: JSONObject) { object.write(to: &self) }
}

extension String: JSONWritable {
    @inlinable public func json(into writer: inout JSONWriter) { writer.string(self) }
    public var unlessEmpty: String? { isEmpty ? nil : self }
}
extension StaticString: JSONWritable {
    @inlinable public func json(into writer: inout JSONWriter) { writer.string(self) }
}
extension Bool: JSONWritable {
    @inlinable public func json(into writer: inout JSONWriter) { writer.bool(self) }
    /// `true`, or `nil` for a member that is there only when it is true.
    public var unlessFalse: Bool? { self ? true : nil }
}
extension Array: JSONWritable where Element: JSONWritable {
    public func json(into writer: inout JSONWriter) {
        writer.beginArray()
        for element in self { element.json(into: &writer) }
        writer.endArray()
    }
    public var unlessEmpty: Self? { isEmpty ? nil : self }
}
extension FixedWidthInteger where Self: JSONWritable {
    @inlinable public func json(into writer: inout JSONWriter) {
        if Self.isSigned { writer.integer(Int64(self)) } else { writer.integer(UInt64(self)) }
    }
    public var unlessZero: Self? { self == 0 ? nil : self }
}
extension Int: JSONWritable {}
extension Int64: JSONWritable {}
extension Int32: JSONWritable {}
extension UInt8: JSONWritable {}
extension UInt16: JSONWritable {}
extension UInt32: JSONWritable {}
extension UInt64: JSONWritable {}
