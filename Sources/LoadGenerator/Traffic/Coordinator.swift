internal import Synchronization

/// Where the threads of a run meet, and what the progress line reads.
///
/// Sendable because everything in it is an atomic. The gates carry one number each and publish nothing else, but they are
/// crossed once a phase, so they simply use the strongest ordering; the progress counts are only looked at, relaxed.
final class Coordinator: Sendable {
    enum Phase { case ready, second }

    private static let closed: Int64 = 0
    private static let aborted: Int64 = -1

    let threads: Int
    private let readyArrivals = Atomic<Int>(0)
    private let secondArrivals = Atomic<Int>(0)
    private let readyGate = Atomic<Int64>(0)
    private let secondGate = Atomic<Int64>(0)

    let connected = Atomic<Int>(0)
    let accepted = Atomic<Int>(0)
    let delivered = Atomic<Int>(0)
    let finishedThreads = Atomic<Int>(0)

    init(threads: Int) { self.threads = threads }

    func arrive(_ phase: Phase) {
        switch phase {
        case .ready: _ = readyArrivals.add(1, ordering: .sequentiallyConsistent)
        case .second: _ = secondArrivals.add(1, ordering: .sequentiallyConsistent)
        }
    }

    /// Every thread stands at the gate, or has ended and never will.
    func isComplete(_ phase: Phase) -> Bool {
        let arrived =
            switch phase {
            case .ready: readyArrivals.load(ordering: .sequentiallyConsistent)
            case .second: secondArrivals.load(ordering: .sequentiallyConsistent)
            }
        return arrived >= threads || finishedThreads.load(ordering: .sequentiallyConsistent) > 0
    }

    /// Lets all threads into a phase that begins at `time` of the monotonic clock.
    func open(_ phase: Phase, at time: Int64) {
        // Only from closed: a run that was aborted stays so.
        switch phase {
        case .ready:
            _ = readyGate.compareExchange(expected: Self.closed, desired: time, ordering: .sequentiallyConsistent)
        case .second:
            _ = secondGate.compareExchange(expected: Self.closed, desired: time, ordering: .sequentiallyConsistent)
        }
    }

    /// Sends all threads home from the gates that are still closed.
    func abort() {
        open(.ready, at: Self.aborted)
        open(.second, at: Self.aborted)
    }

    enum Gate: Equatable { case closed, open(Int64), aborted }

    func gate(_ phase: Phase) -> Gate {
        let value =
            switch phase {
            case .ready: readyGate.load(ordering: .sequentiallyConsistent)
            case .second: secondGate.load(ordering: .sequentiallyConsistent)
            }
        return value == Self.closed ? .closed : value == Self.aborted ? .aborted : .open(value)
    }
}
