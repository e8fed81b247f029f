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

    var itemCount: Int { feeds.values.reduce(0) { $0 + Int($1.state.count) } }

    /// Of one feed; 0 while its head is not in memory.
    func itemCount(of name: FeedName) -> Int { feeds[name].map { Int($0.state.count) } ?? 0 }

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
        if let feed { feeds[name] = feed }
        let works = loading.removeValue(forKey: name) ?? []
        waitingCount -= works.count
        return works
    }

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
