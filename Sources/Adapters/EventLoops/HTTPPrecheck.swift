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

/// The decision about a request whose body has not been received.
package enum HTTPPrecheck {
    /// Accepts a body of up to `byteLimit` bytes; with `isProven` the head authenticates and authorizes the sender.
    case take(byteLimit: Int, isProven: Bool)
    /// Responds immediately and closes the connection.
    case refuse(HTTPReply)
}

/// A request's head before its body is stored, valid during the call that receives it.
package struct HTTPRequestHead {
    let connection: HTTPConnection
    package let method: HTTPMethod
    /// The path and query, as in `HTTPExchange.rawTarget`.
    package let target: UnsafeRawBufferPointer
    /// The minimum size of the body: the announced length, 0 for chunks, or `Int.max` after a body exceeded the reader's limit.
    package let bodyByteCount: Int
    package let isLoopback: Bool

    package var countedNetwork: UInt64 { connection.countedClient }
    package var peerHost: String { connection.clientHost }

    package func header(_ name: StaticString) -> UnsafeRawBufferPointer? {
        connection.value(UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
    }
}
