/// A parser for GOAWAY before the server's first settings, which nghttp2 does not accept.
enum HTTP2Frame {
    /// Length, type, flags, stream (RFC 9113, section 4.1).
    static let headByteCount = 9
    static let goAway: UInt8 = 7
    /// The largest frame that a server may send before the client's settings allow a larger one.
    private static let bodyByteLimit = 16 << 10

    /// Parses a GOAWAY from its first byte; returns `nil` while it is incomplete.
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
