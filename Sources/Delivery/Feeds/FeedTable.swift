internal import Wire

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
    typealias Work = (inout Shard, Bool) -> Void

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

    /// Feeds whose head a look could not read, each once, in the order of their next look: two of an app at most.
    private var unseen: [FeedName] = []
    /// No unseen feed is looked for before this.
    private var nextLook: GatewayTime = 0
    /// Feeds whose head was read and is damaged, two of an app at most: another look would find the same.
    private var damaged: Set<FeedName> = []

    func isLookDue(at now: GatewayTime) -> Bool { !unseen.isEmpty && nextLook <= now }

    /// Takes out the unseen feeds whose turn it is, a few a call.
    ///
    /// One that fails again goes to the end and stops the looks for a while: a store that reads nothing is asked
    /// seldom, and one that reads again is asked for all of them soon.
    mutating func takeDueLooks(at now: GatewayTime) -> [FeedName] {
        guard isLookDue(at: now) else { return [] }
        let due = Array(unseen.prefix(FeedBounds.watchedApps))
        unseen.removeFirst(due.count)
        return due
    }

    /// False when the feed is in memory, waits for its next look or is damaged.
    func isToBeWatched(_ name: FeedName) -> Bool {
        feeds[name] == nil && !damaged.contains(name) && !unseen.contains(name)
    }

    /// A look has failed, at this time.
    mutating func lookFailed(_ name: FeedName, at now: GatewayTime) {
        guard isToBeWatched(name) else { return }
        unseen.append(name)
        nextLook = now + FeedBounds.lookAgain
    }

    /// The feed's head was read, and is none.
    mutating func headIsDamaged(_ name: FeedName) { damaged.insert(name) }

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

    mutating func loaded(_ name: FeedName, _ feed: Feed?) -> [Work] {
        if let feed {
            feeds[name] = feed
            damaged.remove(name)
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
