internal import Platform
internal import Wire

/// How much of a loop the senders of each app take at a time, while several apps publish.
///
/// An app's connections together take a slice a turn, and have a bounded number of publishes under way. Past either, they
/// rest and their sockets fill: whoever sends faster is slowed down and not refused, and a neighbour's publish waits for
/// a slice at most. An app that is alone takes what it likes.
struct AppShares {
    /// A turn's slice: about a millisecond's work.
    static let publishesPerTurn = 128
    /// Publishes of one app that wait for their answers: enough for a loop's full rate at ten milliseconds a commit.
    static let publishesUnderWay = 1_024
    /// Resting connections of one app that go on in a turn.
    static let resumedPerTurn = 4

    struct Connection {
        var slot: UInt32
        var stamp: UInt32
    }

    private struct Share {
        var taken = 0
        var underWay = 0
        /// Those that rest, in the order in which they came to.
        var resting: [Connection] = []
    }

    private var shares: [Share] = []
    private var places: [AppKey: Int] = [:]
    private var restingCount = 0
    /// Several apps publish, on whichever loops.
    var isContended = false

    /// Where an app's numbers are; for good.
    mutating func place(of app: AppKey) -> Int {
        if let place = places[app] { return place }
        places[app] = shares.count
        shares.append(Share())
        return shares.count - 1
    }

    @inline(__always)
    func mayTake(_ place: Int) -> Bool {
        !isContended
            || shares[place].taken < Self.publishesPerTurn && shares[place].underWay < Self.publishesUnderWay
    }

    @inline(__always)
    mutating func took(_ place: Int) {
        shares[place].taken += 1
        shares[place].underWay += 1
    }

    @inline(__always)
    mutating func answered(_ place: Int, count: Int = 1) { shares[place].underWay -= count }

    /// A connection of the app reads nothing until its turn comes.
    mutating func rest(_ place: Int, _ connection: Connection) {
        shares[place].resting.append(connection)
        restingCount += 1
    }

    /// A new slice for everybody; the connections that may go on, those that rested longest first.
    mutating func turnEnded() -> [Connection] {
        for place in shares.indices { shares[place].taken = 0 }
        guard restingCount > 0 else { return [] }
        var resumed: [Connection] = []
        for place in shares.indices where !shares[place].resting.isEmpty && mayTake(place) {
            let count = min(shares[place].resting.count, isContended ? Self.resumedPerTurn : .max)
            resumed += shares[place].resting[..<count]
            shares[place].resting.removeFirst(count)
        }
        restingCount -= resumed.count
        return resumed
    }
}

/// Which apps publish, over all loops.
final class SharedActivity: Sendable {
    /// An app counts for so long after its last message.
    private static let milliseconds: UInt64 = 5_000
    private let lastSeen = Lock<[AppKey: UInt64]>([:])

    /// Notes a loop's apps, once a second; how many have published lately.
    func note(_ apps: [AppKey], now: UInt64) -> Int {
        lastSeen.withLock { seen in
            for app in apps { seen[app] = now }
            seen = seen.filter { $0.value + Self.milliseconds >= now }
            return seen.count
        }
    }
}
