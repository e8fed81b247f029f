/// Blocking work on its own thread; the client's thread polls `value` and never blocks on the work.
final class BackgroundWork<Value: Sendable>: Sendable {
    private let result = Guarded<Value?>(nil)

    /// Starts the work on a new thread, which calls `wake` at the end.
    ///
    /// Returns `nil` when `Limits.backgroundThreadCount` threads still run, or the system gives no thread.
    init?(
        within allowance: ThreadAllowance, _ body: @escaping @Sendable () -> Value, wake: @escaping @Sendable () -> Void
    ) {
        guard allowance.take() else { return nil }
        let hasThread = ClientThread.start { [result] in
            let value = body()
            result.withValue { $0 = value }
            allowance.giveBack()
            wake()
        }
        guard hasThread else {
            allowance.giveBack()
            return nil
        }
    }

    /// The result, or `nil` while the work runs.
    var value: Value? { result.withValue { $0 } }
}

/// A limit on the number of background threads, because a thread that hangs in the system's resolver cannot be ended.
final class ThreadAllowance: Sendable {
    static let shared = ThreadAllowance()

    private let count = Guarded(0)

    fileprivate func take() -> Bool {
        count.withValue { count in
            guard count < Limits.backgroundThreadCount else { return false }
            count += 1
            return true
        }
    }

    fileprivate func giveBack() { count.withValue { $0 -= 1 } }
}
