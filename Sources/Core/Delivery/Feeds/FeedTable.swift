internal import Wire

/// An exponential backoff: `FeedBounds.lookAgain` at first, doubled after each failure up to a limit.
///
/// The limit is lower for unreadable data than for damaged data, because unreadable data may become readable at any time.
struct FeedBackoff {
    private var length: GatewayTime = 0
    private(set) var until: GatewayTime = 0

    mutating func failed(isDamaged: Bool = false, at now: GatewayTime) {
        let longest = isDamaged ? FeedBounds.longestRest : FeedBounds.longestRestOfUnread
        length = length == 0 ? FeedBounds.lookAgain : min(2 * length, longest)
        until = now + length
    }

    /// Ends the current delay; the next failure still doubles the delay.
    mutating func end(at now: GatewayTime) { until = min(until, now) }
}

/// The heads of this shard's feeds in memory, and the waiting consumers.
struct FeedTable {
    struct Waiter {
        var read: FeedRead
        var reply: ShardReply<FeedAnswer?>
        var until: GatewayTime
    }

    struct Feed {
        var state: FeedState
        /// A lower bound of the numbers of stored rows.
        var first: UInt64
        var isStored: Bool
        var waiters: [Waiter] = []
        var isTrimming = false
        /// The time of the next check for expired rows.
        var lookAgainAt: GatewayTime = 0
        /// The time of the oldest row with unacked items; 0: none, or unknown.
        var oldestAt: GatewayTime = 0

        /// The number of unacked items, without acked items that are still stored because they share a row with others.
        var unreadCount: Int { Int(min(state.count, state.last - min(state.last, state.acked))) }
    }

    typealias Work = (inout FeedTable, inout ShardCore, Bool) -> Void

    private(set) var feeds: [FeedName: Feed] = [:]
    private var loading: [FeedName: [Work]] = [:]
    private var waitingCount = 0

    subscript(_ name: FeedName) -> Feed? {
        get { feeds[name] }
        _modify { yield &feeds[name] }
    }

    /// A lower bound of the next timeout of a waiter or check of a feed.
    private(set) var nextDue = GatewayTime.max

    mutating func isDue(at time: GatewayTime) { nextDue = min(nextDue, time) }

    mutating func findNextDue() {
        nextDue = .max
        for feed in feeds.values {
            for waiter in feed.waiters { isDue(at: waiter.until) }
            if feed.state.count > 0 { isDue(at: feed.lookAgainAt) }
        }
    }

    // MARK: Feeds without a consumer

    /// The number of apps whose feeds were loaded after a start.
    var watchedApps = 0

    /// A head that could not be read.
    private struct UnseenHead {
        var rest = FeedBackoff()
        /// Whether the row was read and is invalid.
        var isDamaged = false
    }

    /// The heads that could not be read, at most two per app.
    private var unseen: [FeedName: UnseenHead] = [:]
    /// A lower bound of the next retry.
    private var nextLook = GatewayTime.max
    /// The earliest automatic retry of heads that the store could not read; a read for a caller does not wait for it.
    private var looksFrom: GatewayTime = 0

    private func lookTime(_ head: UnseenHead) -> GatewayTime {
        head.isDamaged ? head.rest.until : max(head.rest.until, looksFrom)
    }

    func isLookDue(at now: GatewayTime) -> Bool { nextLook <= now }

    /// Returns feeds whose head could not be read and whose retry is due, at most `FeedBounds.watchedApps` per call.
    ///
    /// If a retry fails, too, all retries pause. A failing store thus gets few reads, and after it recovers all heads are read
    /// soon.
    mutating func takeDueLooks(at now: GatewayTime) -> [FeedName] {
        guard isLookDue(at: now) else { return [] }
        var due: [(at: GatewayTime, name: FeedName)] = []
        nextLook = .max
        for (name, head) in unseen where loading[name] == nil {
            let at = lookTime(head)
            if at <= now { due.append((at, name)) } else { nextLook = min(nextLook, at) }
        }
        due.sort { ($0.at, $0.name.app.word, $0.name.kind.rawValue) < ($1.at, $1.name.app.word, $1.name.kind.rawValue) }
        if due.count > FeedBounds.watchedApps { nextLook = now }
        return due.prefix(FeedBounds.watchedApps).map(\.name)
    }

