import TestKit
import Testing
import Wire

@testable import Delivery

/// Names, blacklist and badge in one bucket; operations over several buckets are in DirectoryTests.
@Suite("Directory steps") struct DirectoryStepTests {
    static let alice = AliasName(high: 0x123 << 52 | 1, low: 1, text: "alice")
    static let bob = AliasName(high: 0x456 << 52 | 2, low: 2, text: "bob")
    static func tag(_ text: String) -> TagName {
        TagName(digest: UInt64(text.utf8.reduce(7) { $0 * 31 + Int($1) }), text: text)
    }

    private func detail(_ harness: DeliveryHarness, _ phone: Phone) -> DeviceDetail? {
        if case .device(let detail)? = harness.ask(.describe(phone.cid), phone.bucket) { return detail }
        return nil
    }

    private func bind(_ harness: DeliveryHarness, _ phone: Phone, _ name: AliasName) -> DirectoryReply? {
        guard case .reserved(let stamp)? = harness.ask(.reserve(name, phone.cid, phone.bucket), name.bucket) else {
            return nil
        }
        return harness.ask(.setAlias(phone.cid, name, stamp: stamp), phone.bucket)
    }

    private func tagRows(_ harness: DeliveryHarness) -> [StoreKey] {
        var keys: [StoreKey] = []
        harness.store.loadAll(table: .tag) { keys.append($0.key) }
        return keys
    }

    @Test("a name, a tag, the blacklist and the badge survive a crash")
    func survives() throws {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aabbccddeeff")
        #expect(bind(harness, phone, Self.alice) == .aliasSet(previous: nil, stamp: 0))
        #expect(harness.ask(.replaceTags(phone.cid, [Self.tag("vip"), Self.tag("广州")]), phone.bucket) == .done)
        #expect(harness.ask(.setBlacklisted(phone.cid, true), phone.bucket) == .done)
        #expect(harness.ask(.setBadge(phone.cid, .set(7)), phone.bucket) == .done)
        for _ in 0..<2 {
            let found = try #require(detail(harness, phone))
            #expect(found.alias()?.text == "alice")
            #expect(found.tags.map(\.text) == ["vip", "广州"])
            #expect(found.isBlacklisted)
            #expect(found.badge == 7)
            #expect(found.token == "aabbccddeeff" && found.topic == "com.example.app")
            guard case .members(let members)? = harness.ask(.members(Self.alice), Self.alice.bucket) else {
                Issue.record("no members")
                return
            }
            #expect(members.map(\.cid) == [phone.cid])
            harness.disconnect(phone)
            harness.store.cool()
            harness.crash()
        }
    }

    @Test("no step is answered before it is durable")
    func durableFirst() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let steps: [(DirectoryStep, Bucket)] = [
            (.reserve(Self.alice, phone.cid, phone.bucket), Self.alice.bucket),
            (.setAlias(phone.cid, Self.alice, stamp: harness.now), phone.bucket),
            (.addTags(phone.cid, [Self.tag("a")]), phone.bucket),
            (.removeTags(phone.cid, [Self.tag("a")]), phone.bucket),
            (.setBlacklisted(phone.cid, true), phone.bucket), (.setBadge(phone.cid, .add(2)), phone.bucket),
            (.describe(phone.cid), phone.bucket), (.members(Self.alice), Self.alice.bucket),
            (.clearAlias(phone.cid, Self.alice, stamp: 0), phone.bucket),
        ]
        let requests = steps.map { harness.send($0.0, to: $0.1) }
        #expect(harness.directoryReplies.isEmpty)
        harness.flush()
        for request in requests { #expect(harness.directoryReplies[request] != nil) }
    }

