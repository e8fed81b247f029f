internal import Synchronization

/// The gates where the workers of a run wait for each other, and the counters of the progress line.
///
/// Sound although unchecked: all changes are atomic, and the pointer to the atomics never changes. The gates are crossed once
/// per phase, so they use sequentially consistent ordering. The counters are only displayed and use relaxed ordering.
final class Coordinator: @unchecked Sendable {
    enum Phase: Int { case ready = 0, second }

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

    /// Records that a worker has ended and will not reach another gate.
    func finish() { _ = slots[Counter.finished.rawValue].add(1, ordering: .sequentiallyConsistent) }

    func arrive(_ phase: Phase) { _ = slots[phase.rawValue].add(1, ordering: .sequentiallyConsistent) }

    /// Whether every worker has reached the gate, or one has ended.
    func isComplete(_ phase: Phase) -> Bool {
        slots[phase.rawValue].load(ordering: .sequentiallyConsistent) >= workers || hasFinished
    }

    var hasFinished: Bool { slots[Counter.finished.rawValue].load(ordering: .sequentiallyConsistent) > 0 }

    /// Opens a gate; the phase begins at `time` of the monotonic clock.
    func open(_ phase: Phase, at time: Int64) {
        // Only a closed gate is opened, so that an aborted run stays aborted.
        _ = slots[2 + phase.rawValue].compareExchange(
            expected: Self.closed, desired: Int(time), ordering: .sequentiallyConsistent)
    }

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
