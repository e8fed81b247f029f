internal import Structures
internal import Wire

/// The effects of a shard; an effect leaves immediately, or after the batch that it depends on is durable, in ticket order.
struct Outbox: ~Copyable {
    private var effects: [Effect] = []
    private var waiting = Ring<PendingEffect>(capacity: 256)
    /// Whether a release loop is running; effects added by a release leave in that loop, not in a nested one.
    private var isReleasing = false
    /// The ticket of the last batch; a new effect may depend on it.
    private(set) var lastTicket: Ticket
    private(set) var committedTicket: Ticket

    init(committedTicket: Ticket) {
        (lastTicket, self.committedTicket) = (committedTicket, committedTicket)
    }

    mutating func wrote(_ ticket: Ticket) { lastTicket = ticket }

    /// Records that all batches up to `ticket` are on disk.
    mutating func committed(upTo ticket: Ticket) { committedTicket = max(committedTicket, ticket) }

    // MARK: At once

    @inline(__always)
    mutating func send(_ effect: Effect) { effects.append(effect) }

    var hasEffects: Bool { !effects.isEmpty }

    mutating func take(into taken: inout [Effect]) {
        taken.removeAll(keepingCapacity: true)
        swap(&effects, &taken)
    }

    // MARK: When durable

    /// Queues the effect until the batch of `ticket` is durable; the default is the last batch.
    @inline(__always)
    mutating func hold(_ kind: PendingEffect.Kind, ticket: Ticket? = nil) {
        waiting.append(PendingEffect(ticket: ticket ?? lastTicket, kind: kind))
    }

    mutating func replace(at place: Int, _ kind: PendingEffect.Kind) { waiting[place].kind = kind }

    func kind(at place: Int) -> PendingEffect.Kind { waiting[place].kind }

    var waitingCount: Int { waiting.count }
    /// The last ticket that an effect waits for; 0 if no effect waits.
    var awaitedTicket: Ticket { waiting.isEmpty ? 0 : waiting[waiting.count - 1].ticket }

    /// Returns the ticket of the queued effect at an index, for prefetching.
    @inline(__always)  // A call would copy the whole outbox.
    func ticket(at place: Int) -> Ticket { waiting[place].ticket }

    /// Returns the device of the publish queued at an index, or `.none`.
    @inline(__always)
    func publishedDevice(at place: Int) -> DeviceSlot {
        if case .publish(_, _, let slot, _) = waiting[place].kind { slot } else { .none }
    }

    /// Begins a release loop up to `endRelease`; returns false if one is already running.
    mutating func beginRelease() -> Bool {
        guard !isReleasing else { return false }
        isReleasing = true
        return true
    }

    mutating func endRelease() { isReleasing = false }

    /// Removes the next queued effect whether it is durable or not, for an abandoned shard.
    mutating func popWaiting() -> PendingEffect? { waiting.popFirst() }

    /// Removes the next effect if its ticket is durable, or in any case with `beforeSync` (a planted fault).
    mutating func popDue(beforeSync: Bool) -> PendingEffect? {
        guard let first = waiting.first, first.ticket <= committedTicket || beforeSync else { return nil }
        return waiting.popFirst()
    }
}
