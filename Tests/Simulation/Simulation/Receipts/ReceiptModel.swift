internal import Delivery
internal import Wire

/// One call of a device's service extension, or of a stranger.
struct SimulatedReceipt {
    enum Character { case honest, forged, skewed }

    let identity: Identity
    var events: [(record: Record, kind: Feedback.Kind, action: UInt32)]
    let character: Character
}

/// The receipts of a run, and what the gateway has said of them.
struct ReceiptModel {
    /// An event of a message; an action is one by its number.
    struct Event: Hashable {
        var record: Int
        var event: TraceEvent
        var action: UInt32 = 0
    }

    /// Draws of its own.
    var chance: Chance
    private(set) var calls: [SimulatedReceipt] = []
    /// What the gateway has called recorded.
    var recorded: Set<Event> = []
    /// What has a durable row beside its message's trace.
    var durable: Set<Event> = []

    init(seed: UInt64) { chance = Chance(seed: seed ^ 0x5EE2_4EC7) }

    /// - Returns: the call's number.
    mutating func add(_ call: SimulatedReceipt) -> Int {
        calls.append(call)
        return calls.count - 1
    }

    mutating func becameDurable(_ event: Event) { durable.insert(event) }

    func isDurable(_ event: Event) -> Bool { durable.contains(event) }

    /// - Returns: false when it had been recorded before.
    mutating func record(_ event: Event) -> Bool { recorded.insert(event).inserted }

    /// How many messages have a durable event.
    func count(of event: TraceEvent) -> Int { durable.count { $0.event == event } }
}
