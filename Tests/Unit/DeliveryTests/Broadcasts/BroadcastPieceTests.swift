import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Logs of broadcasts in pieces")
struct BroadcastPieceTests {
    private static let home = DeliveryHarness.app.home.loop(of: 2)

    /// A shard of another gateway that does not know the app's log yet.
    private struct Learner {
        let world = BroadcastHarness()
        var harness: DeliveryHarness { world.harness }

        init() {
            harness.crash()
            let start = BroadcastStart().of(
                LoopShare(index: 1 - BroadcastPieceTests.home, count: 2), hasOwnOnly: true)
            harness.shard = Shard(
                limits: harness.limits, apps: harness.apps, store: harness.store, verifier: SecretAsProof(),
                encoder: TestFrames(), queueEpoch: 7, counters: [], broadcasts: start, now: harness.now)
        }

        var isKnown: Bool { harness.shard.knowsBroadcasts(of: DeliveryHarness.app) }

        @discardableResult
        func learn(_ logs: [AppBroadcasts], isLast: Bool) -> Bool {
            let isWhole = harness.shard.learn(
                logs, of: BroadcastPieceTests.home, isLast: isLast, loopCount: 2, now: harness.now)
            harness.flush()
            return isWhole
        }
    }

    private typealias Piece = LiveBroadcasts.Logs

    private func ask(_ world: BroadcastHarness, _ start: BroadcastPlace?, _ byteCount: Int) throws -> Piece {
        let piece = BroadcastPiece(from: start, byteCount: byteCount)
        guard let found = world.ask(LiveBroadcasts(BroadcastHarness.whole, piece)) else { throw Unanswered() }
        return found
    }

    private struct Unanswered: Error {}

    private func all(_ world: BroadcastHarness, _ byteCount: Int) throws -> [Piece] {
        var pieces = [try ask(world, nil, byteCount)]
        while let next = pieces.last?.next {
            pieces.append(try ask(world, next, byteCount))
            try #require(pieces.count < 1_000)
        }
        return pieces
    }

    @Test("pieces of any size contain every broadcast once, in order, with the range of numbers that they cover")
    func pieces() throws {
        let world = BroadcastHarness()
        for step in 0..<40 { world.send(String(repeating: "x", count: step * 37 % 900)) }
        let size = TaskRow.byteCount(world.record())
        for byteCount in [-1, 0, 1, size, 3 * size, 20 * size, BroadcastPiece.byteLimit, .max] {
            var last: UInt64 = 0
            let pieces = try all(world, byteCount)
            for piece in pieces {
                let (logs, next) = (piece.logs, piece.next)
                let log = try #require(logs.first)
                #expect(logs.count == 1 && log.head == 40)
                let bounds = try #require(log.bounds)
                #expect(bounds.after == last && bounds.through > last)
                #expect(log.records.compactMap { $0.broadcast?.number } == Array(last + 1...bounds.through))
                let sum = log.records.reduce(0) { $0 + TaskRow.byteCount($1) }
                #expect(log.records.count == 1 || sum <= max(byteCount, 1))
                last = bounds.through
                if let next { #expect(next == BroadcastPlace(app: DeliveryHarness.app, number: last)) }
            }
            #expect(last == 40)
            if byteCount >= BroadcastPiece.byteLimit { #expect(pieces.count == 1) }
            if byteCount < size { #expect(pieces.count == 40) }
        }
    }

    @Test("no piece exceeds the bound, whatever size is requested")
    func bound() throws {
        let world = BroadcastHarness()
        for _ in 0..<80 { world.send(String(repeating: "x", count: 4_000)) }
        let pieces = try all(world, .max)
        #expect(pieces.count >= 3)
        for piece in pieces {
            #expect(piece.logs.flatMap(\.records).reduce(0) { $0 + TaskRow.byteCount($1) } <= BroadcastPiece.byteLimit)
        }
    }

    @Test("a log is known after its last piece, and accepts the next launch")
    func learns() throws {
        let world = BroadcastHarness()
        for step in 1...12 { world.send("\(step)") }
        let learner = Learner()
        let harness = learner.harness
        let pieces = try all(world, 1)
        #expect(pieces.count == 12)
        for piece in pieces {
            #expect(!learner.isKnown)
            #expect(learner.learn(piece.logs, isLast: piece.next == nil))
        }
        #expect(learner.isKnown && harness.statistics.liveBroadcasts == 12)
        // The next broadcast is announced like any launch.
        var next = try #require(pieces.last?.logs.first?.records.first)
        next.broadcast?.number = 13
        let isTaken = harness.shard.launch(next, loopCount: 2, now: harness.now)
        #expect(isTaken)
    }

    @Test("a shard that missed broadcasts learns them from pieces, and its devices get each once and in order")
    func catchesUp() throws {
        let world = BroadcastHarness()
        for step in 1...3 { world.send("\(step)") }
        let learner = Learner()
        let harness = learner.harness
        learner.learn([], isLast: true)
        let phone = harness.register()
        for piece in try all(world, .max) { learner.learn(piece.logs, isLast: piece.next == nil) }
        #expect(harness.takeDelivered().map(\.payload) == ["1", "2", "3"])
        for step in 4...9 { world.send("\(step)") }
        for piece in try all(world, 1) { #expect(learner.learn(piece.logs, isLast: piece.next == nil)) }
        #expect(harness.takeDelivered().map(\.payload) == (4...9).map { "\($0)" })
        learner.world.acknowledge(phone, 9)
    }

    @Test("a piece after a gap is refused: no broadcast is skipped, and the log stays unknown")
    func hole() throws {
        let world = BroadcastHarness()
        for step in 1...4 { world.send("\(step)") }
        let learner = Learner()
        let pieces = try all(world, 1)
        #expect(learner.learn(pieces[0].logs, isLast: false))
        #expect(!learner.learn(pieces[2].logs, isLast: false))
        #expect(!learner.learn(pieces[3].logs, isLast: true))
        #expect(!learner.isKnown && learner.harness.statistics.liveBroadcasts == 1)
        #expect(learner.harness.shard.broadcastHead(of: DeliveryHarness.app) == 1)
        for piece in pieces { #expect(learner.learn(piece.logs, isLast: piece.next == nil)) }
        #expect(learner.isKnown && learner.harness.statistics.liveBroadcasts == 4)
    }

    @Test("a broadcast closed at its home is removed exactly where a piece covers its number")
    func closed() throws {
        let world = BroadcastHarness()
        let records = (1...6).map { world.send("\($0)") }
        let learner = Learner()
        for piece in try all(world, 1) { learner.learn(piece.logs, isLast: piece.next == nil) }
        for index in [1, 4, 5] { world.harness.shard.forgetBroadcast(records[index].id, records[index].app) }
        let pieces = try all(world, 1)
        // Number 2 is closed: the first piece covers 1 and 2.
        #expect(pieces.first?.logs.first?.bounds?.through == 2)
        learner.learn(pieces[0].logs, isLast: false)
        #expect(learner.harness.statistics.liveBroadcasts == 5)
        for piece in pieces.dropFirst() { learner.learn(piece.logs, isLast: piece.next == nil) }
        #expect(learner.harness.statistics.liveBroadcasts == 3)
    }
}