    @Test("a missing device and another app's device are unknown; a full store fails")
    func unknown() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        for step in [
            DirectoryStep.setAlias(phone.cid, Self.alice, stamp: harness.now), .holds(phone.cid, Self.alice, stamp: 0),
            .clearAlias(phone.cid, Self.alice, stamp: 0), .replaceTags(phone.cid, []),
            .addTags(phone.cid, [Self.tag("a")]),
            .removeTags(phone.cid, [Self.tag("a")]), .setBlacklisted(phone.cid, true), .setBadge(phone.cid, .set(1)),
            .describe(phone.cid),
        ] {
            #expect(harness.ask(step, phone.bucket, app: DeliveryHarness.otherApp) == .unknown)
        }
        let nobody = DeviceID(high: 9, low: 9)
        #expect(harness.ask(.describe(nobody), Bucket(1)) == .unknown)
        #expect(harness.statistics.deviceSlots == 1)
        harness.store.acceptsWrites = false
        #expect(harness.ask(.setBadge(phone.cid, .set(1)), phone.bucket) == .failed)
        #expect(harness.ask(.reserve(Self.alice, phone.cid, phone.bucket), Self.alice.bucket) == .failed)
        #expect(detail(harness, phone)?.badge == 0)
    }

    // MARK: Aliases

    @Test("an alias names a bounded number of devices; a second reservation of one takes no place")
    func full() {
        let harness = DeliveryHarness()
        let phones = (0..<11).map { _ in harness.register() }
        for phone in phones.prefix(10) {
            #expect(bind(harness, phone, Self.alice) == .aliasSet(previous: nil, stamp: 0))
        }
        guard case .full(let entries)? = harness.ask(.reserve(Self.alice, phones[10].cid, Bucket(1)), Self.alice.bucket)
        else {
            Issue.record("not full")
            return
        }
        #expect(entries.map(\.cid) == phones.prefix(10).map(\.cid))
        guard case .reserved? = harness.ask(.reserve(Self.alice, phones[3].cid, Bucket(0)), Self.alice.bucket) else {
            Issue.record("a device that is in already was refused")
            return
        }
    }

    @Test("a release does not undo a later reservation, and an empty row is removed")
    func release() throws {
        let harness = DeliveryHarness()
        let phone = harness.register()
        func reserve() throws -> AliasEntry {
            guard
                case .reserved(let stamp)? = harness.ask(
                    .reserve(Self.alice, phone.cid, phone.bucket), Self.alice.bucket)
            else { throw Failure() }
            return AliasEntry(cid: phone.cid, bucket: phone.bucket, stamp: stamp)
        }
        let first = try reserve()
        let second = try reserve()
        #expect(second.stamp > first.stamp)
        #expect(harness.ask(.release(Self.alice, [first]), Self.alice.bucket) == .done)
        #expect(harness.ask(.members(Self.alice), Self.alice.bucket) == .members([second]))
        #expect(harness.ask(.release(Self.alice, [second]), Self.alice.bucket) == .done)
        #expect(harness.ask(.members(Self.alice), Self.alice.bucket) == .members([]))
        #expect(try reserve().stamp > second.stamp)
    }

    @Test("a reservation cannot be used after its expiry, and is stale only then")
    func late() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let stamp = harness.now
        #expect(harness.ask(.holds(phone.cid, Self.alice, stamp: stamp), phone.bucket) == .notHeld(isStale: false))
        harness.advance(30_000)
        #expect(harness.ask(.holds(phone.cid, Self.alice, stamp: stamp), phone.bucket) == .notHeld(isStale: false))
        harness.advance(1)
        #expect(harness.ask(.setAlias(phone.cid, Self.alice, stamp: stamp), phone.bucket) == .late)
        #expect(harness.ask(.holds(phone.cid, Self.alice, stamp: stamp), phone.bucket) == .notHeld(isStale: true))
    }

    @Test("a reservation that was released by a later step stays unusable, also after the device was evicted")
    func overtaken() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let stamp = harness.now
        func set(_ name: AliasName, _ stamp: GatewayTime) -> DirectoryReply? {
            harness.ask(.setAlias(phone.cid, name, stamp: stamp), phone.bucket)
        }
        #expect(set(Self.alice, stamp + 2) == .aliasSet(previous: nil, stamp: 0))
        #expect(set(Self.alice, stamp + 1) == .aliasSet(previous: nil, stamp: 0))
        #expect(
            harness.ask(.clearAlias(phone.cid, Self.alice, stamp: 0), phone.bucket) == .aliasCleared(stamp: stamp + 2))
        harness.disconnect(phone)
        harness.store.cool()
        harness.crash()
        #expect(set(Self.alice, stamp + 1) == .overtaken)
        #expect(set(Self.alice, stamp + 2) == .overtaken)
        #expect(set(Self.bob, stamp) == .aliasSet(previous: nil, stamp: 0))
        #expect(set(Self.alice, stamp + 3) == .aliasSet(previous: Self.bob, stamp: stamp))
        // With more changes than are remembered, steps are refused and not lost.
        for number in 0..<20 {
            let name = AliasName(high: 5, low: UInt64(100 + number), text: "x")
            guard case .aliasSet? = set(name, stamp + 10 + Int64(number)) else {
                Issue.record("not bound")
                return
            }
        }
        #expect(set(AliasName(high: 5, low: 100, text: "x"), stamp + 10) == .overtaken)
        #expect(set(AliasName(high: 5, low: 100, text: "x"), stamp + 100) != .overtaken)
    }

    @Test("a device has one alias; the previous one is returned for its release")
    func oneAlias() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        _ = bind(harness, phone, Self.alice)
        guard case .aliasSet(let previous, let stamp)? = bind(harness, phone, Self.bob) else {
            Issue.record("not bound")
            return
        }
        #expect(previous == Self.alice && stamp > 0)
        #expect(harness.ask(.holds(phone.cid, Self.alice, stamp: stamp), phone.bucket) == .notHeld(isStale: false))
        #expect(harness.ask(.holds(phone.cid, Self.bob, stamp: 0), phone.bucket) == .held)
        // Bound again, the alias has no predecessor.
        guard case .aliasSet(nil, _)? = bind(harness, phone, Self.bob) else {
            Issue.record("its own alias is to be released")
            return
        }
        #expect(harness.ask(.clearAlias(phone.cid, Self.alice, stamp: 0), phone.bucket) == .notHeld(isStale: true))
        #expect(detail(harness, phone)?.alias() == Self.bob)
    }

    @Test("a device has one alias of each type, up to a bound, and its row keeps them apart")
    func typedAliases() throws {
        let harness = DeliveryHarness()
        let phone = harness.register()
        func name(_ type: UInt64, _ number: UInt64) -> AliasName {
            AliasName(high: type << 52 | number, low: type << 8 | number, type: type, text: "t\(type)_\(number)")
        }
        _ = bind(harness, phone, Self.alice)
        for type in 1...UInt64(Limits.aliasesPerDevice - 1) {
            #expect(bind(harness, phone, name(type, 1)) == .aliasSet(previous: nil, stamp: 0))
        }
        #expect(bind(harness, phone, name(99, 1)) == .tooMany)
        // Only an alias of the same type makes room.
        guard case .aliasSet(name(2, 1)?, _)? = bind(harness, phone, name(2, 2)) else {
            Issue.record("another alias was given up")
            return
        }
        harness.disconnect(phone)
        harness.store.cool()
        harness.crash()
        let found = try #require(detail(harness, phone))
        #expect(found.aliases.count == Limits.aliasesPerDevice && found.alias() == Self.alice)
        #expect(found.alias(ofType: 2)?.text == "t2_2" && found.alias(ofType: 99) == nil)
        #expect(
            harness.ask(.holds(phone.cid, name(2, 1), stamp: harness.now), phone.bucket) == .notHeld(isStale: false))
        guard case .aliasCleared? = harness.ask(.clearAlias(phone.cid, name(3, 1), stamp: 0), phone.bucket) else {
            Issue.record("not cleared")
            return
        }
        #expect(try #require(detail(harness, phone)).aliases.count == Limits.aliasesPerDevice - 1)
    }

    @Test("commands for one alias keep their order while its row is read; a failed read fails them all")
    func coldAlias() {
        let harness = DeliveryHarness()
        let phones = (0..<3).map { _ in harness.register() }
        _ = bind(harness, phones[0], Self.alice)
        harness.store.cool()
        harness.crash()
        let second = harness.send(.reserve(Self.alice, phones[1].cid, phones[1].bucket), to: Self.alice.bucket)
        let third = harness.send(.reserve(Self.alice, phones[2].cid, phones[2].bucket), to: Self.alice.bucket)
        let list = harness.send(.members(Self.alice), to: Self.alice.bucket)
        harness.flush()
        guard case .reserved(let earlier)? = harness.directoryReplies[second],
            case .reserved(let later)? = harness.directoryReplies[third],
            case .members(let members)? = harness.directoryReplies[list]
        else {
            Issue.record("not answered")
            return
        }
        #expect(earlier < later)
        #expect(members.map(\.cid) == phones.map(\.cid))
        #expect(harness.statistics.waitingCommands == 0)
        harness.store.cool()
        harness.crash()
        harness.store.readsFailFrom = 0
        #expect(harness.ask(.members(Self.alice), Self.alice.bucket) == .failed)
    }

    // MARK: Tags

    @Test("tag rows follow the device's tags in the same batch, and the roster has all devices")
    func tagRows() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let other = harness.register()
        func digests(_ phone: Phone) -> [UInt64] {
            tagRows(harness).filter { $0.item == phone.cid.low }.map(\.ownerLow).sorted()
        }
        #expect(digests(phone) == [0] && digests(other) == [0])
        #expect(harness.ask(.replaceTags(phone.cid, ["a", "b", "c"].map(Self.tag)), phone.bucket) == .done)
        #expect(digests(phone) == [0] + ["a", "b", "c"].map { Self.tag($0).digest }.sorted())
        #expect(harness.ask(.replaceTags(phone.cid, ["c", "d"].map(Self.tag)), phone.bucket) == .done)
        #expect(digests(phone) == [0] + ["c", "d"].map { Self.tag($0).digest }.sorted())
        #expect(harness.ask(.addTags(phone.cid, [Self.tag("e")]), phone.bucket) == .done)
        #expect(harness.ask(.addTags(phone.cid, [Self.tag("e")]), phone.bucket) == .done)
        #expect(harness.ask(.removeTags(phone.cid, [Self.tag("c")]), phone.bucket) == .done)
        #expect(harness.ask(.removeTags(phone.cid, [Self.tag("never")]), phone.bucket) == .done)
        #expect(detail(harness, phone)?.tags.map(\.text) == ["d", "e"])
        #expect(digests(phone) == [0] + ["d", "e"].map { Self.tag($0).digest }.sorted())
        #expect(digests(other) == [0])
    }

    @Test("the number of a device's tags, their characters and their replacements a day are bounded")
    func tagBounds() {
        var limits = ShardLimits()
        (limits.tagsPerDevice, limits.tagCharactersPerDevice, limits.tagReplacementsPerDay) = (2, 5, 2)
        let harness = DeliveryHarness(limits: limits, now: 1_795_000_000_000 / 86_400_000 * 86_400_000)
        var phone = harness.register()
        // A cid that never reconnected would be removed after the day that passes here.
        harness.disconnect(phone)
        harness.connect(&phone)
        #expect(harness.ask(.replaceTags(phone.cid, ["a", "b", "c"].map(Self.tag)), phone.bucket) == .tooMany)
        #expect(harness.ask(.replaceTags(phone.cid, ["abc", "def"].map(Self.tag)), phone.bucket) == .tooMany)
        #expect(harness.ask(.replaceTags(phone.cid, ["广州市", "ab"].map(Self.tag)), phone.bucket) == .done)
        #expect(harness.ask(.addTags(phone.cid, [Self.tag("c")]), phone.bucket) == .tooMany)
        #expect(harness.ask(.replaceTags(phone.cid, ["a"].map(Self.tag)), phone.bucket) == .done)
        #expect(harness.ask(.addTags(phone.cid, [Self.tag("bcdef")]), phone.bucket) == .tooMany)
        #expect(harness.ask(.replaceTags(phone.cid, []), phone.bucket) == .tooOften)
        harness.disconnect(phone)
        harness.crash()
        #expect(harness.ask(.replaceTags(phone.cid, []), phone.bucket) == .tooOften)
        harness.advance(86_400_000)
        #expect(harness.ask(.replaceTags(phone.cid, []), phone.bucket) == .done)
        #expect(detail(harness, phone)?.tags == [])
    }

    @Test("a removed cid leaves the roster and its tags")
    func collected() {
        var limits = ShardLimits()
        limits.sessionlessDeviceLifetime = 60_000
        let harness = DeliveryHarness(limits: limits)
        let phone = harness.register()
        _ = harness.ask(.addTags(phone.cid, [Self.tag("a")]), phone.bucket)
        #expect(tagRows(harness).count == 2)
        harness.disconnect(phone)
        harness.store.cool()
        harness.advance(120_000)
        #expect(harness.ask(.describe(phone.cid), phone.bucket) == .unknown)
        #expect(tagRows(harness).isEmpty)
    }

    // MARK: Blacklist, inactivity, badge

    @Test("a blacklisted device gets no message, and its queue stays until it is allowed again")
    func blacklist() {
        let harness = DeliveryHarness()
        let phone = harness.register(state: .background, token: "aa")
        let queued = harness.publish(phone)
        #expect(harness.hasDueJobs)
        #expect(harness.ask(.setBlacklisted(phone.cid, true), phone.bucket) == .done)
        let ignored = harness.publish(phone)
        #expect(ignored.code == .ignored && ignored.message.isNone)
        #expect(harness.lease().isEmpty)
        var update = DeviceUpdate()
        update.applicationState = .foreground
        harness.shard.update(phone.session, update, now: harness.now)
        harness.flush()
        #expect(harness.delivered.isEmpty)
        #expect(detail(harness, phone)?.isReachable == false)
        #expect(harness.ask(.setBlacklisted(phone.cid, false), phone.bucket) == .done)
        #expect(harness.delivered.map(\.message) == [queued.message])
        #expect(harness.statistics.pending == 1)
        #expect(harness.publish(phone).code == .accepted)
    }

    @Test("a blacklisted device stays blacklisted after a crash and a reconnect")
    func blacklistSurvives() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        let queued = harness.publish(phone)
        _ = harness.ask(.setBlacklisted(phone.cid, true), phone.bucket)
        harness.store.cool()
        harness.crash()
        harness.connect(&phone)
        #expect(harness.publish(phone).code == .ignored)
        #expect(harness.delivered.isEmpty)
        #expect(harness.lease().isEmpty)
        harness.advance(7_200_000)
        #expect(harness.finalState(queued.message) == .expired)
    }

    @Test("a device not seen for too long gets nothing; a connected one is seen")
    func inactive() {
        var limits = ShardLimits()
        limits.inactiveDeviceLifetime = 10_000_000
        let harness = DeliveryHarness(limits: limits)
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.connect(&phone)
        harness.disconnect(phone)
        harness.advance(10_000_000)
        #expect(harness.publish(phone).code == .accepted)
        harness.advance(10)
        #expect(harness.publish(phone).code == .ignored)
        harness.connect(&phone)
        #expect(harness.publish(phone).code == .accepted)
    }

    @Test("the badge is set, raised and lowered within zero and its maximum")
    func badge() {
        let harness = DeliveryHarness()
        let phone = harness.register(badge: 3)
        let steps: [(BadgeChange, Int32)] = [
            (.add(2), 5), (.add(-4), 1), (.add(-4), 0), (.set(9), 9), (.set(-1), 0), (.set(.max), .max),
            (.add(1), .max),
        ]
        for (change, expected) in steps {
            #expect(harness.ask(.setBadge(phone.cid, change), phone.bucket) == .done)
            #expect(detail(harness, phone)?.badge == expected)
        }
    }

    private struct Failure: Error {}
}
