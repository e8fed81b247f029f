package import Cryptography
package import EventLoops

/// An HTTP/2 connection on an event loop: a session over a byte stream, with or without TLS.
///
/// It is confined to its loop. Subclasses override the functions of `HTTP2Observer`, and `ended`. Submitted frames are sent by
/// `flush`. Protocol responses, such as acknowledgments, are sent automatically.
open class HTTP2Connection: HTTP2Observer {
    /// The size of the byte stream's outbox above which the session is not asked for more output.
    private static let outboxByteLimit = 256 << 10

    package private(set) var session: HTTP2Session?
    private var stream: ByteStream?
    private var link: Link?
    /// Whether the connection was established, including TLS; it is `false` after a failed connection or handshake.
    package private(set) var isEstablished = false
    private var replacement: [UInt8]?
    private var isMute = false
    private var isDeaf = false
    /// Whether the session runs its callbacks, which must neither pass input to the session nor take output from it.
    private var isWorking = false

    /// A delegate with a weak reference, which avoids a reference cycle between stream and connection.
    private final class Link: StreamDelegate {
        weak var connection: HTTP2Connection?

        override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
            connection?.received(bytes)
            return bytes.count
        }
        override func handshakeFinished(_ stream: ByteStream) { connection?.handshakeFinished() }
        override func outboxDrained(_ stream: ByteStream) { connection?.flush() }
        override func closed(_ stream: ByteStream, _ reason: CloseReason) { connection?.closed("\(reason)") }
    }

    /// Starts as a client on a pending connection, through a proxy with `tunnel`; TLS verifies `serverName`.
    package func connect(
        _ connection: DetachedConnection, on loop: EventLoop, tls: TLSContext?, serverName: String,
        through tunnel: ProxyTunnel? = nil, settings: HTTP2Session.Settings = HTTP2Session.Settings()
    ) throws(HTTP2Failure) {
        session = try HTTP2Session(.client, settings: settings, observer: self)
        guard let tunnel else { return attach(connection, on: loop, tls: tls, serverName: serverName) }
        let way = TunnelLink(
            tunnel,
            opened: { [weak self] in self?.attach($0, on: loop, tls: tls, serverName: serverName) },
            failed: { [weak self] in self?.finish($0) })
        let stream = ByteStream(attaching: connection, on: loop, delegate: way)
        self.stream = stream
        way.begin(stream)
    }

    package func accept(
        _ connection: DetachedConnection, on loop: EventLoop, tls: TLSContext?,
        settings: HTTP2Session.Settings = HTTP2Session.Settings()
    ) throws(HTTP2Failure) {
        session = try HTTP2Session(.server, settings: settings, observer: self)
        attach(connection, on: loop, tls: tls, serverName: nil)
    }

    private func attach(
        _ connection: DetachedConnection, on loop: EventLoop, tls: TLSContext?, serverName: String?
    ) {
        let link = Link()
        link.connection = self
        self.link = link
        stream = ByteStream(
            attaching: connection, on: loop, delegate: link, outboxByteLimit: 4 * Self.outboxByteLimit, tls: tls,
            serverName: serverName)
        if tls == nil {
            isEstablished = true
            flush()
        }
    }

    package var peer: SocketAddress? { stream?.peer }

    /// Reports the end of the connection with its reason, exactly once and after the end of every stream.
    open func ended(_ reason: String) {}

    /// Reports that the connection is ready, after the TLS handshake if TLS is used.
    open func established() {}

    // MARK: Output

    /// Sends the session's pending output until the outbox is full.
    package func flush() {
        guard !isWorking, isEstablished, !isMute, let stream, let session else { return }
        if let replacement {
            self.replacement = nil
            isWorking = true
            _ = replacement.withUnsafeBytes { stream.write($0) }
            return stream.closeAfterFlush()
        }
        isWorking = true
        defer { isWorking = false }
        while stream.outboxByteCount < Self.outboxByteLimit, let bytes = session.nextOutput() {
            guard stream.write(bytes) else { return }
        }
        if !session.isAlive { stream.closeAfterFlush() }
    }

    /// Sends these bytes instead of the server's settings, then closes, to simulate a server that rejects clients.
    package func sendInPlaceOfSettings(_ bytes: [UInt8]) { replacement = bytes }

    /// Sends nothing as a server, for tests of the peer's timeouts.
    package func saysNothing() { isMute = true }

    /// Reads nothing as a server after the TLS handshake, for tests of the peer's behavior.
    package func readsNothing() { isDeaf = true }

    package func close() { stream?.close() }

    package func closeAfterFlush() {
        flush()
        stream?.closeAfterFlush()
    }

    // MARK: Input

    private func handshakeFinished() {
        isEstablished = true
        if isDeaf { stream?.pauseReading() }
        established()
        flush()
    }

    private func received(_ bytes: UnsafeRawBufferPointer) {
        guard let session else { return }
        isWorking = true
        var failure: HTTP2Failure?
        do throws(HTTP2Failure) { try session.receive(bytes) } catch { failure = error }
        isWorking = false
        flush()
        if let failure {
            stream?.close()
            finish("HTTP/2: \(failure)")
        }
    }

    private func closed(_ reason: String) { finish(reason) }

    /// Ends the connection for the first of several reasons; later calls have no effect.
    private func finish(_ reason: String) {
        guard let session else { return }
        self.session = nil
        stream = nil
        session.endStreams(HTTP2Code.internalError)
        ended(reason)
        link = nil
    }
}
