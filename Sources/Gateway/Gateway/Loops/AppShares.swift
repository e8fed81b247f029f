internal import Platform
internal import Synchronization
internal import Wire

/// Fair sharing of a loop's time between the senders and requests of several apps.
///
/// All connections of an app together get a slice of publishes per turn and a bounded number of publishes in flight. Above either
/// limit the loop stops reading from them, so TCP flow control slows the sender down without errors. A publish of another app
/// therefore waits for a few slices at most. An app that is alone gets a larger slice, which bounds the wait of another app's
/// first message.
struct AppShares {
    /// The slice of each app under contention, about 0.1 ms of work; another app's publish waits for about five such slices.
    static let publishesPerTurn = 16
    /// The slice of a lone app, about 3 ms of work, so that the fixed cost of a turn is negligible.
    static let lonePublishesPerTurn = 1_024
    /// The slice of a lone app in HTTP requests, each of which costs many times as much as a publish frame.
    static let loneRequestsPerTurn = 64
    /// The maximum number of unanswered publishes of one app, because one commit may answer all of them in a single turn.
    static let publishesUnderWay = 128
    /// The most throttled connections of one app that resume in a turn.
    static let resumedPerTurn = 4
    static let loneResumedPerTurn = 16
    /// The body size, in bytes, that costs as much as one publish in a request without messages.
    private static let requestByteCount = 4_096

    struct Connection {
        var slot: UInt32
        var stamp: UInt32
    }

    /// The callers of an app with a valid token (`isProven`), or those without a valid token; each group has its own share.
    private struct Caller: Hashable {
        let app: AppKey
        let isProven: Bool
    }

    private struct Share {
        let caller: Caller
        var taken = 0
        var underWay = 0
        /// The loop time at which `SharedActivity` last recorded the app.
        var notedAt: UInt64 = 0
        /// The throttled connections, oldest first.
        var resting: [Connection] = []
    }

    private var shares: [Share] = []
    private var places: [Caller: Int] = [:]
    private var restingCount = 0
    /// The indices of apps that have published in this turn or have throttled connections; a turn visits no other app.
    private var busy: [Int] = []
    /// Whether several apps publish, on any loop.
    var isContended = false

    /// Returns the index of an app's share; the index never changes.
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
    /// - Returns: The app if `SharedActivity` must record it: at its first publish, and then once a second.
    @inline(__always)
    mutating func took(_ place: Int, now: UInt64) -> AppKey? {
        noteBusy(place)
        shares[place].taken += 1
        shares[place].underWay += 1
        return note(place, now: now)
    }

    /// Takes a request that publishes nothing out of its caller's share; returns the same as `took`.
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

    /// Queues a connection that the loop stops reading from until its app has a new slice.
    mutating func rest(_ place: Int, _ connection: Connection) {
        noteBusy(place)
        shares[place].resting.append(connection)
        restingCount += 1
    }

    /// Whether several apps publish and one of them has used up its slice.
    var isSliceUsedUp: Bool { isContended && busy.contains { shares[$0].taken >= Self.publishesPerTurn } }

    /// Starts a new slice for each app, and returns the connections to resume, longest throttled first.
    ///
    /// While the loop pauses (`CPUShare`), apps that have used up their slices get no new slice.
    mutating func turnEnded(isPausing: Bool = false) -> [Connection] {
        guard !busy.isEmpty else { return [] }
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

/// The apps that publish or send requests, over all loops.
final class SharedActivity: Sendable {
    /// The time in milliseconds for which an app counts as active after its last message or request.
    private static let milliseconds: UInt64 = 5_000
    /// The interval in milliseconds at which a loop records an active app.
    static let noteMilliseconds: UInt64 = 1_000

    private let lastSeen = Lock<[AppKey: UInt64]>([:])
    private let count = Atomic<Int>(0)

    /// Whether several apps are active; each loop reads this at the end of each turn, so a newly active app gets its share at
    /// once.
    var isContended: Bool { count.load(ordering: .relaxed) > 1 }

    /// Records apps that are active on the calling loop.
    func note(_ apps: [AppKey], now: UInt64) {
        lastSeen.withLock { seen in
            for app in apps { seen[app] = now }
            seen = seen.filter { $0.value + Self.milliseconds >= now }
            count.store(seen.count, ordering: .relaxed)
        }
    }
}
