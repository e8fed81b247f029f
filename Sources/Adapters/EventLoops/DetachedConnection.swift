internal import CLibevent
internal import Cryptography
internal import Glibc
package import Platform
internal import Synchronization

/// A connection without a loop: just accepted, or moving between loops; releasing it without an attach closes the connection.
package final class DetachedConnection: @unchecked Sendable {
    // Safe: the content is set before the object is shared, and only the thread that wins `isTaken` reads it, once.

    struct Content {
        var descriptor: CInt
        var tls: TLSSession?
        var isWebSocket = false
        /// The state of a WebSocket within a message.
        var webSocket: WebSocketSession?
        /// Received bytes that were not consumed; they precede the bytes in the socket.
        var leftover: [UInt8] = []
        var unsent: [UInt8] = []
        var client: SocketAddress?
        /// The guard that counts the connection; the owner of the content must call `leave` at the end.
        var counted: CountedAddress?
    }

    /// The remote address, or the client's behind a balancer; it is `nil` if the peer has disconnected.
    package let peer: SocketAddress?
    private var content: Content?
    private let isTaken = Atomic<Bool>(false)

    init(_ content: Content, peer: SocketAddress?) {
        self.content = content
        self.peer = peer
    }

    /// Takes ownership of a connected, non-blocking socket.
    package convenience init(adopting descriptor: CInt) {
        self.init(Content(descriptor: descriptor), peer: SocketAddress.peer(of: descriptor))
    }

    /// Starts to connect; the stream that takes the connection reports the result.
    ///
    /// - Throws: when no descriptor is left, or the system refuses the address immediately.
    package convenience init(connectingTo address: RemoteAddress) throws(SystemError) {
        self.init(Content(descriptor: try address.beginConnecting()), peer: nil)
    }

    deinit {
        guard let content else { return }
        content.counted?.leave()
        Glibc.close(content.descriptor)
    }

    package var isLoopback: Bool { peer?.isLoopback ?? false }

    /// Whether the connection uses TLS; valid until it is attached.
    package var isTLS: Bool { content?.tls != nil }

    /// The address under which a guard counts the connection, or 0; valid until it is attached.
    package var countedNetwork: UInt64 { content?.counted?.network ?? 0 }

    /// Sends a final message to a refused connection, as far as the socket accepts it, and closes.
    ///
    /// Pending input is read before the close, since unread bytes would cause a reset that discards the message.
    package func turnAway(with word: UnsafeRawBufferPointer) {
        let content = take()
        content.counted?.leave()
        let descriptor = content.descriptor
        defer { Glibc.close(descriptor) }
        guard let start = word.baseAddress, !word.isEmpty else { return }
        _ = send(descriptor, start, word.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
        shutdown(descriptor, CInt(SHUT_WR))
        withUnsafeTemporaryAllocation(byteCount: Limits.drainedByteCount, alignment: 16) { room in
            _ = recv(descriptor, room.baseAddress, room.count, CInt(MSG_DONTWAIT))
        }
    }

    func take() -> Content {
        // Acquire and release: the winner sees the content written by the creator.
        let wasTaken = isTaken.exchange(true, ordering: .acquiringAndReleasing)
        guard !wasTaken, let content else { preconditionFailure("a detached connection was attached twice") }
        self.content = nil
        return content
    }
}
