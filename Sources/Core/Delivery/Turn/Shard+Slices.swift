// The shard does long work in slices, one a turn; between two slices the loop does everything else.
// One kind are the timers that fire together, the other are closures that continue later.

internal import Structures

extension Shard {
    typealias Slice = (inout Shard) -> Void

    /// Continues with a closure in a later turn.
    mutating func later(_ slice: @escaping Slice) {
        core.slices.append(slice)
        hasSlicesAtHand = true
    }

    /// Finishes a call into a component that has the core alone, such as `FeedTable`.
    ///
    /// Notes work that the component left for later turns, and releases effects that are due.
    mutating func finishPart() {
        if !core.slices.isEmpty { hasSlicesAtHand = true }
        releaseDue()
    }

    /// True when there is work for the next turn: the gateway calls `continueWork` then.
    package var hasWorkAtHand: Bool { mutating get { hasSlicesAtHand || hasBroadcastsAtHand } }

    /// Does the next slice of the work that is under way.
    package mutating func continueWork(now: Int64) {
        begin(now)
        goOn()
        scanSessions()
        releaseDue()
    }

    /// Handles fired timers and runs the slices of earlier turns.
    mutating func goOn() {
        runSlices()
        fireTimers()
        hasSlicesAtHand =
            !core.slices.isEmpty || messages.timers.hasFired || jobs.hasFired || devices.timers.hasFired
    }

    /// Slices that these add wait for the next turn.
    private mutating func runSlices() {
        guard !core.slices.isEmpty else { return }
        var due: [Slice] = []
        swap(&due, &core.slices)
        for slice in due { slice(&self) }
    }

    /// Handles timers that have fired, at most `sliceCount` of each wheel.
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
