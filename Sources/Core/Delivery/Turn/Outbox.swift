internal import Structures
internal import Wire

/// What leaves a shard: effects at once, or as soon as the batch that they depend on is durable, in the order of
/// tickets.
struct Outbox: ~Copyable {
    private var effects: [Effect] = []
    private var waiting = Ring<PendingEffect>(capacity: 256)
    /// A loop is releasing effects: what a release adds leaves in the same loop, not in a nested one.
    private var isReleasing = false
    /// The ticket of the last batch: an effect of now may depend on it.
    private(set) var lastTicket: Ticket
    private(set) var committedTicket: Ticket

    init(committedTicket: Ticket) {
        (lastTicket, self.committedTicket) = (committedTicket, committedTicket)
    }

    /// A batch was handed to the store.
    mutating func wrote(_ ticket: Ticket) { lastTicket = ticket }

    /// Every batch up to `ticket` is on disk.
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

    /// Sends the effect once the batch of this ticket, or the last batch, is durable.
    @inline(__always)
    mutating func hold(_ kind: PendingEffect.Kind, ticket: Ticket? = nil) {
        waiting.append(PendingEffect(ticket: ticket ?? lastTicket, kind: kind))
    }

    /// Changes what waits at a place in the order.
    mutating func replace(at place: Int, _ kind: PendingEffect.Kind) { waiting[place].kind = kind }

    func kind(at place: Int) -> PendingEffect.Kind { waiting[place].kind }

    var waitingCount: Int { waiting.count }
    /// The last ticket that an effect waits for; 0 when none waits.
    var awaitedTicket: Ticket { waiting.isEmpty ? 0 : waiting[waiting.count - 1].ticket }

    /// The ticket of what waits at a place in the order; the gateway looks ahead at it.
    @inline(__always)  // A call would copy the whole outbox.
    func ticket(at place: Int) -> Ticket { waiting[place].ticket }

    /// The device of a publish that waits there, or `.none`.
    @inline(__always)
    func publishedDevice(at place: Int) -> DeviceSlot {
        if case .publish(_, _, let slot, _) = waiting[place].kind { slot } else { .none }
    }

    /// True when the caller is to release what is due, up to `endRelease`; false within such a loop.
    mutating func beginRelease() -> Bool {
        guard !isReleasing else { return false }
        isReleasing = true
        return true
    }

    mutating func endRelease() { isReleasing = false }

    /// The next effect that waits, whatever it waits for; of a shard that is given up.
    mutating func popWaiting() -> PendingEffect? { waiting.popFirst() }

    /// The next effect whose ticket is durable, or, with `beforeSync` (a planted fault), the next one.
    mutating func popDue(beforeSync: Bool) -> PendingEffect? {
        guard let first = waiting.first, first.ticket <= committedTicket || beforeSync else { return nil }
        return waiting.popFirst()
    }
}
