/// A queue of news for each other gateway; a lost news item has no caller that would notice the loss.
///
/// News waits while a link is down or full, without duplicates. News sent shortly before a link broke is queued again. Receivers
/// must therefore accept duplicates in any order.
struct LinkNews {
    /// The maximum of waiting and of recently sent items per gateway.
    static let itemLimit = 4_096
    /// The age at which a sent item has certainly arrived, because a link that delivers nothing breaks after two seconds of
    /// silence.
    static let doubtMilliseconds: UInt64 = 5_000

    private struct Peer {
        var waiting: [GatewayNews] = []
        var known: Set<GatewayNews> = []
        /// The recently sent items, ordered by time.
        var sent: [(news: GatewayNews, at: UInt64)] = []

        /// - Returns: The number of dropped items.
        mutating func add(_ news: GatewayNews) -> Int {
            guard known.insert(news).inserted else { return 0 }
            waiting.append(news)
            guard waiting.count > LinkNews.itemLimit else { return 0 }
            known.remove(waiting.removeFirst())
            return 1
        }
    }

    private var peers: [Int: Peer] = [:]
    /// The number of items dropped because a gateway's queue was full.
    private(set) var droppedCount = 0

    mutating func setPeers(_ nodes: Set<Int>) {
        peers = peers.filter { nodes.contains($0.key) }
        for node in nodes where peers[node] == nil { peers[node] = Peer() }
    }

    var waitingNodes: [Int] { peers.filter { !$0.value.waiting.isEmpty }.keys.sorted() }

    mutating func add(_ news: GatewayNews) {
        for node in peers.keys { droppedCount += peers[node]?.add(news) ?? 0 }
    }

    /// Removes and returns the news for a gateway; the caller puts unsent items back.
    mutating func take(_ node: Int) -> [GatewayNews] {
        guard var peer = peers[node] else { return [] }
        let waiting = peer.waiting
        (peer.waiting, peer.known) = ([], [])
        peers[node] = peer
        return waiting
    }

    mutating func putBack(_ all: [GatewayNews], _ node: Int) {
        guard peers[node] != nil else { return }
        let later = take(node)
        for news in all + later { droppedCount += peers[node]?.add(news) ?? 0 }
    }

    mutating func sent(_ all: [GatewayNews], _ node: Int, at time: UInt64) {
        guard peers[node] != nil else { return }
        peers[node]?.sent.removeAll { $0.at + Self.doubtMilliseconds < time }
        peers[node]?.sent += all.map { ($0, time) }
        // Above the limit the oldest items are dropped, because they are the most likely to have arrived.
        let surplus = (peers[node]?.sent.count ?? 0) - Self.itemLimit
        if surplus > 0 { peers[node]?.sent.removeFirst(surplus) }
    }

    /// Queues recently sent items again after a link broke.
    mutating func linkEnded(_ node: Int, at time: UInt64) {
        guard var peer = peers[node] else { return }
        let doubtful = peer.sent.filter { $0.at + Self.doubtMilliseconds >= time }
        peer.sent = []
        for item in doubtful { droppedCount += peer.add(item.news) }
        peers[node] = peer
    }
}
