internal import Synchronization

/// How many of something the whole process holds, so that a limit counts for all loops together.
///
/// Touched when a connection or a long poll comes and goes, never for a message. The limit is the caller's, since a
/// reload may change it.
final class SharedCount: Sendable {
    private let count = Atomic<Int>(0)

    /// Counts one in, even over the limit, which only the answer tells: who is refused leaves like everybody else.
    func enter(limit: Int) -> Bool { count.wrappingAdd(1, ordering: .relaxed).newValue <= limit }

    func leave() { count.wrappingSubtract(1, ordering: .relaxed) }

    var value: Int { count.load(ordering: .relaxed) }
}
