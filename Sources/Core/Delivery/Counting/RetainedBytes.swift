/// An estimate of an app's bytes on disk besides its queues: counts of row kinds, each with the size of a typical row.
///
/// It uses counts that the shards already have. No row holds the actual sizes, and reading the store for them would cost more
/// than the quota is worth. Rows that it ignores have their own bounds (docs/use/Operations.md, "Quotas of an app").
struct RetainedBytes {
    /// The bytes of a device with a token, an alias and some tags: its row and its index rows.
    static let ofDevice: Int64 = 512
    /// The bytes of a message accepted today or yesterday: its request id, task rows and trace.
    static let ofRecentMessage: Int64 = 256

    /// The number of registered devices; in a shard without bucket 0 it may be negative, because that shard does not count folded
    /// days.
    private(set) var devices: Int64 = 0
    /// The last day with acceptances, and the numbers of acceptances on that day and the day before.
    private var day: UInt32 = 0
    private var accepted: Int64 = 0
    private var acceptedBefore: Int64 = 0
    /// The bytes of the custom callbacks accepted on the last day and on the day before, since this process started.
    private var callbacks: Int64 = 0
    private var callbacksBefore: Int64 = 0

    func recentMessages(on today: UInt32) -> Int64 {
        if today <= day { return accepted + acceptedBefore }
        return today == day + 1 ? accepted : 0
    }

    func sum(on today: UInt32) -> Int64 {
        let callbacks = today <= day ? callbacks + callbacksBefore : today == day + 1 ? callbacks : 0
        return devices * Self.ofDevice + recentMessages(on: today) * Self.ofRecentMessage + callbacks
    }

    /// Counts a message accepted today or, for a broadcast's message, yesterday.
    mutating func countAccepted(on counted: UInt32) {
        if counted > day {
            (acceptedBefore, accepted) = (counted == day + 1 ? accepted : 0, 0)
            (callbacksBefore, callbacks) = (counted == day + 1 ? callbacks : 0, 0)
            day = counted
        }
        if counted < day { acceptedBefore += 1 } else { accepted += 1 }
    }

    mutating func setAccepted(on today: UInt32, _ accepted: Int64, before: Int64) {
        (day, self.accepted, acceptedBefore) = (today, accepted, before)
    }

    /// Adds the callback's bytes of a newly accepted message.
    mutating func addCallback(byteCount: Int) { callbacks += Int64(byteCount) }

    mutating func addDevices(_ count: Int64) { devices += count }
}
