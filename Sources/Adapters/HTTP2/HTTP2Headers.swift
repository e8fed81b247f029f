/// A block of header fields, with lower-case names and pseudo-fields first, as HTTP/2 requires.
package struct HTTP2Headers: Equatable {
    struct Field: Equatable {
        var name: Range<Int>
        var value: Range<Int>
        /// Whether the value stays out of the compression table, through which other requests could guess a token.
        var isSensitive: Bool
    }

    private(set) var bytes: [UInt8] = []
    private(set) var fields: [Field] = []

    package init() { bytes.reserveCapacity(512) }

    package var count: Int { fields.count }

    /// Adds a field; `name` must be in lower case.
    package mutating func add(_ name: StaticString, _ value: some Sequence<UInt8>, isSensitive: Bool = false) {
        let start = bytes.count
        bytes += UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        let middle = bytes.count
        bytes += value
        fields.append(Field(name: start..<middle, value: middle..<bytes.count, isSensitive: isSensitive))
    }

    package mutating func add(_ name: StaticString, _ value: String, isSensitive: Bool = false) {
        add(name, value.utf8, isSensitive: isSensitive)
    }

    /// Adds a field whose name may have capital letters, which become small ones.
    package mutating func add(lowercasing name: String, _ value: String, isSensitive: Bool = false) {
        let start = bytes.count
        bytes += name.utf8.lazy.map { UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 ? $0 | 0x20 : $0 }
        let middle = bytes.count
        bytes += value.utf8
        fields.append(Field(name: start..<middle, value: middle..<bytes.count, isSensitive: isSensitive))
    }
}
