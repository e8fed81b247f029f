import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Walks over tag rows") struct TagWalkTests {
    private static func tag(_ number: Int) -> TagName { TagName(digest: UInt64(number) * 97 + 5, text: "t\(number)") }

    /// Counts in the buckets with devices and in some others.
    private func count(_ harness: DeliveryHarness, _ expression: TagExpression) -> DirectoryReply? {
        var sum = 0
        for first in 0..<3 {
            let reply = harness.ask(.count(expression, first: first, stride: 512), Bucket(0))
            guard case .count(let part)? = reply else { return reply }
            sum += part
        }
        return .count(sum)
    }

    @Test(
        "counts match the tags for random devices and expressions, with young, cold and intermediate rows",
        arguments: 0..<6)
    func model(seed: UInt64) {
        var random = Seeded(state: seed &* 77 &+ 3)
        let harness = DeliveryHarness()
        var owned: [(phone: Phone, tags: Set<Int>)] = []
        for _ in 0..<40 {
            let app = Int.random(in: 0..<5, using: &random) == 0 ? DeliveryHarness.otherApp : DeliveryHarness.app
            let phone = harness.register(app: app)
            let tags = Set((0..<4).filter { _ in Bool.random(using: &random) })
            _ = harness.ask(.replaceTags(phone.cid, tags.sorted().map(Self.tag)), phone.bucket, app: app)
            if app == DeliveryHarness.app { owned.append((phone, tags)) }
            if Int.random(in: 0..<10, using: &random) == 0 { harness.store.cool() }
        }
        for round in 0..<30 {
            if round == 10 { harness.store.cool() }
            if round == 20 {
                harness.store.cool()
                harness.crash()
            }
            var expression = TagExpression()
            for _ in 0..<Int.random(in: 0...3, using: &random) {
                let combination = [TagExpression.Combination.all, .any, .none].randomElement(using: &random)!
                let tags = (0..<5).filter { _ in Bool.random(using: &random) }.map(Self.tag)
                guard !tags.isEmpty else { continue }
                let isTaken = expression.add(combination, tags)
                #expect(isTaken)
            }
            if Int.random(in: 0..<10, using: &random) == 0 { expression.add(Bool.random(using: &random)) }
            let expected = owned.count { expression.isTrue(ofTags: $0.tags.map(Self.tag)) }
            #expect(count(harness, expression) == .count(expected), "seed \(seed), round \(round)")
            if let index = owned.indices.randomElement(using: &random) {
                let number = Int.random(in: 0..<4, using: &random)
                let phone = owned[index].phone
                if owned[index].tags.remove(number) != nil {
                    #expect(harness.ask(.removeTags(phone.cid, [Self.tag(number)]), phone.bucket) == .done)
                } else {
                    #expect(harness.ask(.addTags(phone.cid, [Self.tag(number)]), phone.bucket) == .done)
                    owned[index].tags.insert(number)
                }
            }
        }
    }

    @Test("partitions longer than a page are merged to their ends")
    func pages() {
        let harness = DeliveryHarness()
        let phones = (0..<1_000).map { _ in harness.register() }
        for (index, phone) in phones.enumerated() where index % 2 == 0 {
            harness.send(.addTags(phone.cid, [Self.tag(1)]), to: phone.bucket)
        }
        for (index, phone) in phones.enumerated() where index % 3 == 0 {
            harness.send(.addTags(phone.cid, [Self.tag(2)]), to: phone.bucket)
        }
        harness.flush()
        harness.store.cool()
        var both = TagExpression(), neither = TagExpression(), only = TagExpression()
        _ = both.add(.all, [Self.tag(1), Self.tag(2)])
        _ = neither.add(.none, [Self.tag(1), Self.tag(2)])
        _ = only.add(.any, [Self.tag(1)])
        _ = only.add(.none, [Self.tag(2)])
        #expect(count(harness, TagExpression()) == .count(1_000))
        #expect(count(harness, both) == .count(167))
        #expect(count(harness, neither) == .count(333))
        #expect(count(harness, only) == .count(333))
    }

    @Test("equivalent conditions are merged, and the bound counts the rest")
    func repeatedConditions() {
        var expression = TagExpression()
        var areTaken = true
        for _ in 0..<15_000 {
            areTaken = expression.add(.any, [Self.tag(1), Self.tag(2), Self.tag(3)]) && areTaken
            areTaken = expression.add(.any, [Self.tag(1), Self.tag(2)]) && areTaken
            areTaken = expression.add(.all, [Self.tag(4)]) && areTaken
            areTaken = expression.add(.any, [Self.tag(5)]) && areTaken
            areTaken = expression.add(.none, [Self.tag(6)]) && areTaken
            areTaken = expression.add(.none, [Self.tag(7)]) && areTaken
        }
        #expect(areTaken)
        #expect(expression.byteCount < 200)
        for index in 0..<128 {
            let present = [1, 2, 3, 4, 5, 6, 7].filter { index & 1 << ($0 - 1) != 0 }
            let plain =
                (present.contains(1) || present.contains(2)) && present.contains(4) && present.contains(5)
                && !present.contains(6) && !present.contains(7)
            #expect(expression.isTrue(ofTags: present.map(Self.tag)) == plain, "\(present)")
        }
        var wide = TagExpression()
        var count = 0
        for left in 0..<20 {
            for right in (left + 1)..<20 where wide.add(.any, [Self.tag(left), Self.tag(right)]) { count += 1 }
        }
        #expect(count == TagExpression.groupLimit)
    }

    @Test("a walk stops at its work limit, continues in the next turn, and counts correctly")
    func walksInTurns() {
        var limits = ShardLimits()
        limits.tagWalkWork = 40
        let harness = DeliveryHarness(limits: limits)
        let phones = (0..<300).map { _ in harness.register() }
        for phone in phones { harness.send(.addTags(phone.cid, [Self.tag(1)]), to: phone.bucket) }
        harness.flush()
        var expression = TagExpression()
        _ = expression.add(.any, [Self.tag(1), Self.tag(2)])
        let request = harness.send(.count(expression, first: 0, stride: Bucket.count), to: Bucket(0))
        var turns = 0
        while harness.directoryReplies[request] == nil, turns < 10_000 {
            harness.store.deliverReplies()
            if harness.shard.hasSlicesAtHand {
                turns += 1
                harness.shard.continueWork(now: harness.now)
            }
            harness.drain()
        }
        #expect(harness.directoryReplies[request] == .count(100))
        #expect(turns >= 100 * expression.work / 40 / 2, "\(turns) turns")
    }

    @Test("the loops' shares add up")
    func stride() {
        let harness = DeliveryHarness()
        for _ in 0..<20 { _ = harness.register() }
        var sum = 0
        for first in 0..<3 {
            guard case .count(let part)? = harness.ask(.count(TagExpression(), first: first, stride: 3), Bucket(0))
            else {
                Issue.record("no count")
                return
            }
            sum += part
        }
        #expect(sum == 20)
    }

    @Test("the number of walks is bounded, a failed read ends one, and its place is free again")
    func bounds() {
        var limits = ShardLimits()
        limits.tagWalks = 2
        let harness = DeliveryHarness(limits: limits)
        _ = harness.register()
        let requests = (0..<3).map { _ in
            harness.send(.count(TagExpression(), first: 0, stride: 1), to: Bucket(0))
        }
        #expect(harness.directoryReplies[requests[2]] == .failed)
        harness.flush()
        #expect(
            harness.directoryReplies[requests[0]] == .count(1) && harness.directoryReplies[requests[1]] == .count(1))
        harness.store.readsFailFrom = 0
        #expect(count(harness, TagExpression()) == .failed)
        harness.store.readsFailFrom = .max
        #expect(count(harness, TagExpression()) == .count(1))
    }

    @Test("an expression has at most 63 distinct tags")
    func expressionBound() {
        var expression = TagExpression()
        let isTaken = [
            expression.add(.any, (0..<63).map(Self.tag)), expression.add(.none, (0..<63).map(Self.tag)),
            expression.add(.any, [Self.tag(63)]),
        ]
        #expect(isTaken == [true, true, false])
        #expect(expression.tags.count == 63)
    }

    struct Seeded: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var word = state
            word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
            word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
            return word ^ word >> 31
        }
    }
}
