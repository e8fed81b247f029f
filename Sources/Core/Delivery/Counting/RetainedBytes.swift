/// What an app has on disk besides its queues, by counts: kinds of rows, each with the bytes that a usual one takes.
///
/// It is an estimate from counts that the shards have anyway: no row of an app says how large the others are, and to read the store for
/// it would cost more than the quota is worth. What it leaves out has bounds of its own (docs/use/Operations.md, "Quotas of an app").
struct RetainedBytes {
    /// A device with a token, an alias and some tags: its row, and those that find it.
    static let ofDevice: Int64 = 512
    /// A message that was accepted today or yesterday: its request id, what finds it by its task, and its trace.
    static let ofRecentMessage: Int64 = 256

    /// Devices that registered and were not removed; of a part without bucket 0 perhaps less than none.
    private(set) var devices: Int64 = 0
    /// The last day on which something was accepted, what was on it, and on the day before.
    private var day: UInt32 = 0
    private var accepted: Int64 = 0
    private var acceptedBefore: Int64 = 0

    /// Accepted on this day and on the one before.
    func recentMessages(on today: UInt32) -> Int64 {
        if today <= day { return accepted + acceptedBefore }
        return today == day + 1 ? accepted : 0
    }

    func sum(on today: UInt32) -> Int64 {
        devices * Self.ofDevice + recentMessages(on: today) * Self.ofRecentMessage
    }

    mutating func countAccepted(on today: UInt32) {
        if today > day {
            (acceptedBefore, accepted) = (today == day + 1 ? accepted : 0, 0)
            day = today
        }
        accepted += 1
    }

    /// What rows of counts say of this day and the one before.
    mutating func setAccepted(on today: UInt32, _ accepted: Int64, before: Int64) {
        (day, self.accepted, acceptedBefore) = (today, accepted, before)
    }

    mutating func addDevices(_ count: Int64) { devices += count }
}
