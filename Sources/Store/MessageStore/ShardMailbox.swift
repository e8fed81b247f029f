internal import Delivery
internal import Platform
internal import Synchronization

/// What other threads have for a shard; one post to its loop for however much has gathered.
final class ShardMailbox: @unchecked Sendable {
    // Sound because `content` is a lock, the two atomics are atomics, and `shard` is set before the mailbox is shared and
    // afterwards read and cleared on the shard's loop only (the posted closure runs there).

    struct CooledRows {
        var rows: [SpilledRow]
        /// The number of the period that request ids among them went to.
        var period: Int64
    }

    struct Content {
        var replies: [ReadOperation] = []
        var cooled: [CooledRows] = []
        /// The spiller wants the rows up to this ticket.
        var collect: Ticket?
    }

    /// Whom a post is for; apart from the mailbox, so that the one closure that is posted does not hold it.
    private final class Addressee: @unchecked Sendable {
        // Sound as `shard` below is. Not weak: that would make each retain and release of the shard, many a message, take
        // the slow path. It never dangles: a shard may not die before `close()`, which clears it.
        unowned(unsafe) var shard: EmbeddedShardStore?
    }

    private let addressee = Addressee()
    var shard: EmbeddedShardStore? {
        get { addressee.shard }
        set { addressee.shard = newValue }
    }
    private let post: @Sendable (@escaping @Sendable () -> Void) -> Void
    /// Made once: a closure for each post would be an allocation for each commit.
    private let drainShard: @Sendable () -> Void
    private let content = Lock(Content())
    private let committedTicket = Atomic<UInt64>(0)
    private let isArmed = Atomic<Bool>(false)

    init(post: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
        self.post = post
        drainShard = { [addressee] in addressee.shard?.drain() }
    }

    func committed(upTo ticket: Ticket) {
        // Releasing: the loop that sees the ticket may reuse the memory that the committer has finished with.
        committedTicket.store(ticket, ordering: .releasing)
        wake()
    }

    func put(_ change: (inout Content) -> Void) {
        content.withLock(change)
        wake()
    }

    /// Posts unless a post is under way already.
    func wake() {
        guard !isArmed.exchange(true, ordering: .acquiringAndReleasing) else { return }
        post(drainShard)
    }

    /// Forgets what will not be taken any more: replies in it hold the mailbox, and so themselves.
    func discard() {
        var left = Content()
        content.withLock { swap(&$0, &left) }
    }

    /// On the loop: everything so far; what comes later posts anew.
    func take(_ content: inout Content) -> Ticket {
        // Disarmed before the content is read: whatever comes after that read posts again.
        _ = isArmed.exchange(false, ordering: .acquiringAndReleasing)
        self.content.withLock { swap(&$0, &content) }
        return committedTicket.load(ordering: .acquiring)
    }
}
