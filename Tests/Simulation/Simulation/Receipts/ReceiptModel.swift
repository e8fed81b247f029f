internal import Delivery
internal import Wire

/// One HTTPS call of a device's service extension, or a forged one.
struct SimulatedReceipt {
    enum Character { case honest, forged, skewed }

    let identity: Identity
    var events: [(record: Record, kind: Feedback.Kind, action: UInt32)]
    let character: Character
    /// The device's messages that a vendor's sender had leased when the call was made.
    var leased: Set<Int> = []
}

/// The receipts of a run and the gateway's answers.
struct ReceiptModel {
    /// An event of a message; actions are identified by number.
    struct Event: Hashable {
        var record: Int
        var event: TraceEvent
        var action: UInt32 = 0
    }

    /// The generator of this part only.
    var chance: Chance
    private(set) var calls: [SimulatedReceipt] = []
    var recorded: Set<Event> = []
    var durable: Set<Event> = []

    init(seed: UInt64) { chance = Chance(seed: seed ^ 0x5EE2_4EC7) }

    mutating func add(_ call: SimulatedReceipt) -> Int {
        calls.append(call)
        return calls.count - 1
    }

    mutating func noteLeased(_ number: Int) {
        let call = calls[number]
        // A lease of a follow-up is no vendor's.
        let leased = call.events.map(\.record).filter {
            $0.identity === call.identity && $0.job?.state == .leased && $0.followUpDelay == nil
        }
        calls[number].leased = Set(leased.map(\.index))
    }

    mutating func becameDurable(_ event: Event) { durable.insert(event) }

    func isDurable(_ event: Event) -> Bool { durable.contains(event) }

    /// - Returns: false if the event was recorded before.
    mutating func record(_ event: Event) -> Bool { recorded.insert(event).inserted }

    func count(of event: TraceEvent) -> Int { durable.count { $0.event == event } }
}
