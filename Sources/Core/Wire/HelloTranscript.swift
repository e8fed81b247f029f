/// The input of a Hello's proof: "longwire hello 1" and the Hello's body without the proof field, otherwise as sent.
///
/// A client encodes its Hello without a proof, computes the proof over `label ‖ body` and appends the proof field. It may also
/// encode the Hello again with the proof set, since the other bytes do not change.
///
/// The gateway removes the proof from the received bytes instead of encoding the Hello again. Both sides therefore hash the same
/// bytes, whatever order or encoding the client uses.
public struct HelloTranscript: Equatable, Sendable {
    public static let label: StaticString = "longwire hello 1"

    public let bytes: [UInt8]
    /// The proof, not yet verified; empty if the Hello has none.
    public let proof: [UInt8]

    /// - Parameter body: a received Hello's body, or a client's own body before the proof is added.
    /// - Throws: when the body is not a sequence of fields, or holds more than one proof.
    public init(body: RawSpan) throws(WireError) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.label.utf8CodeUnitCount + body.byteCount)
        // Safe: a literal's bytes are never freed.
        Self.label.withUTF8Buffer { label in unsafe bytes.append(contentsOf: label) }

        var proof: [UInt8]?
        var cursor = Cursor(body.byteOffsets)
        while cursor.offset < cursor.end {
            let start = cursor.offset
            let (number, wireType) = try cursor.tag(in: body)
            guard number == Hello.Field.proof.rawValue else {
                try cursor.skip(wireType, in: body)
                bytes.append(contentsOf: body.array(start..<cursor.offset))
                continue
            }
            guard wireType == .lengthDelimited else { throw .wrongWireType(field: number) }
            guard proof == nil else { throw .repeated(field: number) }
            proof = try cursor.array(Hello.Field.proof, limit: Limits.proofByteCount, in: body)
        }
        (self.bytes, self.proof) = (bytes, proof ?? [])
    }
}
