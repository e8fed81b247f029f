// Work that would hold the loop for too long is done in slices, a turn each; between two of them the loop does everything
// else. Timers that fire together are one kind of it, closures that go on later the other.

internal import Structures

extension Shard {
    typealias Slice = (inout Shard) -> Void

    /// Goes on with something in a turn of its own.
    mutating func later(_ slice: @escaping Slice) {
        slices.append(slice)
        hasSlicesAtHand = true
    }

    /// True when there is work for the next turn: call `continueWork` then.
    public var hasWorkAtHand: Bool { hasSlicesAtHand || hasBroadcastsAtHand }

    /// Does the next slice of what is under way.
    public mutating func continueWork(now: Int64) {
        begin(now)
        goOn()
        walkSessions()
        releaseDue()
    }

    /// Looks at fired timers and goes on with what was put off before this turn.
    mutating func goOn() {
        runSlices()
        fireTimers()
        hasSlicesAtHand =
            !slices.isEmpty || messages.timers.hasFired || jobs.hasFired || devices.timers.hasFired
    }

    /// What this puts off waits for the next turn.
    private mutating func runSlices() {
        guard !slices.isEmpty else { return }
        var due: [Slice] = []
        swap(&due, &slices)
        for slice in due { slice(&self) }
    }

    /// Looks at timers that have fired, so many of each wheel.
    private mutating func fireTimers() {
        for _ in 0..<limits.sliceCount {
            guard let slot = messages.timers.popFired() else { break }
            if messages.isOccupied(slot) { messageTimerFired(slot) }
        }
        for _ in 0..<limits.sliceCount {
            guard let slot = jobs.popFired() else { break }
            if jobs.isOccupied(slot) { jobTimerFired(slot) }
        }
        for _ in 0..<limits.sliceCount {
            guard let slot = devices.timers.popFired() else { break }
            if devices.isOccupied(slot) { deviceTimerFired(slot) }
        }
    }
}
