/// What each other gateway is to be told and was not yet: nobody asks for news, so nothing else would notice that it is lost.
///
/// A link that is down or full takes no news; it waits here, each item once, until the link takes it. What went into a link
/// shortly before it broke may have been lost with it, so it waits again. All news may come twice, and in any order.
struct LinkNews {
    /// Items that wait for one gateway, and that are remembered of what went out.
    static let itemLimit = 4_096
    /// How long before a link's end an item must have gone out to be sure to have arrived: a link ends after two seconds of
    /// silence, and heartbeats come behind what was sent before them.
    static let doubtMilliseconds: UInt64 = 5_000

    private struct Peer {
        var waiting: [GatewayNews] = []
        var known: Set<GatewayNews> = []
        /// In the order of their times.
        var sent: [(news: GatewayNews, at: UInt64)] = []

        /// - Returns: how many others had to go.
        mutating func add(_ news: GatewayNews) -> Int {
            guard known.insert(news).inserted else { return 0 }
            waiting.append(news)
            guard waiting.count > LinkNews.itemLimit else { return 0 }
            known.remove(waiting.removeFirst())
            return 1
        }
    }

    private var peers: [Int: Peer] = [:]
    /// Items that no gateway was told, since too many waited for it.
    private(set) var droppedCount = 0

    /// The gateways that there are now.
    mutating func setPeers(_ nodes: Set<Int>) {
        peers = peers.filter { nodes.contains($0.key) }
        for node in nodes where peers[node] == nil { peers[node] = Peer() }
    }

    /// Those that are to be told of something.
    var waitingNodes: [Int] { peers.filter { !$0.value.waiting.isEmpty }.keys.sorted() }

    mutating func add(_ news: GatewayNews) {
        for node in peers.keys { droppedCount += peers[node]?.add(news) ?? 0 }
    }

    /// Takes what waits for a gateway; what does not go out is put back.
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
        // Older ones are the likelier to have arrived.
        let surplus = (peers[node]?.sent.count ?? 0) - Self.itemLimit
        if surplus > 0 { peers[node]?.sent.removeFirst(surplus) }
    }

    /// The link is down: what went out lately waits again.
    mutating func linkEnded(_ node: Int, at time: UInt64) {
        guard var peer = peers[node] else { return }
        let doubtful = peer.sent.filter { $0.at + Self.doubtMilliseconds >= time }
        peer.sent = []
        for item in doubtful { droppedCount += peer.add(item.news) }
        peers[node] = peer
    }
}
