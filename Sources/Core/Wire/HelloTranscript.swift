/// What a Hello's proof is computed over: "longwire hello 1", then the Hello's body with the proof left out and every
/// other byte as it was sent, unknown fields included.
///
/// A client encodes its Hello without a proof, computes the proof over `label ‖ body`, and appends the proof field to
/// that body (or encodes the Hello again with the proof set: the other bytes are the same). The gateway cuts the proof
/// out of what it received instead of encoding anew, so both sides hash the same bytes whatever order or spelling the
/// client's encoder prefers.
public struct HelloTranscript: Equatable, Sendable {
    public static let label: StaticString = "longwire hello 1"

    /// The label and the body without its proof.
    public let bytes: [UInt8]
    /// The proof's bytes, not judged here; empty when there is none.
    public let proof: [UInt8]

    /// - Parameter body: a Hello's body as received, or a client's own before the proof is added.
    /// - Throws: when the body is not a sequence of fields, or holds more than one proof.
    public init(body: RawSpan) throws(WireError) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.label.utf8CodeUnitCount + body.byteCount)
        // Sound: a literal's bytes live for ever.
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
