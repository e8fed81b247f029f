// Long work is done in slices, one per turn, so that the loop can do other work between two slices. Slices are fired timers or
// closures that continue later.

internal import Structures

extension Shard {
    typealias Slice = (inout Shard) -> Void

    mutating func later(_ slice: @escaping Slice) {
        core.slices.append(slice)
        hasSlicesAtHand = true
    }

    /// Completes a call into a component that has only the core, such as `FeedTable`.
    ///
    /// Schedules the slices that the component added, and releases durable effects.
    mutating func finishPart() {
        if !core.slices.isEmpty { hasSlicesAtHand = true }
        releaseDue()
    }

    /// Whether work is left for the next turn; if so, the gateway calls `continueWork`.
    package var hasWorkAtHand: Bool { mutating get { hasSlicesAtHand || hasBroadcastsAtHand } }

    package mutating func continueWork(now: Int64) {
        begin(now)
        goOn()
        scanSessions()
        releaseDue()
    }

    mutating func goOn() {
        runSlices()
        fireTimers()
        hasSlicesAtHand =
            !core.slices.isEmpty || messages.timers.hasFired || jobs.hasFired || devices.timers.hasFired
    }

    /// Runs the queued slices; slices that they add run in the next turn.
    private mutating func runSlices() {
        guard !core.slices.isEmpty else { return }
        var due: [Slice] = []
        swap(&due, &core.slices)
        for slice in due { slice(&self) }
    }

    /// Handles fired timers, at most `sliceCount` per wheel.
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
