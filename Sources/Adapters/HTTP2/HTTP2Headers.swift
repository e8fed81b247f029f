/// A block of header fields: names in lower case, pseudo-fields first, as HTTP/2 wants them.
package struct HTTP2Headers: Equatable {
    struct Field: Equatable {
        var name: Range<Int>
        var value: Range<Int>
        /// The value stays out of the compression's table: a token, which another request could otherwise guess at.
        var isSensitive: Bool
    }

    private(set) var bytes: [UInt8] = []
    private(set) var fields: [Field] = []

    package init() { bytes.reserveCapacity(512) }

    package var count: Int { fields.count }

    /// Adds a field; `name` is in lower case.
    package mutating func add(_ name: StaticString, _ value: some Sequence<UInt8>, isSensitive: Bool = false) {
        let start = bytes.count
        bytes += UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        let middle = bytes.count
        bytes += value
        fields.append(Field(name: start..<middle, value: middle..<bytes.count, isSensitive: isSensitive))
    }

    /// Adds a field with a text.
    package mutating func add(_ name: StaticString, _ value: String, isSensitive: Bool = false) {
        add(name, value.utf8, isSensitive: isSensitive)
    }
}