    /// Returns whether the feed is neither in memory nor waiting for a retry.
    func isToBeWatched(_ name: FeedName) -> Bool { feeds[name] == nil && unseen[name] == nil }

    /// Returns whether a caller may read the head now; false shortly after a failure.
    func mayLook(for name: FeedName, at now: GatewayTime) -> Bool { unseen[name].map { $0.rest.until <= now } ?? true }

    mutating func lookFailed(_ name: FeedName, isDamaged: Bool = false, at now: GatewayTime) {
        var head = unseen[name] ?? UnseenHead(isDamaged: isDamaged)
        if isDamaged, !head.isDamaged { storeReadsAgain(at: now) }
        if !isDamaged { looksFrom = now + FeedBounds.lookAgain }
        head.isDamaged = isDamaged
        head.rest.failed(isDamaged: isDamaged, at: now)
        unseen[name] = head
        nextLook = min(nextLook, lookTime(head))
    }

    /// Schedules another retry of a head that was not read, for example because too many commands wait.
    mutating func lookWasLeft(_ name: FeedName, at now: GatewayTime) {
        let head = unseen[name, default: UnseenHead()]
        unseen[name] = head
        // Callers may still read the head, so the backoff is unchanged.
        nextLook = min(nextLook, max(lookTime(head), now + FeedBounds.lookAgain))
    }

    /// Stops the automatic retries of a feed's head.
    mutating func forget(_ name: FeedName) { unseen[name] = nil }

    /// Makes all unreadable heads due because one of them could be read.
    private mutating func storeReadsAgain(at now: GatewayTime) {
        looksFrom = 0
        for name in unseen.keys where unseen[name]?.isDamaged == false { unseen[name]?.rest.end(at: now) }
        nextLook = now
    }

    // MARK: Figures

    var itemCount: Int { feeds.values.reduce(0) { $0 + $1.unreadCount } }

    func longestWait(at now: GatewayTime) -> GatewayTime {
        feeds.values.reduce(0) { max($0, Self.wait($1, now)) }
    }

    /// Returns the number of unacked items of one feed and the age of the oldest; zeros if its head is not in memory.
    func waiting(in name: FeedName, at now: GatewayTime) -> (count: Int, milliseconds: GatewayTime) {
        feeds[name].map { ($0.unreadCount, Self.wait($0, now)) } ?? (0, 0)
    }

    func byteCount(of name: FeedName) -> Int64 { feeds[name].map { Int64(clamping: $0.state.byteCount) } ?? 0 }

    private static func wait(_ feed: Feed, _ now: GatewayTime) -> GatewayTime {
        feed.oldestAt > 0 && feed.unreadCount > 0 ? max(0, now - feed.oldestAt) : 0
    }

    // MARK: Reading heads

    /// Queues work until the head is read.
    ///
    /// - Returns: whether the caller must read the head; `nil` if too many commands wait.
    mutating func wait(for name: FeedName, _ work: @escaping Work) -> Bool? {
        guard waitingCount < FeedBounds.waitingCommands else { return nil }
        waitingCount += 1
        let isFirst = loading[name] == nil
        loading[name, default: []].append(work)
        return isFirst
    }

    mutating func loaded(_ name: FeedName, _ feed: Feed?, at now: GatewayTime) -> [Work] {
        if let feed {
            feeds[name] = feed
            if let head = unseen.removeValue(forKey: name), !head.isDamaged { storeReadsAgain(at: now) }
        }
        let works = loading.removeValue(forKey: name) ?? []
        waitingCount -= works.count
        return works
    }

    // MARK: Waiters

    mutating func takeWaiters(of name: FeedName) -> [Waiter] {
        guard let waiters = feeds[name]?.waiters, !waiters.isEmpty else { return [] }
        feeds[name]?.waiters = []
        return waiters
    }

    mutating func takeDueWaiters(_ now: GatewayTime) -> [Waiter] {
        var due: [Waiter] = []
        for (name, feed) in feeds where feed.waiters.contains(where: { $0.until <= now }) {
            due += feed.waiters.filter { $0.until <= now }
            feeds[name]?.waiters.removeAll { $0.until <= now }
        }
        return due
    }

    mutating func dropWaiters() -> [ShardReply<FeedAnswer?>] {
        var replies: [ShardReply<FeedAnswer?>] = []
        for name in feeds.keys { replies += takeWaiters(of: name).map(\.reply) }
        return replies
    }
}
