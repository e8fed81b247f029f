internal import Structures

/// Timers of a table's slots, one a slot: the shard handles those that fired a slice a turn.
struct SlotTimers: ~Copyable {
    private var wheel: TimerWheel
    /// Fired timers that the shard has yet to handle, from `head` on.
    private var fired: [UInt32] = []
    private var head = 0
    /// Capacity kept for timers that fire together.
    private static let keptCount = 4_096

    init(resolution: Int64, now: GatewayTime) { wheel = TimerWheel(resolution: resolution, now: now) }

    mutating func schedule(_ slot: UInt32, at time: GatewayTime) { wheel.schedule(slot, at: time) }
    mutating func cancel(_ slot: UInt32) { wheel.cancel(slot) }
    func deadline(of slot: UInt32) -> GatewayTime? { wheel.deadline(of: slot) }
    var earliest: GatewayTime { wheel.earliest }

    mutating func advance(to now: GatewayTime) { wheel.advance(to: now, expired: &fired) }

    var hasFired: Bool { head < fired.count }

    /// The next slot whose timer fired; the shard may have freed or reused it since then.
    mutating func popFired() -> UInt32? {
        guard head < fired.count else {
            if head > 0 {
                fired.removeAll(keepingCapacity: fired.count <= Self.keptCount)
                head = 0
            }
            return nil
        }
        defer { head += 1 }
        return fired[head]
    }
}
