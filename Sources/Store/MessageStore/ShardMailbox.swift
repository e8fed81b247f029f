internal import Delivery
internal import Platform
internal import Synchronization

/// A queue from the store's threads to a shard; everything queued before the loop drains it shares one post.
final class ShardMailbox: @unchecked Sendable {
    // Sound because `content` is a lock and two properties are atomics. `shard` is set before the mailbox is shared. Later only
    // the shard's loop reads and clears it, where the posted closure runs.

    struct CooledRows {
        var rows: [SpilledRow]
        /// The number of the period that the request ids went to.
        var period: Int64
    }

    struct Content {
        var replies: [ReadOperation] = []
        var cooled: [CooledRows] = []
        /// The ticket up to which the spiller requests rows.
        var collect: Ticket?
    }

    /// The target of a post; it is a separate object, so that the posted closure does not retain the mailbox.
    private final class Addressee: @unchecked Sendable {
        // Sound because only the shard's loop uses `shard` once the mailbox is shared. A weak reference would move each retain
        // and release of the shard to the slow path, many per message. The reference never dangles: a shard must not be
        // deallocated before `close()`, which clears it.
        unowned(unsafe) var shard: EmbeddedShardStore?
    }

    private let addressee = Addressee()
    var shard: EmbeddedShardStore? {
        get { addressee.shard }
        set { addressee.shard = newValue }
    }
    private let post: @Sendable (@escaping @Sendable () -> Void) -> Void
    /// Created once, because a closure for each post would cost an allocation per commit.
    private let drainShard: @Sendable () -> Void
    private let content = Lock(Content())
    private let committedTicket = Atomic<UInt64>(0)
    private let isArmed = Atomic<Bool>(false)

    init(post: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
        self.post = post
        drainShard = { [addressee] in addressee.shard?.drain() }
    }

    func committed(upTo ticket: Ticket) {
        // Release ordering: a loop that reads the ticket may reuse the memory that the committer has finished with.
        committedTicket.store(ticket, ordering: .releasing)
        wake()
    }

    func put(_ change: (inout Content) -> Void) {
        content.withLock(change)
        wake()
    }

    /// Posts to the loop unless a post is already pending.
    func wake() {
        guard !isArmed.exchange(true, ordering: .acquiringAndReleasing) else { return }
        post(drainShard)
    }

    /// Discards the content; queued replies retain the mailbox, which would otherwise be a retain cycle.
    func discard() {
        var left = Content()
        content.withLock { swap(&$0, &left) }
    }

    /// Takes the content and the committed ticket; runs on the loop.
    func take(_ content: inout Content) -> Ticket {
        // Disarm before reading the content: anything added after the read then posts again.
        _ = isArmed.exchange(false, ordering: .acquiringAndReleasing)
        self.content.withLock { swap(&$0, &content) }
        return committedTicket.load(ordering: .acquiring)
    }
}
