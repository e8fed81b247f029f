internal import Structures

/// Timers of a table's slots, one a slot: the shard handles those that fired a slice a turn.
struct SlotTimers<Element>: ~Copyable {
    private var wheel: TimerWheel
    /// Fired timers that the shard has yet to handle, from `head` on.
    private var fired: [UInt32] = []
    private var head = 0
    /// Capacity kept for timers that fire together.
    private static var keptCount: Int { 4_096 }

    init(resolution: Int64, now: GatewayTime) { wheel = TimerWheel(resolution: resolution, now: now) }

    mutating func schedule(_ slot: Slot<Element>, at time: GatewayTime) { wheel.schedule(slot.number, at: time) }
    mutating func cancel(_ slot: Slot<Element>) { wheel.cancel(slot.number) }
    func deadline(of slot: Slot<Element>) -> GatewayTime? { wheel.deadline(of: slot.number) }
    var earliest: GatewayTime { wheel.earliest }

    mutating func advance(to now: GatewayTime) { wheel.advance(to: now, expired: &fired) }

    var hasFired: Bool { head < fired.count }

    /// The next slot whose timer fired; the shard may have freed or reused it since then.
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
