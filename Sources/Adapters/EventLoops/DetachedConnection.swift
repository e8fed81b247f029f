internal import CLibevent
internal import Cryptography
internal import Glibc
package import Platform
internal import Synchronization

/// A connection between two owners: just accepted, or on its way from one loop to another.
///
/// A loop takes it when it attaches it to a stream, once; if no loop does, the last reference closes the connection.
package final class DetachedConnection: @unchecked Sendable {
    // Sound because the content is set before the object is shared and read once, by the thread that wins `isTaken`.

    /// What moves.
    struct Content {
        var descriptor: CInt
        var tls: TLSSession?
        var isWebSocket = false
        /// What a WebSocket keeps in the middle of a message.
        var webSocket: WebSocketSession?
        /// Received and not consumed; comes before anything that is still in the socket.
        var leftover: [UInt8] = []
        /// Written and not sent.
        var unsent: [UInt8] = []
        /// The other end as a balancer named it.
        var client: SocketAddress?
        /// Whose guard counts it; the content's owner says when it is over.
        var counted: CountedAddress?
    }

    /// The other end, the client's where a balancer is between; `nil` if it has left already.
    package let peer: SocketAddress?
    private var content: Content?
    private let isTaken = Atomic<Bool>(false)

    init(_ content: Content, peer: SocketAddress?) {
        self.content = content
        self.peer = peer
    }

    /// Adopts a connected, non-blocking socket from outside the module; its owner is this object from now on.
    package convenience init(adopting descriptor: CInt) {
        self.init(Content(descriptor: descriptor), peer: SocketAddress.peer(of: descriptor))
    }

    /// Begins to connect; the stream that takes the connection learns what comes of it.
    ///
    /// - Throws: when the system has no descriptor, or refuses the address at once.
    package convenience init(connectingTo address: RemoteAddress) throws(SystemError) {
        self.init(Content(descriptor: try address.beginConnecting()), peer: nil)
    }

    deinit {
        guard let content else { return }
        content.counted?.leave()
        Glibc.close(content.descriptor)
    }

    /// Whether the other end is on this machine.
    package var isLoopback: Bool { peer?.isLoopback ?? false }

    /// Whether its bytes are in TLS; until it is attached.
    package var isTLS: Bool { content?.tls != nil }

    /// The address that a guard counts it to, until it is attached; 0: it is not counted.
    package var countedNetwork: UInt64 { content?.counted?.network ?? 0 }

    /// Sends a last word, as far as the socket takes it at once, and closes: for a newcomer for whom there is no room.
    ///
    /// What the peer has sent already is read, since unread bytes would reset the connection before the word arrives.
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
        // Acquire and release: the winner sees the content as the maker left it.
        let wasTaken = isTaken.exchange(true, ordering: .acquiringAndReleasing)
        guard !wasTaken, let content else { preconditionFailure("a detached connection was attached twice") }
        self.content = nil
        return content
    }
}
