import Delivery
import TestKit
import Testing
import Wire

@Suite("Random steps of a few devices") struct RandomizedTests {
    private struct Generator: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var mixed = state
            mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
            mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
            return mixed ^ mixed >> 31
        }
    }

    private struct Actor {
        var phone: Phone
        var isConnected = true
        var processed: Set<UInt64> = []
        /// Acks that a sync has made final; these messages must never be sent again.
        var acked: Set<UInt64> = []
        var payloads: [UInt64: String] = [:]
    }

    @Test(
        "accepted = Σ final + pending; no delivery after a synced ack; always in order",
        arguments: 0..<40 as Range<UInt64>)
    func promises(seed: UInt64) throws {
        var random = Generator(state: seed &* 7_919 &+ 1)
        var limits = ShardLimits()
        limits.sequenceBlock = 8
        limits.window = 4
        limits.cachedDeviceCount = 2
        limits.dueJobReadAhead = 6
        limits.alarmBatch = 3
        let harness = DeliveryHarness(limits: limits) {
            $0.queuedMessageLimit = 12
            $0.maxAttempts = 3
            $0.overflowPolicy = seed % 2 == 0 ? .dropOldest : .reject
        }
        var actors = (0..<4).map { Actor(phone: harness.register(token: "t\($0)")) }
        var jobs: [Job] = []
        var published = 0

        func check(_ step: Int) {
            var lastOfSession: [SessionRef: (sequence: UInt64, attempt: UInt32)] = [:]
            for delivery in harness.takeDelivered() {
                guard let index = actors.firstIndex(where: { $0.phone.session == delivery.session }) else { continue }
                if let last = lastOfSession[delivery.session], last.attempt == delivery.attempt {
                    #expect(delivery.sequence > last.sequence, "seed \(seed), step \(step): out of order")
                }
                lastOfSession[delivery.session] = (delivery.sequence, delivery.attempt)
                #expect(
                    !actors[index].acked.contains(delivery.sequence),
                    "seed \(seed), step \(step): \(delivery.sequence) came after its ack was synced")
                if let known = actors[index].payloads[delivery.sequence] {
                    #expect(known == delivery.payload, "seed \(seed), step \(step): a sequence was given twice")
                }
                actors[index].payloads[delivery.sequence] = delivery.payload
                actors[index].processed.insert(delivery.sequence)
            }
            for close in harness.closes {
                if let index = actors.firstIndex(where: { $0.phone.session == close.session }) {
                    actors[index].isConnected = false
                }
            }
            harness.closes.removeAll()
            if let imbalance = harness.imbalance() { Issue.record("seed \(seed), step \(step): \(imbalance)") }
            #expect(harness.store.violations.isEmpty, "seed \(seed), step \(step)")
        }

        for step in 0..<300 {
            let who = Int.random(in: 0..<actors.count, using: &random)
            let phone = actors[who].phone
            switch Int.random(in: 0..<20, using: &random) {
            case 0...6:
                published += 1
                let strategies: [Strategy] = [
                    .liveElseVendor, .liveElseVendor, .vendorOnly, .liveOnly, .vendorElseLive,
                ]
                let times: [Int64] = [7_200_000, 7_200_000, 20_000, 3_000, 0, -1]
                harness.submit(
                    phone, "m\(published)", strategy: strategies.randomElement(using: &random)!,
                    timeToLive: times.randomElement(using: &random)!, vendor: Bool.random(using: &random),
                    badge: .add(1), collapseKey: ["", "", "a", "b"].randomElement(using: &random)!,
                    isBulk: Bool.random(using: &random))
                if Bool.random(using: &random) { harness.flush() }
            case 7...9:
                guard actors[who].isConnected else { break }
                let known = actors[who].processed.sorted()
                guard let upTo = known.randomElement(using: &random) else { break }
                // Only messages sent in this session count. The shard's own count shows whether this one did.
                let before = harness.statistics.ended(.delivered) + harness.statistics.ended(.deliveredOffline)
                harness.acknowledge(phone, 0, ranges: [SequenceRange(first: upTo, last: upTo)])
                let after = harness.statistics.ended(.delivered) + harness.statistics.ended(.deliveredOffline)
                if after > before { actors[who].acked.insert(upTo) }
            case 10:
                if actors[who].isConnected { harness.disconnect(phone, announced: Bool.random(using: &random)) }
                actors[who].isConnected = false
            case 11...12:
                let state = [ApplicationState.foreground, .foreground, .background].randomElement(using: &random)!
                let processed = actors[who].processed
                harness.connect(&actors[who].phone, state: state) {
                    // The client's position as ranges, because the client does not know its longest processed run.
                    let named = processed.sorted().suffix(3)
                    $0.positions = [StreamPosition(ranges: named.map { SequenceRange(first: $0, last: $0) })]
                    $0.opened = []
                }
                if harness.welcomes.last?.session == actors[who].phone.session {
                    actors[who].isConnected = true
                    for sequence in processed.sorted().suffix(3) { actors[who].acked.insert(sequence) }
                }
            case 13:
                if actors[who].isConnected {
                    harness.become(
                        [ApplicationState.foreground, .background].randomElement(using: &random)!, phone)
                }
            case 14: jobs += harness.lease(Int.random(in: 1...5, using: &random), milliseconds: 5_000)
            case 15:
                if let job = jobs.randomElement(using: &random) {
                    harness.settle(
                        job, [.accepted, .retry, .rejected, .unsent].randomElement(using: &random)!, retryAfter: 500)
                }
            case 16:
                harness.flush()
                harness.store.cool { _ in Bool.random(using: &random) }
            case 17:
                if Int.random(in: 0..<4, using: &random) == 0 {
                    harness.flush()
                    check(step)
                    harness.crash()
                    for index in actors.indices { actors[index].isConnected = false }
                }
            case 18: harness.store.failingReads = [harness.store.readCount + 2]
            default: harness.advance(Int64.random(in: 1...12_000, using: &random))
            }
            harness.flush()
            check(step)
        }

        // The faults stop, and every message must end.
        harness.store.failingReads = []
        for _ in 0..<6 { harness.advance(70_000) }
        for _ in 0..<6 { harness.advance(1_500_000) }
        for _ in 0..<10 { harness.advance(60_000) }
        check(.max)
        #expect(
            harness.rowCount(.message) == 0 && harness.rowCount(.vendorMessage) == 0 && harness.rowCount(.job) == 0,
            "seed \(seed): \(harness.rowCount(.message)) messages, \(harness.rowCount(.vendorMessage)) vendor, \(harness.rowCount(.job)) jobs are left"
        )
        #expect(harness.statistics.messagesInMemory == 0 && harness.statistics.jobsInMemory == 0)
        #expect(harness.statistics.waitingCommands == 0)
    }
}
