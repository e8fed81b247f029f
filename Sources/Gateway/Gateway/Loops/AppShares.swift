internal import Platform
internal import Synchronization
internal import Wire

/// How much of a loop the senders and requests of each app take at a time.
///
/// An app's connections together take a slice a turn, and have a bounded number of publishes under way. Past either,
/// they rest and their sockets fill: a sender that is faster is slowed down and not refused, and a neighbour's publish
/// waits for a slice at most. An app that is alone has a wider slice: what another one's first message waits for.
struct AppShares {
    /// A turn's slice: about a tenth of a millisecond, of which a neighbour's publish waits for about five.
    static let publishesPerTurn = 16
    /// The slice of an app that is alone: some three milliseconds, so that the turn's own work counts for nothing.
    static let lonePublishesPerTurn = 1_024
    /// The same of requests over HTTP, each of which costs many times as much.
    static let loneRequestsPerTurn = 64
    /// Publishes of one app that wait for their answers: what a commit brings back is answered in one turn, too.
    static let publishesUnderWay = 128
    /// Resting connections of one app that go on in a turn.
    static let resumedPerTurn = 4
    /// The same of an app that is alone.
    static let loneResumedPerTurn = 16
    /// A request without messages costs one publish more for each 4 KiB of its body.
    private static let requestByteCount = 4_096

    struct Connection {
        var slot: UInt32
        var stamp: UInt32
    }

    /// An app's callers with a valid token; or those without one, which use up nothing of the app's share.
    private struct Caller: Hashable {
        let app: AppKey
        let isProven: Bool
    }

    private struct Share {
        let caller: Caller
        var taken = 0
        var underWay = 0
        /// When `SharedActivity` was last told of the app, in the loop's time.
        var notedAt: UInt64 = 0
        /// Those that rest, in the order in which they came to.
        var resting: [Connection] = []
    }

    private var shares: [Share] = []
    private var places: [Caller: Int] = [:]
    private var restingCount = 0
    /// Places of the apps that have published in this turn, or whose connections wait: a turn looks at no other app.
    private var busy: [Int] = []
    /// Several apps send, on whichever loops.
    var isContended = false

    /// Where an app's numbers are; for good.
    mutating func place(of app: AppKey, isProven: Bool = true) -> Int {
        let caller = Caller(app: app, isProven: isProven)
        if let place = places[caller] { return place }
        places[caller] = shares.count
        shares.append(Share(caller: caller))
        return shares.count - 1
    }

    @inline(__always)
    func mayTake(_ place: Int) -> Bool {
        isContended
            ? shares[place].taken < Self.publishesPerTurn && shares[place].underWay < Self.publishesUnderWay
            : shares[place].taken < Self.lonePublishesPerTurn
    }

    func mayTakeRequest(_ place: Int) -> Bool { mayTake(place) && shares[place].taken < Self.loneRequestsPerTurn }

    /// Takes a publish out of the app's share.
    ///
    /// - Returns: the app when `SharedActivity` is to know of it: at its first publish, and then once a second.
    @inline(__always)
    mutating func took(_ place: Int, now: UInt64) -> AppKey? {
        noteBusy(place)
        shares[place].taken += 1
        shares[place].underWay += 1
        return note(place, now: now)
    }

    /// Takes a request that publishes nothing out of its caller's share; returns what `took` does.
    mutating func tookRequest(_ place: Int, byteCount: Int, now: UInt64) -> AppKey? {
        noteBusy(place)
        shares[place].taken += 1 + byteCount / Self.requestByteCount
        return shares[place].caller.isProven ? note(place, now: now) : nil
    }

    @inline(__always)
    private mutating func note(_ place: Int, now: UInt64) -> AppKey? {
        guard now >= shares[place].notedAt + SharedActivity.noteMilliseconds || shares[place].notedAt == 0 else {
            return nil
        }
        shares[place].notedAt = max(1, now)
        return shares[place].caller.app
    }

    @inline(__always)
    mutating func answered(_ place: Int, count: Int = 1) { shares[place].underWay -= count }

    @inline(__always)
    private mutating func noteBusy(_ place: Int) {
        guard shares[place].taken == 0, shares[place].resting.isEmpty else { return }
        busy.append(place)
    }

    /// A connection of the app reads nothing until its turn comes.
    mutating func rest(_ place: Int, _ connection: Connection) {
        noteBusy(place)
        shares[place].resting.append(connection)
        restingCount += 1
    }

    /// Several apps publish, and one has used up its slice.
    var isSliceUsedUp: Bool { isContended && busy.contains { shares[$0].taken >= Self.publishesPerTurn } }

    /// A new slice for everybody; the connections that may go on, those that rested longest first.
    ///
    /// While the loop pauses (`CPUShare`), apps that have used up their slices get none.
    mutating func turnEnded(isPausing: Bool = false) -> [Connection] {
        defer {
            let shares = shares
            busy.removeAll { shares[$0].taken == 0 && shares[$0].resting.isEmpty }
        }
        guard !isPausing else {
            for place in busy where shares[place].taken < Self.publishesPerTurn { shares[place].taken = 0 }
            return []
        }
        for place in busy { shares[place].taken = 0 }
        guard restingCount > 0 else { return [] }
        var resumed: [Connection] = []
        for place in busy where !shares[place].resting.isEmpty && mayTake(place) {
            let count = min(
                shares[place].resting.count, isContended ? Self.resumedPerTurn : Self.loneResumedPerTurn)
            resumed += shares[place].resting[..<count]
            shares[place].resting.removeFirst(count)
        }
        restingCount -= resumed.count
        return resumed
    }
}

/// Which apps publish or send requests, over all loops.
final class SharedActivity: Sendable {
    /// An app counts for so long after its last message or request.
    private static let milliseconds: UInt64 = 5_000
    /// How often a loop notes an app that goes on.
    static let noteMilliseconds: UInt64 = 1_000

    private let lastSeen = Lock<[AppKey: UInt64]>([:])
    private let count = Atomic<Int>(0)

    /// Several apps send: each loop asks at each turn's end, so that an app that begins has its share at once.
    var isContended: Bool { count.load(ordering: .relaxed) > 1 }

    /// Notes apps that send on the calling loop.
    func note(_ apps: [AppKey], now: UInt64) {
        lastSeen.withLock { seen in
            for app in apps { seen[app] = now }
            seen = seen.filter { $0.value + Self.milliseconds >= now }
            count.store(seen.count, ordering: .relaxed)
        }
    }
}
