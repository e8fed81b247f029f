internal import Cryptography
internal import EventLoops

/// Counts the results of TLS handshakes, and logs clients whose certificates were refused.
extension EventLoopHost {
    /// Installs the limits on this event loop's TLS handshakes; must be called once.
    func openHandshakeGate() {
        loop.handshakeGate = HandshakeGate(on: loop, rules: handshakeRules)
        loop.peerBudget = context.peers.budget
        loop.onHandshake { [unowned self] in note($0) }
    }

    func reloadHandshakeGate() { loop.handshakeGate?.rules = handshakeRules }

    private var handshakeRules: HandshakeGate.Rules {
        HandshakeGate.Rules(
            atOnce: limits.tlsHandshakesAtOnce, perSecond: limits.tlsHandshakesPerSecond,
            waitMilliseconds: UInt64(limits.tlsHandshakeWaitMilliseconds))
    }

    private func note(_ event: HandshakeEvent) {
        switch event {
        case .done: metrics.count(.handshakeDone)
        case .waits: metrics.count(.handshakeWaited)
        case .refused: metrics.count(.handshakeRefused)
        case .displaced: metrics.count(.handshakeDisplaced)
        case .timedOut: metrics.count(.handshakeTimedOut)
        case .failed(.certificate, let text, let peer, let listener):
            metrics.count(.handshakeForCertificate)
            // The log writes at most 20 such lines in ten seconds and counts the others.
            log.write(
                .warning, .clientCertificateRefused,
                [.listener: .text(listener), .address: .text(peer?.description ?? ""), .reason: .text(text)])
        case .failed(let kind, let text, let peer, let listener):
            switch kind {
            case .refusedByPeer: metrics.count(.handshakeForPeer)
            case .ended: metrics.count(.handshakeForEnd)
            case .certificate, .form: metrics.count(.handshakeForForm)
            }
            log.write(
                .debug, .handshakeFailed,
                [.listener: .text(listener), .address: .text(peer?.description ?? ""), .reason: .text(text)])
        }
    }
}
