import TestKit
import Testing
import Wire

@testable import Delivery

/// A restored store: sequences, leases and cursors of the previous history settle nothing.
@Suite("Histories of a store")
struct HistoryTests {
    private static let restored = StoreHistory(id: 0xA5A5, began: 1_700_000_000_000_000)
    private static let restoredAgain = StoreHistory(id: 0x5A5A_0000, began: 1_700_000_100_000_000)

    private static func epoch(_ harness: DeliveryHarness) -> UInt64 {
        harness.welcomes.last?.welcome.queueEpoch ?? 0
    }

    @Test("texts are parsed as they were written, and other texts are refused")
    func texts() {
        for history in [Self.restored, StoreHistory(ofNewStore: .max), StoreHistory(id: 0, began: .max)] {
            #expect(StoreHistory(history.description) == history)
        }
        for text in [
            "", "1:0", "00000000000000a5", "00000000000000a5:", "0000000000000000:0", "00000000000000a5:-1", "renew",
        ] {
            #expect(StoreHistory(text) == nil, "\(text)")
        }
    }

    @Test("a store that was never restored uses the rows' own epochs and numbers, so an upgrade changes none")
    func neverBack() {
        let history = StoreHistory(ofNewStore: 9)
        #expect(!history.hasGoneBack && history.epoch(7) == 7 && history.cursor(3) == 3 && history.number(3) == 3)
    }

    @Test("no history reuses an epoch or a cursor, and each begins later, whatever the clock")
    func successors() {
        var history = StoreHistory(ofNewStore: 9)
        var epochs: Set<UInt64> = [history.epoch(7)]
        for (id, now) in [(UInt64(21), Int64(1_700_000_000_000)), (22, 1_700_000_000_000), (23, 0), (24, -5)] {
            let next = history.successor(id: id, now: now)
            #expect(next.hasGoneBack && next.began > history.began && epochs.insert(next.epoch(7)).inserted)
            #expect(next.number(history.cursor(5)) == nil && next.number(next.cursor(5)) == 5 && next.number(0) == 0)
            history = next
        }
        #expect(StoreHistory(id: 7, began: 1).epoch(7) != 0)
    }

    /// The device's record between the backup and the loss of the store.
    enum Between: CaseIterable { case nothing, restart, eviction, wholeBlock }

    @Test(
        "after a restore every newly accepted message is sent, whatever position the device has",
        arguments: Between.allCases)
    func position(_ between: Between) {
        var limits = ShardLimits()
        if between == .eviction { limits.cachedDeviceCount = 0 }
        let harness = DeliveryHarness(limits: limits)
        var phone = harness.register()
        for _ in 0..<5 { _ = harness.publish(phone) }
        harness.acknowledge(phone, 5)
        let backup = harness.store.backup
        if between == .restart || between == .eviction {
            harness.disconnect(phone)
            harness.advance(3_600_000)
            if between == .restart { harness.crash() }
            harness.connect(&phone)
        }
        for _ in 0..<(between == .wholeBlock ? 1_030 : 3) {
            _ = harness.publish(phone)
            harness.acknowledge(phone, harness.delivered.last?.sequence ?? 0)
        }
        let position = harness.delivered.last?.sequence ?? 0
        let epoch = Self.epoch(harness)

        harness.store.restore(backup)
        harness.crash(history: Self.restored)
        harness.delivered.removeAll()
        let outcomes = (0..<5).map { harness.publish(phone, "after \($0)") }
        #expect(outcomes.allSatisfy { $0.code == .accepted })
        harness.connect(&phone) {
            $0.queueEpoch = epoch
            $0.positions = [StreamPosition(sequence: position)]
        }
        #expect(harness.takeDelivered().map(\.payload) == (0..<5).map { "after \($0)" })
        #expect(Self.epoch(harness) == Self.restored.epoch(7) && Self.epoch(harness) != epoch)
        #expect(harness.imbalance() == nil)
    }

