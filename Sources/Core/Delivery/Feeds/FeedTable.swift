internal import Wire

/// How long what failed is let rest: `FeedBounds.lookAgain` at first, then twice as long after each look that fails.
///
/// What is damaged stays so. What could not be read is well again with its disk or its server, and nothing tells when.
struct FeedBackoff {
    private var length: GatewayTime = 0
    private(set) var until: GatewayTime = 0

    mutating func failed(isDamaged: Bool = false, at now: GatewayTime) {
        let longest = isDamaged ? FeedBounds.longestRest : FeedBounds.longestRestOfUnread
        length = length == 0 ? FeedBounds.lookAgain : min(2 * length, longest)
        until = now + length
    }

    /// The next look may come at once; one that fails is still followed by a longer rest.
    mutating func end(at now: GatewayTime) { until = min(until, now) }
}

/// The feeds whose home is this shard, as far as they are in memory: a head each, and who waits.
struct FeedTable {
    /// A consumer that waits for a first item.
    struct Waiter {
        var read: FeedRead
        var origin: Origin
        var until: GatewayTime
    }

    /// One feed.
    struct Feed {
        var state: FeedState
        /// No row with a lower number is stored.
        var first: UInt64
        /// Its head has a row already.
        var isStored: Bool
        var waiters: [Waiter] = []
        var isTrimming = false
        /// The rows that are left from `first` on are to stay, as far as a look at this time could tell.
        var lookAgainAt: GatewayTime = 0
        /// When the first row came in whose items are not all acked; 0: there is none, or no look was taken yet.
        var oldestAt: GatewayTime = 0

        /// What waits for an ack: acked items that share a row with others do not.
        var unreadCount: Int { Int(min(state.count, state.last - min(state.last, state.acked))) }
    }

    /// Work that waits for a feed's head.
    typealias Work = (inout FeedTable, inout ShardCore, Bool) -> Void

    private(set) var feeds: [FeedName: Feed] = [:]
    private var loading: [FeedName: [Work]] = [:]
    private var waitingCount = 0

    subscript(_ name: FeedName) -> Feed? {
        get { feeds[name] }
        _modify { yield &feeds[name] }
    }

    /// Not after the first waiter's time is over, or a feed is to be looked over.
    private(set) var nextDue = GatewayTime.max

    mutating func isDue(at time: GatewayTime) { nextDue = min(nextDue, time) }

    mutating func findNextDue() {
        nextDue = .max
        for feed in feeds.values {
            for waiter in feed.waiters { isDue(at: waiter.until) }
            if feed.state.count > 0 { isDue(at: feed.lookAgainAt) }
        }
    }

    // MARK: Looking for feeds that nobody asks for

    /// The apps before this place have been looked for.
    ///
    /// What they have here is in memory, and counted, unless its head could not be read.
    var watchedApps = 0

    /// A head that could not be read.
    private struct UnseenHead {
        var rest = FeedBackoff()
        /// It was read, and is none.
        var isDamaged = false
    }

    /// Two of an app at most.
    private var unseen: [FeedName: UnseenHead] = [:]
    /// No unseen head is due before this.
    private var nextLook = GatewayTime.max
    /// Heads that the store could not read are not looked for before this, unless a caller asks.
    private var looksFrom: GatewayTime = 0

    private func lookTime(_ head: UnseenHead) -> GatewayTime {
        head.isDamaged ? head.rest.until : max(head.rest.until, looksFrom)
    }

    func isLookDue(at now: GatewayTime) -> Bool { nextLook <= now }

    /// The unseen feeds whose turn it is, a few a call.
    ///
    /// A head that the store cannot read again stops the looks for a while: a store that reads nothing is asked
    /// seldom, and one that reads again is asked for all of them soon.
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

    /// False when the feed is in memory, or waits for its next look.
    func isToBeWatched(_ name: FeedName) -> Bool { feeds[name] == nil && unseen[name] == nil }

    /// Whether the head may be read for a caller now: it did not fail a moment ago.
    func mayLook(for name: FeedName, at now: GatewayTime) -> Bool { unseen[name].map { $0.rest.until <= now } ?? true }

    /// A look has failed, at this time.
    mutating func lookFailed(_ name: FeedName, isDamaged: Bool = false, at now: GatewayTime) {
        var head = unseen[name] ?? UnseenHead(isDamaged: isDamaged)
        if isDamaged, !head.isDamaged { storeReadsAgain(at: now) }
        if !isDamaged { looksFrom = now + FeedBounds.lookAgain }
        head.isDamaged = isDamaged
        head.rest.failed(isDamaged: isDamaged, at: now)
        unseen[name] = head
        nextLook = min(nextLook, lookTime(head))
    }

    /// Nothing was read for a look that was due: too much waits.
    mutating func lookWasLeft(_ name: FeedName, at now: GatewayTime) {
        let head = unseen[name, default: UnseenHead()]
        unseen[name] = head
        // Callers may ask meanwhile: nothing is known of the head.
        nextLook = min(nextLook, max(lookTime(head), now + FeedBounds.lookAgain))
    }

    /// Nobody looks for the feed any more unless a caller asks.
    mutating func forget(_ name: FeedName) { unseen[name] = nil }

    /// A head could be read that could not: all others that could not are due.
    private mutating func storeReadsAgain(at now: GatewayTime) {
        looksFrom = 0
        for name in unseen.keys where unseen[name]?.isDamaged == false { unseen[name]?.rest.end(at: now) }
        nextLook = now
    }

    // MARK: Figures

    var itemCount: Int { feeds.values.reduce(0) { $0 + $1.unreadCount } }

    /// How long the oldest item of all feeds has waited.
    func longestWait(at now: GatewayTime) -> GatewayTime {
        feeds.values.reduce(0) { max($0, Self.wait($1, now)) }
    }

    /// How many items of one feed wait for an ack, and for how long the oldest has; zeros while its head is not in memory.
    func waiting(in name: FeedName, at now: GatewayTime) -> (count: Int, milliseconds: GatewayTime) {
        feeds[name].map { ($0.unreadCount, Self.wait($0, now)) } ?? (0, 0)
    }

    /// What is stored of a feed whose head was read.
    func byteCount(of name: FeedName) -> Int64 { feeds[name].map { Int64(clamping: $0.state.byteCount) } ?? 0 }

    private static func wait(_ feed: Feed, _ now: GatewayTime) -> GatewayTime {
        feed.oldestAt > 0 && feed.unreadCount > 0 ? max(0, now - feed.oldestAt) : 0
    }

    // MARK: Reading heads

    /// Keeps work until the head is read.
    ///
    /// - Returns: whether the caller is to read it, or `nil` when too much waits.
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

    /// Takes the waiters of a feed out, or of all feeds those whose time is over.
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

    mutating func dropWaiters() -> [Origin] {
        var origins: [Origin] = []
        for name in feeds.keys { origins += takeWaiters(of: name).map(\.origin) }
        return origins
    }
}
