internal import Delivery
internal import Platform
internal import Wire

// Replication of broadcast logs between partitions. The log of an app's broadcasts is owned by the app's *home* partition, and
// every partition keeps a copy of the live part. A newly opened partition fetches the logs of all homes. A home announces its
// logs again to a partition that has moved, and after a link was restored. All partitions also compare their copies periodically.
// Logs are transferred in pieces (`BroadcastPiece`), each requested by the receiving partition. Neither side holds more than one
// piece of a log, whatever the size of the log.

/// The limit on concurrent piece requests to one gateway, over all local partitions.
///
/// With the largest broadcasts, 32 pieces take at most 8 MiB of a link's 32 MiB send buffer.
final class BroadcastTurns: Sendable {
    static let limit = 32

    private let taken = Lock<[Int: Int]>([:])

    /// Reserves a request; returns `false` if the limit is reached.
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
    /// Sends this partition's broadcast logs to another partition; logs of more than one piece are only announced.
    func announceBroadcasts(to part: Int) {
        guard isServing else { return }
        host.ask(LiveBroadcasts(share), of: number) { [self] piece in
            guard let piece else { return }
            // An empty log is sent, too, because the receiver registers no new devices of an app before it knows the app's log.
            guard piece.next == nil else { return host.tell(OfferBroadcasts(home: number), to: part) }
            host.tell(TellBroadcasts(home: number, logs: piece.logs), to: part)
        }
    }

    /// Stores another partition's broadcast logs, or a piece of them; returns `false` if an earlier piece is missing.
    @discardableResult
    func learn(_ logs: [AppBroadcasts], of home: Int, isLast: Bool = true) -> Bool {
        var isWhole = true
        withShard { isWhole = $0.learn(logs, of: home, isLast: isLast, loopCount: context.partitionCount, now: now) }
        continueWork()
        return isWhole
    }

    // MARK: Comparing

    /// Compares this partition's broadcast logs with those of partitions on other gateways, a few each second.
    ///
    /// The announcement of the latest broadcast may be lost, and nothing else would reveal the gap. Each partition is compared
    /// about every sixteen seconds, whatever the number of partitions.
    func compareBroadcasts() {
        guard let cluster = context.cluster, isServing, context.partitionCount > 1 else { return }
        for _ in 0..<max(1, context.partitionCount / Self.comparisonSeconds) {
            compared = (compared + 1) % context.partitionCount
            // Announcements between loops of one gateway are never lost.
            guard ![0, cluster.node].contains(cluster.owner(of: compared)) else { continue }
            compareBroadcasts(with: compared)
        }
    }

    private static let comparisonSeconds = 16

    /// Asks a partition for the heads of its apps' logs, and fetches its logs if one of them is ahead.
    func compareBroadcasts(with home: Int) {
        host.ask(BroadcastHeads(LoopShare(index: home, count: context.partitionCount)), of: home) { [self] heads in
            // A partition that is moving announces its broadcasts once it is served again.
            guard isServing, let heads else { return }
            var isBehind = false
            withQuietShard { shard in
                isBehind = heads.contains { $0.head > shard.broadcastHead(of: $0.app) }
                return false
            }
            if isBehind { learnBroadcasts(of: home) }
        }
    }

    // MARK: Learning

    /// Requests a partition's broadcast logs until they are complete; `completion` runs after the first attempt, even if it
    /// failed.
    func learnBroadcasts(of home: Int, completion: @escaping () -> Void = {}) {
        guard learning.updateValue(true, forKey: home) == nil else { return completion() }
        askForBroadcasts(BroadcastLesson(home: home), completion: completion)
    }

    private struct BroadcastLesson {
        let home: Int
        var next: BroadcastPlace?
        var delay = Self.leastDelay

        static let leastDelay: Int64 = 20
        private static let longestDelay: Int64 = 500

        mutating func wait() { delay = min(Self.longestDelay, delay * 2) }

        /// Advances to the next piece; returns `false` if the home repeats a piece.
        mutating func goOn(at place: BroadcastPlace) -> Bool {
            if let next, (next.app.word, next.number) >= (place.app.word, place.number) { return false }
            (next, delay) = (place, Self.leastDelay)
            return true
        }
    }

    /// The time in milliseconds after which an unanswered request no longer counts in `BroadcastTurns`, so that one home does not
    /// block the requests to others.
    private static let turnMilliseconds: Int64 = 1_000
    private static let turnPause: Int64 = 10

    private func askForBroadcasts(_ lesson: BroadcastLesson, completion: @escaping () -> Void = {}) {
        guard isServing else { return completion() }
        let owner = context.cluster?.owner(of: lesson.home) ?? 0
        guard context.cluster?.broadcastTurns.take(owner) ?? true else {
            return coordinator.later(Self.turnPause) { [self] in askForBroadcasts(lesson, completion: completion) }
        }
        var hasTurn = true
        let endTurn: () -> Void = { [context] in
            if hasTurn { context.cluster?.broadcastTurns.giveBack(owner) }
            hasTurn = false
        }
        coordinator.later(Self.turnMilliseconds, endTurn)
        if lesson.next == nil { learning[lesson.home] = false }
        let share = LoopShare(index: lesson.home, count: context.partitionCount)
        host.ask(LiveBroadcasts(share, BroadcastPiece(from: lesson.next)), of: lesson.home) { [self] piece in
            endTurn()
            guard isServing else { return completion() }
            learn(piece, in: lesson, completion: completion)
        }
    }

    private func learn(_ piece: LiveBroadcasts.Logs?, in lesson: BroadcastLesson, completion: @escaping () -> Void) {
        var lesson = lesson
        func again() {
            let later = lesson
            lesson.wait()
            coordinator.later(later.delay) { [self, lesson] in askForBroadcasts(lesson) }
        }
        guard let piece else {
            // The partition has no owner, or its owner is unreachable. The owner announces its broadcasts once the partition is
            // served again.
            completion()
            return again()
        }
        guard learn(piece.logs, of: lesson.home, isLast: piece.next == nil) else {
            completion()
            lesson.next = nil
            return again()
        }
        if let next = piece.next {
            if lesson.goOn(at: next) { return askForBroadcasts(lesson, completion: completion) }
            completion()
            return again()
        }
        completion()
        // `learnBroadcasts` was called again during the transfer, so these logs may lack a newer broadcast.
        guard learning[lesson.home] ?? false else { return learning[lesson.home] = nil }
        askForBroadcasts(BroadcastLesson(home: lesson.home))
    }
}
