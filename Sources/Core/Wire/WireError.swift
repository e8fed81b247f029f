/// What is wrong with a body.
///
/// Whatever the case, the connection ends with `CloseCode.malformed`; the case and the field
/// number are for logs and tests.
public enum WireError: Error, Equatable, Sendable {
    /// A tag, a number or a length runs past the end.
    case truncated
    /// A varint has more than ten bytes or more than 64 bits.
    case varintTooLong
    /// Field number 0, a group, or a wire type that does not exist.
    case badTag
    /// A known field came with another wire type than the schema's.
    case wrongWireType(field: UInt32)
    /// A text is not UTF-8.
    case badText(field: UInt32)
    /// An identifier is neither empty nor 16 bytes long.
    case badIdentifier(field: UInt32)
    /// A text or a byte string is over its limit.
    case tooLong(field: UInt32)
    /// A repeated field has more elements than its limit.
    case tooMany(field: UInt32)
    /// An enum's number has no meaning here and none can be assumed safely.
    case unknownValue(field: UInt32)
    /// Ranges that are empty, out of order, overlap, or do not lie beyond their position.
    case badRange(field: UInt32)
    /// A field that may come once came twice: Hello's proof, or a stream in an Ack.
    case repeated(field: UInt32)
}
