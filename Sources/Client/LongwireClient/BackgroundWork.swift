/// Work that may block, on a thread of its own: the client's thread looks for the result and waits for nothing.
final class BackgroundWork<Value: Sendable>: Sendable {
    private let result = Guarded<Value?>(nil)

    /// Begins; `wake` is called behind the work, on its thread.
    ///
    /// `nil` when too many such threads have not ended, or the system gave none.
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

    /// `nil`: it is still at work.
    var value: Value? { result.withValue { $0 } }
}

/// How many threads may be at work: one that hangs cannot be ended.
final class ThreadAllowance: Sendable {
    /// Of the whole process.
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
