// Effects that wait for the disk.

internal import Structures
internal import Wire

extension Shard {
    /// Releases the effects whose batches are durable.
    mutating func releaseDue() {
        // A Welcome that goes out lets the shard evaluate a broadcast for the device. An effect of that is released in
        // turn, and so on: thousands deep after a reconnect storm.
        guard outbox.beginRelease() else { return }
        while let effect = outbox.popDue(beforeSync: isPlanted(.answerBeforeSync)) { release(effect) }
        outbox.endRelease()
    }

    /// Sends the effect once everything written so far is durable.
    mutating func whenDurable(_ kind: PendingEffect.Kind, ticket: Ticket? = nil) {
        outbox.hold(kind, ticket: ticket)
        releaseDue()
    }

    /// Answers when everything written so far is durable: a reply may depend on any of it.
    mutating func reply(_ origin: Origin, _ reply: DirectoryReply) {
        whenDurable(.directoryReply(origin, reply))
    }

    /// Answers once everything written so far is durable.
    mutating func answer(_ origin: Origin, _ answer: TaskAnswer) {
        whenDurable(.taskAnswer(origin, answer))
    }
}
