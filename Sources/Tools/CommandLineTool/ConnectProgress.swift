internal import Foundation
internal import LongwireClient
internal import TextForms

/// The message count for `--exit-after`, and the client's final state.
///
/// Sound although unchecked: every field is accessed only while `lock` is held, and nothing is called while it is held.
final class ConnectProgress: @unchecked Sendable {
    private let lock = NSLock()
    private let expected: Int?
    private let acks: Bool
    private var shown = 0
    private var wasWelcomed = false
    private var failure: LongwireClientError?
    private var lastTrouble = ""
    private var hasHinted = false
    private var finish: @Sendable () -> Void = {}

    init(expected: Int?, acks: Bool) { (self.expected, self.acks) = (expected, acks) }

    func finishOn(_ finish: @escaping @Sendable () -> Void) { lock.withLock { self.finish = finish } }

    /// Returns whether to print the next message, and its verdict.
    func next() -> (isShown: Bool, verdict: MessageVerdict) {
        let (count, finish) = lock.withLock {
            shown += 1
            return (shown, self.finish)
        }
        // Messages beyond the expected number stay queued for the next session.
        if let expected, count > expected { return (false, .deferred) }
        if count == expected { finish() }
        return (true, acks ? .processed : .deferred)
    }

    /// - Returns: a hint for the first common connection failure before any success.
    func note(_ event: ClientEvent, host: String, usesTLS: Bool) -> String? {
        lock.withLock {
            switch event {
            case .welcomed: wasWelcomed = true
            case .stopped(let error): failure = error
            case .disconnected(let reason):
                lastTrouble = reason
                guard !wasWelcomed, !hasHinted, let hint = Self.hint(reason, host: host, usesTLS: usesTLS) else {
                    return nil
                }
                hasHinted = true
                return hint
            default: break
            }
            return nil
        }
    }

    static func hint(_ reason: String, host: String, usesTLS: Bool) -> String? {
        if usesTLS, let hint = CertificateHint.text(reason, host: host) { return hint }
        if reason.contains("Connection refused") {
            return "Hint: nothing listens there. By default devices connect to port 7000."
        }
        if usesTLS, reason.contains("TLS with ") {
            return "Hint: this port may not speak TLS. Leave --tls out, or give the port of device.tls.listen."
        }
        if !usesTLS, reason.contains("Connection reset") || reason.contains("closed") {
            return "Hint: this port may want TLS: add --tls. By default devices connect to port 7000."
        }
        return nil
    }

    func verdict() throws(CommandFailure) -> ExitCode {
        let (failure, wasWelcomed, shown, trouble) = lock.withLock {
            (self.failure, self.wasWelcomed, self.shown, lastTrouble)
        }
        // The error message contains the gateway's reason.
        if let failure {
            let message = TerminalText.plain(failure.message)
            throw failure.code == .unreachable ? .unreachable(message) : .refused(message)
        }
        guard wasWelcomed else {
            let question = "Is this the port of devices? By default it is 7000."
            // An HTTP server answers a Hello with a status line, which breaks the protocol.
            let isForeign = trouble.contains("broke the protocol")
            throw .unreachable(
                trouble.isEmpty
                    ? "never connected: nothing was answered. \(question)"
                    : "never connected: \(TerminalText.plain(trouble))\(isForeign ? ". \(question)" : "")")
        }
        if let expected, shown < expected { throw .refused("\(shown) of \(expected) messages came in time") }
        return .done
    }
}
