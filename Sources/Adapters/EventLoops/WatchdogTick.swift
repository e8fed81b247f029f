internal import Synchronization

/// A health check of event loops for a watchdog: whether they still run submitted work.
package final class WatchdogTick: Sendable {
    private struct Beat: Sendable {
        let loop: EventLoop
        let answered: Answered
    }
    private final class Answered: Sendable {
        let count = Atomic<UInt64>(0)
    }

    private let beats: [Beat]
    private let asked = Atomic<UInt64>(0)

    package init(_ loops: [EventLoop]) { beats = loops.map { Beat(loop: $0, answered: Answered()) } }

    /// Returns whether every loop has run the last check, and if so submits the next check; must be called by one thread.
    package func isBeating() -> Bool {
        let last = asked.load(ordering: .relaxed)
        guard beats.allSatisfy({ $0.answered.count.load(ordering: .acquiring) == last }) else { return false }
        asked.store(last + 1, ordering: .relaxed)
        for beat in beats {
            beat.loop.submit { beat.answered.count.store(last + 1, ordering: .releasing) }
        }
        return true
    }
}
