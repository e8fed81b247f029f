internal import Foundation
internal import LongwireClient

/// Counts messages for `--exit-after`, and remembers how the client ended.
///
/// Sound although unchecked: every field is touched only while `lock` is held, and nothing is called under it.
final class ConnectProgress: @unchecked Sendable {
    private let lock = NSLock()
    private let expected: Int?
    private let acks: Bool
    private var shown = 0
    private var wasWelcomed = false
    private var failure: LongwireClientError?
    private var lastTrouble = ""
    private var finish: @Sendable () -> Void = {}

    init(expected: Int?, acks: Bool) { (self.expected, self.acks) = (expected, acks) }

    func finishOn(_ finish: @escaping @Sendable () -> Void) { lock.withLock { self.finish = finish } }

    /// Whether the next message is shown, and what to say of it.
    func next() -> (isShown: Bool, verdict: MessageVerdict) {
        let (count, finish) = lock.withLock {
            shown += 1
            return (shown, self.finish)
        }
        // What was read together with the last one wanted stays in the queue for the next time.
        if let expected, count > expected { return (false, .deferred) }
        if count == expected { finish() }
        return (true, acks ? .processed : .deferred)
    }

    func note(_ event: ClientEvent) {
        lock.withLock {
            switch event {
            case .welcomed: wasWelcomed = true
            case .stopped(let error): failure = error
            case .disconnected(let reason): lastTrouble = reason
            default: break
            }
        }
    }

    func verdict() throws(CommandFailure) -> ExitCode {
        let (failure, wasWelcomed, shown, trouble) = lock.withLock {
            (self.failure, self.wasWelcomed, self.shown, lastTrouble)
        }
        if let failure {
            throw failure.code == .unreachable ? .unreachable(failure.message) : .refused(failure.message)
        }
        guard wasWelcomed else {
            throw .unreachable(trouble.isEmpty ? "never connected" : "never connected: \(trouble)")
        }
        if let expected, shown < expected { throw .refused("\(shown) of \(expected) messages came in time") }
        return .done
    }
}
