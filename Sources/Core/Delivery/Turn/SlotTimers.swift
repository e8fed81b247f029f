internal import Structures

/// The timers of a table's slots, one per slot; the shard handles fired timers in slices, one slice per turn.
struct SlotTimers<Element>: ~Copyable {
    private var wheel: TimerWheel
    /// The fired timers; entries before `head` are already handled.
    private var fired: [UInt32] = []
    private var head = 0
    /// The longest list of fired timers whose memory is kept for the next ones.
    private static var keptCount: Int { 4_096 }

    init(resolution: Int64, now: GatewayTime) { wheel = TimerWheel(resolution: resolution, now: now) }

    mutating func schedule(_ slot: Slot<Element>, at time: GatewayTime) { wheel.schedule(slot.number, at: time) }
    mutating func cancel(_ slot: Slot<Element>) { wheel.cancel(slot.number) }
    func deadline(of slot: Slot<Element>) -> GatewayTime? { wheel.deadline(of: slot.number) }
    var earliest: GatewayTime { wheel.earliest }

    mutating func advance(to now: GatewayTime) { wheel.advance(to: now, expired: &fired) }

    var hasFired: Bool { head < fired.count }

    /// Removes the next slot whose timer fired; the shard may have freed or reused the slot since.
    mutating func popFired() -> Slot<Element>? {
        guard head < fired.count else {
            if head > 0 {
                fired.removeAll(keepingCapacity: fired.count <= Self.keptCount)
                head = 0
            }
            return nil
        }
        defer { head += 1 }
        return Slot(number: fired[head])
    }
}
