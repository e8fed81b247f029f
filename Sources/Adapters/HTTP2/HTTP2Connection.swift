package import Cryptography
package import EventLoops

/// An HTTP/2 connection on a loop: a session over a byte stream, with TLS or without.
///
/// Confined to its loop. Subclasses override what `HTTP2Observer` tells and `ended`. What is submitted leaves with
/// `flush`; frames that answer the peer's leave by themselves.
open class HTTP2Connection: HTTP2Observer {
    /// Output that waits in the byte stream before the session is asked for more.
    private static let outboxByteLimit = 256 << 10

    package private(set) var session: HTTP2Session?
    private var stream: ByteStream?
    private var link: Link?
    /// Nothing ever came of it: the handshake, or before it the connection, failed.
    package private(set) var isEstablished = false
    private var replacement: [UInt8]?
    private var isMute = false
    private var isDeaf = false
    /// The session is at work: what its streams are told must neither feed nor drain it.
    private var isWorking = false

    /// Binds a byte stream's delegate to its connection without a cycle of two classes with one base.
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

    /// Begins as a client on a connection under way; TLS checks that the server is `serverName`.
    ///
    /// With `tunnel` the connection leads to a proxy, which is asked for the way to the server first.
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

    /// Begins as a server on a connection that was accepted.
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

    /// The other end, as the kernel knows it.
    package var peer: SocketAddress? { stream?.peer }

    /// The connection is over, for the reason that the text tells: exactly one call, after every stream's end.
    open func ended(_ reason: String) {}

    /// TLS is there, or not asked for: the connection may be used.
    open func established() {}

    // MARK: Output

    /// Sends what the session has ready, as far as the peer takes it.
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

    /// As a server that takes nobody: sends these bytes in place of its settings once TLS is there, then closes.
    package func sendInPlaceOfSettings(_ bytes: [UInt8]) { replacement = bytes }

    /// As a server: sends nothing at all, for tests of the other side's timeouts.
    package func saysNothing() { isMute = true }

    /// As a server: reads nothing once TLS is there, for tests of what the other side does then.
    package func readsNothing() { isDeaf = true }

    /// Ends the connection at once.
    package func close() { stream?.close() }

    /// Sends what is ready, then ends the connection.
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

    /// Once, whichever end comes first.
    private func finish(_ reason: String) {
        guard let session else { return }
        self.session = nil
        stream = nil
        session.endStreams(HTTP2Code.internalError)
        ended(reason)
        link = nil
    }
}
