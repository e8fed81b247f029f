/// A fault in a message body, which ends the connection with `CloseCode.malformed`; the details are for logs and tests.
public enum WireError: Error, Equatable, Sendable {
    /// A tag, a number or a length runs past the end.
    case truncated
    /// A varint has more than ten bytes or more than 64 bits.
    case varintTooLong
    /// The field number is 0, or the wire type is a group or does not exist.
    case badTag
    /// A known field has another wire type than the schema's.
    case wrongWireType(field: UInt32)
    case badText(field: UInt32)
    /// An identifier is neither empty nor 16 bytes long.
    case badIdentifier(field: UInt32)
    /// A text or a byte string exceeds its limit.
    case tooLong(field: UInt32)
    /// A repeated field has more elements than its limit.
    case tooMany(field: UInt32)
    /// An enum's number is unknown and has no safe default.
    case unknownValue(field: UInt32)
    /// A range is empty, out of order, overlaps another one or does not lie above its position.
    case badRange(field: UInt32)
    /// A field that must occur once occurs twice: Hello's proof, or a stream in an Ack.
    case repeated(field: UInt32)
}
