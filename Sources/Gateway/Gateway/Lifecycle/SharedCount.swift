internal import Synchronization

/// A process-wide counter, so that a limit applies to all loops together.
///
/// It changes per connection or long poll, not per message. The caller passes the limit, which a reload may change.
final class SharedCount: Sendable {
    private let count = Atomic<Int>(0)

    /// Increments the counter, and returns whether it is within the limit; the caller must call `leave` in either case.
    func enter(limit: Int) -> Bool { count.wrappingAdd(1, ordering: .relaxed).newValue <= limit }

    func leave() { count.wrappingSubtract(1, ordering: .relaxed) }

    var value: Int { count.load(ordering: .relaxed) }
}
