// JSON answers built from literals. Members without a value are omitted.

public protocol JSONWritable {
    func json(into writer: inout JSONWriter)
}

/// The members of an object, written in this order.
///
///     ["jobId": job.description, "attempts": job.attempts, "reason": job.reason.unlessEmpty]
///
/// A member whose value is `nil` is omitted. `JSONNull` writes `null`. Each value is boxed, so answers on the hot path use
/// `JSONWriter` directly.
public struct JSONObject: JSONWritable, ExpressibleByDictionaryLiteral {
    private var members: [(name: String, value: any JSONWritable)] = []

    public init(dictionaryLiteral elements: (String, (any JSONWritable)?)...) {
        members.reserveCapacity(elements.count)
        for (name, value) in elements { add(name, value) }
    }

    public init(_ members: some Sequence<(String, any JSONWritable)>) {
        for (name, value) in members { self.members.append((name, value)) }
    }

    /// Appends a member; the caller must not add the same name twice.
    public mutating func add(_ name: String, _ value: (any JSONWritable)?) {
        if let value { members.append((name, value)) }
    }

    public static func + (first: JSONObject, second: JSONObject) -> JSONObject {
        var both = first
        both.members += second.members
        return both
    }

    /// The object, or `nil` without members, so that an enclosing object omits it.
    public var unlessEmpty: JSONObject? { members.isEmpty ? nil : self }

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
    /// `true` or `nil`, so that a false member is omitted.
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
