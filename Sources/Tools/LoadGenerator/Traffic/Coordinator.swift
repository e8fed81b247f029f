internal import Synchronization

/// Where the workers of a run meet, and what the progress line reads.
///
/// Sendable because all that changes in it is atomics; the pointer to them never changes. The gates carry one number each
/// and publish nothing else, but they are crossed once a phase, so they simply use the strongest ordering; the counts for
/// the progress line are only looked at, relaxed.
final class Coordinator: @unchecked Sendable {
    enum Phase: Int { case ready = 0, second }

    /// What workers count for everybody to see.
    enum Counter: Int, CaseIterable { case connected = 4, accepted, delivered, settled, finished }

    private static let closed = 0
    private static let aborted = -1
    private static let slotCount = 16

    let workers: Int
    private let slots: UnsafeMutablePointer<Atomic<Int>>

    init(workers: Int) {
        self.workers = workers
        slots = .allocate(capacity: Self.slotCount)
        for index in 0..<Self.slotCount { (slots + index).initialize(to: Atomic(0)) }
    }

    deinit { slots.deallocate() }

    func add(_ count: Int, to counter: Counter) {
        _ = slots[counter.rawValue].add(count, ordering: .relaxed)
    }

    func count(_ counter: Counter) -> Int { slots[counter.rawValue].load(ordering: .relaxed) }

    /// A worker will never come to a gate again.
    func finish() { _ = slots[Counter.finished.rawValue].add(1, ordering: .sequentiallyConsistent) }

    func arrive(_ phase: Phase) { _ = slots[phase.rawValue].add(1, ordering: .sequentiallyConsistent) }

    /// Every worker stands at the gate, or one has ended and never will.
    func isComplete(_ phase: Phase) -> Bool {
        slots[phase.rawValue].load(ordering: .sequentiallyConsistent) >= workers || hasFinished
    }

    var hasFinished: Bool { slots[Counter.finished.rawValue].load(ordering: .sequentiallyConsistent) > 0 }

    /// Lets all workers into a phase that begins at `time` of the monotonic clock.
    func open(_ phase: Phase, at time: Int64) {
        // Only from closed: a run that was aborted stays so.
        _ = slots[2 + phase.rawValue].compareExchange(
            expected: Self.closed, desired: Int(time), ordering: .sequentiallyConsistent)
    }

    /// Sends all workers home from the gates that are still closed.
    func abort() {
        open(.ready, at: Int64(Self.aborted))
        open(.second, at: Int64(Self.aborted))
    }

    enum Gate: Equatable { case closed, open(Int64), aborted }

    func gate(_ phase: Phase) -> Gate {
        let value = slots[2 + phase.rawValue].load(ordering: .sequentiallyConsistent)
        return value == Self.closed ? .closed : value == Self.aborted ? .aborted : .open(Int64(value))
    }
}
