internal import Delivery

/// The batches that must be durable before a device's update is answered.
struct UpdateModel {
    private var before: Ticket = 0
    /// The batches written since the update began.
    private var written: Set<Ticket> = []
    /// Batches of the device's stream or of an accepted broadcast message; the answer does not depend on them.
    private var ofStreams: Set<Ticket> = []

    mutating func begin(after ticket: Ticket) { (before, written, ofStreams) = (ticket, [], []) }

    mutating func wrote(_ ticket: Ticket) { written.insert(ticket) }

    mutating func streamWrote(_ ticket: Ticket) { ofStreams.insert(ticket) }

    var awaited: Ticket { max(before, written.subtracting(ofStreams).max() ?? 0) }
}
