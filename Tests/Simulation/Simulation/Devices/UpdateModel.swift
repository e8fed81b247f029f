internal import Delivery

/// The batches that the result of a device's update must wait for.
struct UpdateModel {
    private var before: Ticket = 0
    /// Since the update began.
    private var written: Set<Ticket> = []
    /// Those that the device's stream wrote or that accept a broadcast's message: of these the result says nothing.
    private var ofStreams: Set<Ticket> = []

    mutating func begin(after ticket: Ticket) { (before, written, ofStreams) = (ticket, [], []) }

    mutating func wrote(_ ticket: Ticket) { written.insert(ticket) }

    mutating func streamWrote(_ ticket: Ticket) { ofStreams.insert(ticket) }

    var awaited: Ticket { max(before, written.subtracting(ofStreams).max() ?? 0) }
}
