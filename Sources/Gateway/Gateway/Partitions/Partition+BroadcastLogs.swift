internal import Delivery
internal import Platform
internal import Wire

// What a part knows of the broadcasts of other parts' apps. A part that begins to be served asks every other one, its *home*,
// for its logs; a home tells its logs again to a part that has moved, and over a link that came back; all compare in turn.
// Logs travel in pieces (`BroadcastPiece`), each asked for by the part that learns, so that neither end holds more than a
// piece of each, whatever the size of the logs.

/// How many pieces one gateway is asked for at once, by all parts here.
///
/// So they take 8 MiB of its link at most, with the largest broadcasts, of the 32 MiB after which a link takes no more.
final class BroadcastTurns: Sendable {
    static let limit = 32

    private let taken = Lock<[Int: Int]>([:])

    /// Takes a place; false when all are taken.
    func take(_ node: Int) -> Bool {
        taken.withLock { taken in
            guard taken[node, default: 0] < Self.limit else { return false }
            taken[node, default: 0] += 1
            return true
        }
    }

    func giveBack(_ node: Int) {
        taken.withLock { taken in
            let count = taken[node, default: 0]
            taken[node] = count > 1 ? count - 1 : nil
        }
    }
}

extension Partition {
    /// Tells a part that is served elsewhere now what this part has of its apps' broadcasts, or to ask for it.
    func announceBroadcasts(to part: Int) {
        guard isServing else { return }
        coordinator.ask(number, .liveBroadcasts(share, BroadcastPiece())) { [self] answer in
            guard case .liveBroadcasts(let logs, let next) = answer else { return }
            // No broadcasts are news, too: until then the part takes no registrations of these apps.
            guard next == nil else { return host.tell(OfferBroadcasts(home: number), to: part) }
            host.tell(TellBroadcasts(home: number, logs: logs), to: part)
        }
    }

    /// Takes over what another part has of its apps' broadcasts, or a piece of it; false for a piece behind a hole.
    @discardableResult
    func learn(_ logs: [AppBroadcasts], of home: Int, isLast: Bool = true) -> Bool {
        var isWhole = true
        withShard { isWhole = $0.learn(logs, of: home, isLast: isLast, loopCount: context.partitionCount, now: now) }
        continueWork()
        return isWhole
    }

    // MARK: Comparing

    /// Compares what this part knows of broadcasts with other gateways' parts in turn; once a second.
    ///
    /// A word of the last one may be lost, and then nothing else says that there is one. Each part is compared with about
    /// every sixteen seconds, however many there are.
    func compareBroadcasts() {
        guard let cluster = context.cluster, isServing, context.partitionCount > 1 else { return }
        for _ in 0..<max(1, context.partitionCount / Self.comparisonSeconds) {
            compared = (compared + 1) % context.partitionCount
            // Nothing is lost between the loops of one gateway.
            guard ![0, cluster.node].contains(cluster.owner(of: compared)) else { continue }
            compareBroadcasts(with: compared)
        }
    }

    private static let comparisonSeconds = 16

    /// Asks a part how far its apps' logs go, and for the whole of them where one goes further than is known here.
    func compareBroadcasts(with home: Int) {
        coordinator.ask(home, .broadcastHeads(LoopShare(index: home, count: context.partitionCount))) {
            [self] answer in
            // A partition on its way announces its broadcasts when it is served again.
            guard isServing, case .liveBroadcasts(let heads, _) = answer else { return }
            var isBehind = false
            withQuietShard { shard in
                isBehind = heads.contains { $0.head > shard.broadcastHead(of: $0.app) }
                return false
            }
            if isBehind { learnBroadcasts(of: home) }
        }
    }

    // MARK: Learning

    /// Asks a part for its apps' broadcasts until it has told of them; `tried` runs when it has, or did not answer once.
    func learnBroadcasts(of home: Int, tried: @escaping () -> Void = {}) {
        guard learning.updateValue(true, forKey: home) == nil else { return tried() }
        askForBroadcasts(BroadcastLesson(home: home), tried: tried)
    }

    /// How far a part is in learning another one's logs.
    private struct BroadcastLesson {
        let home: Int
        var next: BroadcastPlace?
        var delay = Self.leastDelay

        static let leastDelay: Int64 = 20
        private static let longestDelay: Int64 = 500

        mutating func wait() { delay = min(Self.longestDelay, delay * 2) }

        /// Goes on behind the piece that was learnt; false when the home sends what it has sent.
        mutating func goOn(at place: BroadcastPlace) -> Bool {
            if let next, (next.app.word, next.number) >= (place.app.word, place.number) { return false }
            (next, delay) = (place, Self.leastDelay)
            return true
        }
    }

    /// A question that has no answer after so long leaves its turn to others: its home may wait for its log.
    private static let turnMilliseconds: Int64 = 1_000
    private static let turnPause: Int64 = 10

    private func askForBroadcasts(_ lesson: BroadcastLesson, tried: @escaping () -> Void = {}) {
        guard isServing else { return tried() }
        let owner = context.cluster?.owner(of: lesson.home) ?? 0
        guard context.cluster?.broadcastTurns.take(owner) ?? true else {
            return coordinator.later(Self.turnPause) { [self] in askForBroadcasts(lesson, tried: tried) }
        }
        var hasTurn = true
        let endTurn: () -> Void = { [context] in
            if hasTurn { context.cluster?.broadcastTurns.giveBack(owner) }
            hasTurn = false
        }
        coordinator.later(Self.turnMilliseconds, endTurn)
        if lesson.next == nil { learning[lesson.home] = false }
        let share = LoopShare(index: lesson.home, count: context.partitionCount)
        coordinator.ask(lesson.home, .liveBroadcasts(share, BroadcastPiece(from: lesson.next))) { [self] answer in
            endTurn()
            guard isServing else { return tried() }
            learn(answer, in: lesson, tried: tried)
        }
    }

    private func learn(_ answer: TaskAnswer, in lesson: BroadcastLesson, tried: @escaping () -> Void) {
        var lesson = lesson
        func again() {
            let later = lesson
            lesson.wait()
            coordinator.later(later.delay) { [self, lesson] in askForBroadcasts(lesson) }
        }
        guard case .liveBroadcasts(let logs, let next) = answer else {
            // Nobody has the part, or its owner cannot be reached: it tells when it is served again.
            tried()
            return again()
        }
        guard learn(logs, of: lesson.home, isLast: next == nil) else {
            tried()
            lesson.next = nil
            return again()
        }
        if let next {
            if lesson.goOn(at: next) { return askForBroadcasts(lesson, tried: tried) }
            tried()
            return again()
        }
        tried()
        // One came meanwhile that these logs may not have.
        guard learning[lesson.home] ?? false else { return learning[lesson.home] = nil }
        askForBroadcasts(BroadcastLesson(home: lesson.home))
    }
}
