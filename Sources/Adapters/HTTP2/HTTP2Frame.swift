/// The one frame that we read ourselves: a GOAWAY in the place of the server's first settings.
enum HTTP2Frame {
    /// Length, type, flags, stream (RFC 9113, section 4.1).
    static let headByteCount = 9
    static let goAway: UInt8 = 7
    /// A server may send no larger frame before the client's settings allow it.
    private static let bodyByteLimit = 16 << 10

    /// Reads a GOAWAY from its first byte on; `nil` while it is not complete.
    static func goodbye(_ bytes: [UInt8]) throws(HTTP2Failure) -> (code: UInt32, debug: [UInt8])? {
        let count = bytes[0..<3].reduce(0) { $0 << 8 | Int($1) }
        guard (8...bodyByteLimit).contains(count) else {
            throw HTTP2Failure(description: "a GOAWAY of \(count) bytes")
        }
        guard bytes.count >= headByteCount + count else { return nil }
        let code = bytes[13..<17].reduce(0) { $0 << 8 | UInt32($1) }
        return (code, Array(bytes[17..<headByteCount + count]))
    }
}