    @Test("messages processed after the backup and pending in it are sent again")
    func repeats() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.disconnect(phone)
        _ = harness.publish(phone, "queued")
        let backup = harness.store.backup
        harness.connect(&phone)
        harness.acknowledge(phone, harness.takeDelivered().last?.sequence ?? 0)
        harness.store.restore(backup)
        harness.crash(history: Self.restored)
        harness.connect(&phone) { $0.positions = [StreamPosition(sequence: 1)] }
        #expect(harness.takeDelivered().map(\.payload) == ["queued"])
    }

    @Test("under the new history's epoch positions count again, and an ordinary restart changes none")
    func goesOn() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.crash()
        harness.connect(&phone)
        #expect(Self.epoch(harness) == 7)
        harness.crash(history: Self.restored)
        harness.connect(&phone)
        let epoch = Self.epoch(harness)
        _ = harness.publish(phone, "one")
        let sequence = harness.takeDelivered().last?.sequence ?? 0
        harness.crash()
        harness.connect(&phone) {
            $0.queueEpoch = epoch
            $0.positions = [StreamPosition(sequence: sequence)]
        }
        #expect(harness.takeDelivered().isEmpty && Self.epoch(harness) == epoch)
        // A second restore: neither earlier epoch counts.
        harness.crash(history: Self.restoredAgain)
        _ = harness.publish(phone, "two")
        for earlier in [7, epoch] {
            harness.connect(&phone) {
                $0.queueEpoch = earlier
                $0.positions = [StreamPosition(sequence: 2_000)]
            }
            #expect(harness.takeDelivered().map(\.payload) == ["two"])
            #expect(![7, epoch].contains(Self.epoch(harness)))
        }
    }

    @Test("a device that registers after a restore has an epoch of that history")
    func registration() {
        let harness = DeliveryHarness()
        harness.crash(history: Self.restored)
        var phone = harness.register()
        let epoch = Self.epoch(harness)
        #expect(epoch == Self.restored.epoch(7))
        // A position above every number of this history still changes the epoch.
        harness.connect(&phone) {
            $0.queueEpoch = epoch
            $0.positions = [StreamPosition(sequence: 5_000)]
        }
        #expect(Self.epoch(harness) == Self.restored.epoch(8))
    }

    @Test("a Hello that was recorded after the backup is refused after the restore")
    func capturedHello() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        let backup = harness.store.backup
        harness.connect(&phone)
        let captured = UInt64(harness.now)
        harness.store.restore(backup)
        harness.crash(history: harness.history.successor(id: 9, now: harness.now))
        harness.connect(&phone) { $0.timestamp = captured }
        #expect(harness.welcomes.count == 2 && harness.closes.last?.code == .clockSkew)
        harness.connect(&phone)
        #expect(harness.welcomes.count == 3)
        // A clock that was far ahead at the restore locks no device out.
        harness.crash(history: harness.history.successor(id: 10, now: harness.now + 86_400_000))
        harness.connect(&phone)
        #expect(harness.welcomes.count == 4)
    }

    @Test("a device that had not reconnected by the backup has one day after the restore")
    func returns() {
        let harness = DeliveryHarness()
        let lifetime = harness.limits.sessionlessDeviceLifetime
        var phone = harness.register()
        let gone = harness.register()
        harness.disconnect(gone)
        let seenAt = harness.now
        let backup = harness.store.backup
        // The device reconnects after the backup, so the restored store lacks that.
        harness.disconnect(phone)
        harness.connect(&phone)
        harness.disconnect(phone)
        harness.letTimePass(lifetime + 3_600_000)
        harness.store.restore(backup)
        harness.crash(history: harness.history.successor(id: 9, now: harness.now))
        harness.store.cool()
        harness.advance(1_000)
        // No device was seen since.
        #expect(harness.status(gone)?.lastSeenAt == seenAt)
        // Another start does not shorten the day.
        harness.advance(lifetime - 3_600_000)
        harness.crash()
        harness.store.cool()
        harness.advance(1_000)
        harness.connect(&phone)
        #expect(harness.closes.isEmpty && harness.welcomes.count == 4)
        #expect(harness.rowCount(.device) == 2)
        harness.advance(3_600_000)
        #expect(harness.publish(gone).code == .unknownDevice)
        #expect(harness.rowCount(.device) == 1 && harness.imbalance() == nil)
    }

    @Test("a history that begins in the future keeps a device that did not reconnect until then")
    func returnsBeforeBeginning() {
        let harness = DeliveryHarness()
        let lifetime = harness.limits.sessionlessDeviceLifetime
        var phone = harness.register()
        harness.disconnect(phone)
        harness.letTimePass(lifetime + 1)
        harness.crash(history: harness.history.successor(id: 9, now: harness.now + 7 * lifetime))
        harness.store.cool()
        for _ in 0..<3 { harness.advance(lifetime) }
        harness.connect(&phone)
        #expect(harness.closes.isEmpty && harness.welcomes.count == 2)
    }

    @Test("a device whose day ended while the gateway was down has an hour to reconnect")
    func returnsAfterOutage() {
        let harness = DeliveryHarness()
        let lifetime = harness.limits.sessionlessDeviceLifetime
        var phone = harness.register()
        let gone = harness.register()
        for device in [phone, gone] { harness.disconnect(device) }
        harness.letTimePass(lifetime - 60_000)
        harness.letTimePass(120_000)
        harness.crash()
        harness.store.cool()
        harness.advance(1_800_000)
        harness.connect(&phone)
        #expect(harness.closes.isEmpty && harness.rowCount(.device) == 2)
        harness.advance(1_900_000)
        harness.store.cool()
        harness.advance(1_000)
        #expect(harness.publish(gone).code == .unknownDevice)
        #expect(harness.rowCount(.device) == 1)
    }

    @Test("a position among broadcasts of another history settles none of this one")
    func broadcasts() {
        let world = BroadcastHarness()
        let harness = world.harness
        var phone = harness.register()
        world.send("kept")
        world.acknowledge(phone, 1)
        let backup = harness.store.backup
        for text in ["lost 2", "lost 3"] { world.send(text) }
        world.acknowledge(phone, 3)
        harness.disconnect(phone)
        _ = harness.takeDelivered()
        harness.store.restore(backup)
        harness.crash(history: Self.restored)
        let records = ["after 2", "after 3", "after 4"].map { world.send($0) }
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 1, sequence: 3)] }
        let delivered = harness.takeDelivered()
        #expect(delivered.map(\.payload) == ["after 2", "after 3", "after 4"])
        world.acknowledge(phone, delivered.last?.sequence ?? 0)
        #expect(records.allSatisfy { world.totals($0).ended == 1 })
    }

    @Test("after a loss of only the log, no device skips a new broadcast with the number of a lost one")
    func lostNumbers() {
        let world = BroadcastHarness()
        let harness = world.harness
        var phone = harness.register()
        world.send("kept")
        let backup = harness.store.backup
        for text in ["lost 2", "lost 3"] { world.send(text) }
        world.acknowledge(phone, 3)
        harness.disconnect(phone)
        _ = harness.takeDelivered()
        harness.store.restore(backup, tables: [.broadcast, .task])
        harness.crash(history: Self.restored)
        let records = ["after 2", "after 3"].map { world.send($0) }
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.payload) == ["after 2", "after 3"])
        world.send("after 4")
        #expect(harness.takeDelivered().map(\.payload) == ["after 4"])
        #expect(records.allSatisfy { world.totals($0).pending == 1 })
    }

    @Test(
        "a device that registered between two losses skips nothing, in any order of steps",
        arguments: [1, 240])
    func twoLosses(minutes: Int64) {
        let world = BroadcastHarness()
        let harness = world.harness
        world.send("kept")
        var history = harness.history.successor(id: 9, now: harness.now)
        harness.crash(history: history)
        var phone = harness.register()
        harness.disconnect(phone)
        history = history.successor(id: 10, now: harness.now + minutes * 60_000 - 60_000)
        harness.crash(history: history)
        world.send("after")
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.payload) == ["after"])
    }

    @Test(
        "a history that begins while devices are connected keeps their sessions, and their next Hello has an old epoch"
    )
    func whileConnected() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        _ = harness.publish(phone, "before")
        harness.shard.begin(Self.restored)
        harness.acknowledge(phone, 1)
        #expect(harness.rowCount(.message) == 0)
        _ = harness.publish(phone, "after")
        _ = harness.takeDelivered()
        harness.connect(&phone) { $0.positions = [StreamPosition(sequence: 2)] }
        #expect(harness.takeDelivered().map(\.payload) == ["after"])
        #expect(Self.epoch(harness) == Self.restored.epoch(7))
    }

    // MARK: Vendor channel, requests, receipts

    @Test("a lease counts only if the store's rows have it: one from after the backup settles nothing")
    func leases() throws {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        for text in ["one", "two"] { _ = harness.publish(phone, text) }
        let before = try #require(harness.lease(1).first)
        let backup = harness.store.backup
        let after = try #require(harness.lease(1).first)
        #expect(after.message != before.message)
        harness.store.restore(backup)
        harness.crash(history: Self.restored)
        harness.advance(1_000)
        let verdict = harness.settle(after, .rejected, reason: "BadDeviceToken")
        #expect([.stale, .unknownJob].contains(verdict))
        #expect(harness.settle(before, .accepted) == .recorded)
        // The other alert is sent once more.
        #expect(harness.lease(10).map(\.message) == [after.message])
    }

    @Test(
        "a request from after the backup is accepted again under a new msgId; an earlier one keeps its result"
    )
    func requests() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let first = harness.publish(phone, requestKey: (1, 1), requestDigest: 5, followsRequest: true)
        let backup = harness.store.backup
        let lost = harness.publish(phone, requestKey: (1, 2), requestDigest: 5, followsRequest: true)
        harness.store.restore(backup)
        harness.crash(history: Self.restored)
        harness.advance(1)
        let again = harness.publish(phone, requestKey: (1, 1), requestDigest: 5, followsRequest: true)
        #expect(again.message == first.message)
        let anew = harness.publish(phone, requestKey: (1, 2), requestDigest: 5, followsRequest: true)
        #expect(anew.code == .accepted && anew.message != lost.message)
        // A receipt for the lost message does not count for the new one.
        let lostID = lost.message, newID = anew.message
        let answer = harness.receipt(
            phone, [lostID, newID].map { ReceiptEvent(kind: .shown, message: $0) })
        #expect(answer == .taken([.ignored, .recorded]))
    }

    // MARK: Feeds

    private static let feed = FeedName(DeliveryHarness.app, .upstream)

    private static func feeds() -> DeliveryHarness {
        DeliveryHarness { ($0.upstream, $0.events) = (FeedLimits(), FeedLimits()) }
    }

    private static func ask(_ harness: DeliveryHarness, _ command: FeedCommand) -> FeedAnswer? { harness.ask(command) }

    private static func send(_ harness: DeliveryHarness, _ numbers: ClosedRange<UInt32>, _ text: String) {
        for number in numbers {
            let message = UpstreamMessage(
                app: DeliveryHarness.app, cid: DeviceID(high: 7, low: 8), request: number,
                payload: Array("\(text) \(number)".utf8))
            #expect(ask(harness, .upstream(message)) == .taken)
        }
    }

    private static func page(_ harness: DeliveryHarness, after: UInt64?) -> FeedPage? {
        guard case .page(let page)? = ask(harness, .read(FeedRead(feed, after: after, limit: 100, waitMilliseconds: 0)))
        else { return nil }
        return page
    }

    @Test("a cursor of another history is a conflict, at a read and at an ack, even within the existing range")
    func cursors() {
        let harness = Self.feeds()
        Self.send(harness, 1...2, "before")
        let backup = harness.store.backup
        Self.send(harness, 3...4, "between")
        let kept = Self.page(harness, after: 2)?.next ?? 0
        #expect(kept == 4)
        harness.store.restore(backup)
        harness.crash(history: Self.restored)
        Self.send(harness, 5...8, "after")
        for cursor in [1, 2, kept, 5] {
            #expect(Self.ask(harness, .acknowledge(Self.feed, upTo: cursor)) == .otherHistory)
            let read = FeedRead(Self.feed, after: cursor, limit: 9, waitMilliseconds: 0)
            #expect(Self.ask(harness, .read(read)) == .otherHistory)
        }
        // Without a cursor, and from the beginning, all stored items are returned.
        for after in [nil, 0] as [UInt64?] {
            let page = Self.page(harness, after: after)
            let texts = page?.items.map { String(decoding: $0.payload, as: UTF8.self) }
            #expect(texts == ["before 1", "before 2", "after 5", "after 6", "after 7", "after 8"] && page?.missed == 0)
            #expect(page?.first == Self.restored.began + 1)
        }
    }

    @Test("cursors of the new history work as before: pages, an empty page, acks, and one above the end")
    func newCursors() {
        let harness = Self.feeds()
        harness.crash(history: Self.restored)
        let empty = Self.page(harness, after: nil)
        #expect(empty?.isEmpty == true && Self.page(harness, after: empty?.next)?.isEmpty == true)
        Self.send(harness, 1...3, "up")
        let page = Self.page(harness, after: empty?.next)
        #expect(page?.items.count == 3 && page?.state.last == page?.next)
        let next = page?.next ?? 0
        #expect(Self.ask(harness, .acknowledge(Self.feed, upTo: next + 1)) == .beyond(next))
        guard case .acknowledged(let state)? = Self.ask(harness, .acknowledge(Self.feed, upTo: next)) else {
            Issue.record("no acknowledgement")
            return
        }
        #expect(state.acked == next)
        harness.crash()
        #expect(Self.page(harness, after: nil)?.first == next + 1)
        // After the next restore cursors of this history are old, too.
        harness.crash(history: Self.restoredAgain)
        #expect(Self.ask(harness, .acknowledge(Self.feed, upTo: next)) == .otherHistory)
    }
}
