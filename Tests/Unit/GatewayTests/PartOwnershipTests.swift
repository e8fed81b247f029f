import Quotas
import Delivery
import EventLoops
import Platform
import PushAPI
import Testing
import Wire

@testable import Gateway

@Suite("A partition that leaves")
struct PartOwnershipTests {
    private static let content = MessageContent(
        strategy: .liveElseVendor, timeToLive: 7_200_000, vendor: nil, lengths: MessageContent.Lengths(), arena: [])

    private static func broadcast() -> TaskRecord {
        let key = AppKey(0xA55)
        var record = TaskRecord(
            id: TaskID(kind: .app, month: 1, day: 1, home: key.home, random: (1, 1)), app: key, state: .open,
            createdAt: 0, validUntil: .max, content: content)
        record.broadcast = BroadcastPlan(audience: TagExpression(), speed: 0)
        return record
    }

    @Test(
        "a lost partition answers tasks, lists, settlements and questions once, including later ones",
        arguments: [true, false])
    func answers(isLost: Bool) throws {
        try SmallGateway.run { gateway in
            let told = Lock<[String]>([])
            let isDone = Flag()
            gateway.context.submit(to: 0) { partition in
                let loop = partition.host
                let coordinator = loop.campaigns.coordinator
                func ask(_ name: String) {
                    loop.ask(CreateTask(Self.broadcast(), key: .none, digest: 0), of: 0) {
                        answer in
                        if case .busy = answer {
                            told.withLock { $0.append("\(name) task busy") }
                        } else {
                            told.withLock { $0.append("\(name) task") }
                        }
                    }
                    loop.ask(RevokeToken(token: TokenID(expiresAt: .max, random: 7)), of: 0) { isRevoked in
                        told.withLock { $0.append("\(name) question\(isRevoked ? "" : " busy")") }
                    }
                    let target = ListTarget(cid: DeviceID(high: 1, low: 2), bucket: Bucket(3), digest: 4)
                    let sending = TaskCoordinator.Sending(
                        task: TaskID(kind: .list, month: 1, day: 1, home: Bucket(3), random: (1, 2)),
                        app: AppKey(0xA55), createdAt: 0, content: Self.content, isBulk: true,
                        permit: loop.permitOfKeptTask)
                    coordinator.fanOut(sending, [target]) { outcomes in
                        told.withLock { $0.append("\(name) list \(outcomes.map(\.code.isRetryable))") }
                    }
                    let job = MessageID(bucket: Bucket(3), acceptedAt: 1_000, digest: 5)
                    _ = loop.handoff.settle(
                        [JobResult(job: job, leaseID: (1, 1), outcome: .accepted, reason: "")], apps: nil
                    ) { verdicts in told.withLock { $0.append("\(name) settled \(verdicts.count)") } }
                }
                ask("first")
                // In the same turn nothing can be durable yet.
                partition.release(isLost: isLost) {
                    ask("second")
                    isDone.set()
                }
            }
            #expect(SmallGateway.isSet(isDone))
            for _ in 0..<500 where told.withLock({ $0.count }) < 8 { Pause.milliseconds(10) }
            let all = told.withLock { $0 }
            #expect(all.count == 8 && Set(all).count == 8, "\(all)")
            #expect(all.contains("second task busy") && all.contains("second question busy"))
            if isLost { #expect(all.contains("first task busy") && all.contains("first question busy"), "\(all)") }
            let isIdle = Flag()
            gateway.context.hosts[0].submit { loop in
                #expect(loop.partition(0) == nil)
                if !loop.campaigns.coordinator.hasWorkUnderWay, !loop.handoff.hasWorkUnderWay { isIdle.set() }
            }
            for _ in 0..<500 where !isIdle.isSet { Pause.milliseconds(10) }
            #expect(isIdle.isSet, "a caller still waits")
        }
    }

    @Test(
        "a partition that leaves reports no unwritten row of the gateway as durable",
        arguments: [true, false])
    func ownRows(isLost: Bool) throws {
        try SmallGateway.run { gateway in
            let (isDone, told) = (Flag(), Lock<[String]>([]))
            gateway.context.submit(to: 0) { partition in
                partition.release(isLost: isLost) {}
                // The row's removal stands for an app that is deleted after another change.
                partition.deleteMeta(high: 99, low: 1, item: 0)
                partition.afterMeta {
                    told.withLock { $0.append("durable") }
                    isDone.set()
                } failed: {
                    told.withLock { $0.append("failed") }
                    isDone.set()
                }
            }
            #expect(SmallGateway.isSet(isDone))
            #expect(told.withLock { $0 } == ["failed"])
        }
    }

    @Test("a broadcast's run ends with its partition, and its task may start again")
    func runs() throws {
        try SmallGateway.run { gateway in
            let isDone = Flag()
            var record = Self.broadcast()
            record.state = .ending
            record.broadcast?.number = 4
            record.broadcast?.expiresAt = .max
            let scanned = record
            gateway.context.submit(to: 0) { partition in
                partition.release(isLost: true) {
                    // Its questions are answered as busy from now on. Only the check of its home ends the run.
                    partition.coordinator.broadcastDue(scanned, of: partition) { isDone.set() }
                }
            }
            #expect(SmallGateway.isSet(isDone), "the run goes on without its part")
        }
    }

    @Test("a partition that missed the last broadcast learns of it by comparison")
    func compares() throws {
        try SmallGateway.run(loops: 2) { gateway in
            let context = gateway.context
            var record = Self.broadcast()
            record.broadcast?.number = 1
            record.broadcast?.expiresAt = .max
            let (launched, app) = (record, record.app)
            let home = app.home.loop(of: 2)
            let head = Lock<UInt64>(0)
            // The home has the broadcast, but the announcement to the other partition is lost.
            context.submit(to: home) { loop in
                loop.withShard { _ = $0.launch(launched, loopCount: 2, now: loop.now) }
                context.submit(to: 1 - home) { other in
                    other.compareBroadcasts(with: home)
                }
            }
            for _ in 0..<500 where head.withLock({ $0 }) == 0 {
                Pause.milliseconds(10)
                context.submit(to: 1 - home) { other in
                    other.withQuietShard { shard in
                        let known = shard.broadcastHead(of: app)
                        head.withLock { $0 = known }
                        return false
                    }
                }
            }
            #expect(head.withLock { $0 } == 1)
        }
    }

    @Test("a gateway is asked for a bounded number of pieces at once, and every place is freed")
    func broadcastTurns() {
        let turns = BroadcastTurns()
        for _ in 0..<BroadcastTurns.limit { #expect(turns.take(3)) }
        #expect(!turns.take(3) && turns.take(4))
        turns.giveBack(3)
        #expect(turns.take(3) && !turns.take(3))
    }

    @Test("a partition fetches more broadcasts than one message holds, piece by piece")
    func learnsLargeLogs() throws {
        try SmallGateway.run(loops: 2) { gateway in
            let context = gateway.context
            let count = 2_400
            var record = Self.broadcast()
            var lengths = MessageContent.Lengths()
            lengths.payload = 4_000
            record.content = MessageContent(
                strategy: .liveElseVendor, timeToLive: 7_200_000, vendor: nil, lengths: lengths,
                arena: [UInt8](repeating: 0x61, count: 4_000))
            let (made, app) = (record, record.app)
            let home = app.home.loop(of: 2)
            let share = LoopShare(index: home, count: 2)
            let pieces = Lock<[Bool]>([])
            context.submit(to: home) { loop in
                for number in 1...count {
                    var launched = made
                    launched.id = TaskID(kind: .app, month: 1, day: 1, home: app.home, random: (2, UInt64(number)))
                    launched.broadcast?.number = UInt64(number)
                    launched.validUntil = loop.now + 3_600_000
                    launched.broadcast?.expiresAt = launched.validUntil
                    loop.withShard { _ = $0.launch(launched, loopCount: 2, now: loop.now) }
                }
                context.submit(to: 1 - home) { other in
                    let host = other.host
                    func ask(_ start: BroadcastPlace?) {
                        host.ask(LiveBroadcasts(share, BroadcastPiece(from: start)), of: home) { answer in
                            pieces.withLock { $0.append(Self.travels(answer)) }
                            if let next = answer?.next { ask(next) }
                        }
                    }
                    ask(nil)
                    other.learnBroadcasts(of: home)
                }
            }
            let head = Lock<UInt64>(0)
            for _ in 0..<2_000 where head.withLock({ $0 }) < UInt64(count) {
                Pause.milliseconds(10)
                context.submit(to: 1 - home) { other in
                    let isLearnt = other.statistics.liveBroadcasts == count
                    other.withQuietShard { shard in
                        let known = shard.broadcastHead(of: app)
                        head.withLock { $0 = isLearnt ? known : 0 }
                        return false
                    }
                }
            }
            #expect(head.withLock { $0 } == UInt64(count))
            let found = pieces.withLock { $0 }
            #expect(found.count > 64 && !found.contains(false))
        }
    }

    /// Whether an answer goes over a link as it is, and not as busy.
    private static func travels(_ answer: LiveBroadcasts.Logs?) -> Bool {
        let batch = AnswerBatch()
        batch.append(.answered(Route(.request, node: 1, loop: 0, slot: 1, stamp: 1).origin(1), answer))
        let block = LinkBlock()
        LinkCodec.encode(batch, into: block)
        var isWhole = false
        let reader = LinkFrameReader()
        reader.bodyLimit = LinkLimits.frameByteCount
        _ = block.withBytes { bytes in
            try? reader.read(bytes) { (frame) throws(LinkFault) in
                isWhole = LinkCodec.answer(in: frame.body)?.bytes != nil
                return true
            }
        }
        return isWhole
    }

    @Test("a question finds its way back after the gateway's number has changed")
    func renumbered() {
        let own = Route(.request, node: 0, loop: 3, slot: 5, stamp: 6).origin(9)
        // The route on the other gateway and in its answer.
        let there = own.asked(by: 77)
        #expect(Route(there.route)?.node == 77 && there.request == 9)
        #expect(there.asked(by: 0) == own)
        #expect(Origin.none.asked(by: 77) == .none)
        var questions = LinkQuestions()
        questions.add(LinkCodec.Question(number: 1, part: 2, origin: own, type: OnlineQuery.self))
        let question = questions.take(there)
        #expect(question?.origin == own, "the answer of a gateway that knows another number finds nobody")
        #expect(questions.count == 0)
    }
}
