internal import Structures
internal import Wire

extension Shard {
    mutating func releaseDue() {
        // A released Welcome can make the shard evaluate a broadcast, whose effect would be released in a nested call. After a
        // reconnect storm the nesting would be thousands of calls deep.
        guard outbox.beginRelease() else { return }
        while let effect = outbox.popDue(beforeSync: isPlanted(.answerBeforeSync)) { release(effect) }
        outbox.endRelease()
    }

    /// Queues the effect until everything written so far, or `ticket`, is durable.
    mutating func whenDurable(_ kind: PendingEffect.Kind, ticket: Ticket? = nil) {
        outbox.hold(kind, ticket: ticket)
        releaseDue()
    }

    /// Sends a directory reply after everything written so far is durable, because the reply may depend on it.
    mutating func reply(_ origin: Origin, _ reply: DirectoryReply) {
        whenDurable(.directoryReply(origin, reply))
    }
}
