internal import Delivery
internal import EventLoops
internal import Wire

/// A connection from another gateway: a link that carries its questions and their answers, or a trunk of relayed devices.
final class IncomingLink: LinkConnection {
    private(set) var peer: LinkHello?
    private(set) var port: PeerState?
    private let peerAddress: String
    /// The key that counts this connection among the unidentified ones (`PeerConnections.strangerCounts`).
    let place: String
    /// Whether the first frame made this connection a trunk, which moves to the relay loop.
    private var isTrunk = false

    init(_ peerConnections: PeerConnections, peerAddress: String, place: String) {
        (self.peerAddress, self.place) = (peerAddress, place)
        super.init(peerConnections)
    }

    override func take(_ frame: LinkFrame) throws(LinkFault) -> Bool {
        guard peer != nil else { return try introduce(frame) }
        switch frame.kind {
        case .heartbeat: return true
        case .close:
            stream?.close(.endOfStream)
            return true
        case .publishes, .list, .message:
            do throws(LinkCodec.Refusal) {
                peerConnections.take(try LinkCodec.message(frame, peerConnections.codec), part: frame.part, from: self)
            } catch {
                guard case .unread(let number) = error else { throw .malformed("a message without a number") }
                peerConnections.counters.count(.unreadMessages)
                send(.unread, (0..<4).map { UInt8(truncatingIfNeeded: number >> UInt32(8 * $0)) })
            }
            return true
        default: throw .malformed("a frame of kind \(frame.kind) does not belong here")
        }
    }

    // MARK: The first frame

    private func introduce(_ frame: LinkFrame) throws(LinkFault) -> Bool {
        switch frame.kind {
        case .hello:
            guard let hello = LinkHello(frame.body) else { throw .malformed("the Hello cannot be read") }
            guard isWelcome(hello), let port = peerConnections.admit(self, hello) else { return true }
            (peer, self.port) = (hello, port)
            identified()
            send(.hello, peerConnections.hello(for: hello.node).bytes)
            return true
        case .trunk:
            guard let hello = LinkHello(frame.body) else { throw .malformed("the Hello cannot be read") }
            isTrunk = isWelcome(hello)
            return !isTrunk
        default: throw .malformed("the first frame names the peer")
        }
    }

    /// Checks whether the peer may connect; otherwise sends a Close with the reason.
    private func isWelcome(_ hello: LinkHello) -> Bool {
        let settings = peerConnections.settings
        if hello.cluster != settings.cluster || hello.parts != settings.parts {
            refuse(
                .otherCluster,
                "this is cluster \(settings.cluster) with \(settings.parts) parts, not \(hello.cluster) "
                    + "with \(hello.parts)")
        } else if settings.versions.common(with: hello.versions) == nil {
            refuse(
                .wrongVersion,
                "release \(settings.release) speaks versions \(settings.versions.lowest) to "
                    + "\(settings.versions.version) of the link, release \(hello.release) \(hello.lowestVersion) to "
                    + "\(hello.version); upgrade one release at a time")
        } else if hello.wanted != peerConnections.node {
            refuse(.staleNode, "this is node \(peerConnections.node), not \(hello.wanted)")
        } else if hello.node == peerConnections.node || !PeerConnections.nodes.contains(hello.node) {
            refuse(.duplicate, "node \(hello.node) is this gateway's number, or none")
        } else {
            return true
        }
        return false
    }

    func refuse(_ code: LinkClose.Code, _ reason: String) {
        peerConnections.counters.count(.refusedPeers)
        peerConnections.tell(.refused(peer: peerAddress, code: code, reason: reason))
        close(code, reason)
    }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        let count = super.received(bytes, on: stream)
        // If the received bytes end with the trunk's Hello, `super` has not called `stopped`, because no bytes remain.
        if isTrunk { stopped(with: UnsafeRawBufferPointer(start: nil, count: 0)) }
        return count
    }

    override func stopped(with rest: UnsafeRawBufferPointer) {
        guard isTrunk else { return }
        isTrunk = false
        guard let connection = detach(rest) else { return }
        peerConnections.strangerLeft(self)
        peerConnections.trunkArrived(connection, from: peerAddress)
    }

    override var countingPort: PeerState? { port }

    // MARK: End

    override func released(_ block: LinkBlock) {
        port?.answersLeft(block)
        super.released(block)
    }

    override func ended(_ reason: CloseReason) {
        if peer == nil {
            peerConnections.strangerLeft(self)
            // TLS failed: the peer is a stranger, or a gateway with another secret.
            if case .tlsFailed(let text) = reason {
                peerConnections.counters.count(.refusedPeers)
                peerConnections.tell(
                    .refused(peer: peerAddress, code: nil, reason: "TLS with the cluster's secret: \(text)"))
            }
        } else {
            peerConnections.left(self)
        }
    }
}
