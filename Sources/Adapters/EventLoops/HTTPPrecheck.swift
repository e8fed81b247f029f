/// A whole answer, as bytes.
package struct HTTPReply: Sendable {
    package var status: Int
    package var contentType: String
    package var headers: [(name: String, value: String)]
    package var body: [UInt8]

    package init(
        status: Int, contentType: String = "text/plain", headers: [(name: String, value: String)] = [], body: [UInt8]
    ) {
        (self.status, self.contentType, self.headers, self.body) = (status, contentType, headers, body)
    }
}

/// What becomes of a request whose head is here and whose body is still to come.
package enum HTTPPrecheck {
    /// Its body is taken, up to `byteLimit` bytes; `isProven`: the head says who sends it, and that it may.
    case take(byteLimit: Int, isProven: Bool)
    /// It is answered at once, and the connection ends.
    case refuse(HTTPReply)
}

/// A request's head, shown before its body is kept; good during the call that gets it.
package struct HTTPRequestHead {
    let connection: HTTPConnection
    package let method: HTTPMethod
    /// Path and query; see `HTTPExchange.rawTarget`.
    package let target: UnsafeRawBufferPointer
    /// What the body has at least: what was announced, or for chunks what has come and more than was allowed; 0 before.
    package let bodyByteCount: Int
    package let isLoopback: Bool

    /// As `HTTPExchange` has them.
    package var countedNetwork: UInt64 { connection.countedNetwork }
    package var peerHost: String { connection.peerHost }

    /// As `HTTPExchange.headerBytes`.
    package func header(_ name: StaticString) -> UnsafeRawBufferPointer? {
        connection.value(UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
    }
}
