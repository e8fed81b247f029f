import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Events before they reach their feed")
struct EventTests {
    private static let share = LoopShare(index: 0, count: 1)

    private static func harness(_ change: (inout FeedLimits) -> Void = { _ in }) -> DeliveryHarness {
        var limits = FeedLimits()
        change(&limits)
        let harness = DeliveryHarness { $0.events = limits }
        sweep(harness)
        return harness
    }

    /// Lets the sweep pass all buckets and returns the events it finds.
    @discardableResult
    private static func sweep(_ harness: DeliveryHarness) -> [FeedItem] {
        var found: [FeedItem] = []
        for _ in 0..<300 { found += take(harness) }
        return found
    }

    /// Takes events as the gateway does several times a second.
    private static func take(_ harness: DeliveryHarness, isTold: Bool = true) -> [FeedItem] {
        let batches = harness.shard.takeEvents(share, now: harness.now)
        harness.flush()
        for batch in batches { harness.shard.eventsTold(batch, isTold: isTold, now: harness.now) }
        harness.flush()
        return batches.flatMap(\.items)
    }

    private static func all(_ harness: DeliveryHarness) -> [FeedItem] { (0..<4).flatMap { _ in take(harness) } }

    @Test("connects, final states and disconnects are reported in order, each once, and their rows are removed")
    func life() {
        let harness = Self.harness()
        let phone = harness.register()
        let outcome = harness.publish(phone, "1")
        harness.acknowledge(phone, 1)
        harness.disconnect(phone)
        let items = Self.all(harness)
        #expect(items.map(\.kind) == [.online, .delivered, .offline])
        #expect(items.allSatisfy { $0.cid == phone.cid })
        #expect(items[1].message == outcome.message && items[1].task == outcome.task)
        #expect(harness.rowCount(.event) == 0 && Self.all(harness).isEmpty)
    }

    @Test("each final state has its kind")
    func kinds() {
        for state in FinalState.allCases {
            #expect(FeedItem.Kind(rawValue: state.rawValue).map { "\($0)" } == "\(state)")
        }
    }

    @Test("no event is reported before it is on disk")
    func durability() {
        let harness = Self.harness()
        let phone = harness.register()
        _ = Self.all(harness)
        _ = harness.publish(phone, "1")
        harness.shard.acknowledge(
            phone.session, cumulative: 1, ranges: UnsafeBufferPointer(start: nil, count: 0), now: harness.now)
        harness.drain()
        for _ in 0..<3 {
            #expect(harness.shard.takeEvents(Self.share, now: harness.now).allSatisfy { $0.items.isEmpty })
        }
        harness.flush()
        #expect(Self.all(harness).map(\.kind) == [.delivered])
    }

    @Test("the vendor's acceptance, what the user did, and a bad token are events of their message")
    func ofTheAlert() throws {
        let harness = Self.harness()
        harness.furtherContents = [.fcm]
        let phone = harness.register(state: .background)
        harness.update(phone) { $0.tokens = [VendorToken(channel: .vivo, kind: .alert, token: "v")] }
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        _ = Self.all(harness)
        let staying = harness.publish(phone)
        let leaving = harness.publish(phone, strategy: .vendorOnly)
        let first = harness.lease(channel: .vivo)
        for job in first { harness.settle(job, .accepted, vendorID: "id-\(job.message == staying.message)") }
        let alerts = Self.all(harness).filter { $0.kind == .alerted }
        #expect(Set(alerts.map(\.message)) == [staying.message, leaving.message])
        #expect(alerts.allSatisfy { $0.detail == .channel(.vivo) })
        #expect(
            alerts.first { $0.message == staying.message }.map { String(decoding: $0.payload, as: UTF8.self) }
                == "id-true")
        func take(_ kind: VendorReceipt.Kind) {
            let receipt = VendorReceipt(message: leaving.message, kind: kind, token: "v", at: 0)
            for _ in 0..<2 { _ = harness.ask(TakeReceipts(receipts: [receipt], apps: nil)) }
        }
        for kind in [.delivered, .clicked, .badToken] as [VendorReceipt.Kind] { take(kind) }
        let reported = Self.all(harness).filter { $0.kind.rawValue > 33 }
        #expect(reported.map(\.kind) == [.shown, .clicked, .tokenQuarantined])
        #expect(reported.map(\.detail) == [.ofAlert(true, by: .vivo), .ofAlert(true, by: .vivo), .channel(.vivo)])
        #expect(reported.allSatisfy { $0.message == leaving.message && $0.cid == phone.cid })
    }

    /// Sends a message with a custom callback to a device with a token of vivo, and reports everything about it.
    private static func wholeLife(_ harness: DeliveryHarness, crashes: Bool) throws -> MessageID {
        func pass() {
            guard crashes else { return harness.store.cool() }
            harness.crash()
            // A process numbers its events from its start.
            harness.letTimePass(1)
        }
        harness.furtherContents = [.fcm]
        let phone = harness.register(state: .background)
        harness.update(phone) { $0.tokens = [VendorToken(channel: .vivo, kind: .alert, token: "v")] }
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        harness.customCallback = "order-7"
        let outcome = harness.publish(phone, strategy: .vendorOnly)
        harness.customCallback = ""
        pass()
        harness.advance(1)
        harness.settle(try #require(harness.lease(channel: .vivo).first), .accepted, vendorID: "id")
        for kind in [.delivered, .clicked, .badToken] as [VendorReceipt.Kind] {
            pass()
            let receipt = VendorReceipt(message: outcome.message, kind: kind, token: "v", at: 0)
            _ = harness.ask(TakeReceipts(receipts: [receipt], apps: nil))
        }
        return outcome.message
    }

    @Test("each event of a message has its custom callback, from memory and from disk", arguments: [false, true])
    func callback(crashes: Bool) throws {
        let harness = Self.harness()
        let message = try Self.wholeLife(harness, crashes: crashes)
        let items = Self.sweep(harness)
        let own = items.filter { $0.message == message }
        #expect(own.map(\.kind) == [.alerted, .handedOff, .shown, .clicked, .tokenQuarantined])
        for item in items {
            let expected = item.message == message ? Array("order-7".utf8) : []
            #expect(item.customCallback == expected && !item.awaitsCallback)
        }
        #expect(harness.trace(message)?.customCallback == "order-7")
        #expect(harness.rowCount(.event) == 0 && harness.rowCount(.taskCallback) == 1)
        // Its row is removed when no report can follow.
        harness.store.cool()
        harness.advance(7_200_000 + 3 * 86_400_000)
        #expect(harness.rowCount(.taskCallback) == 0 && harness.store.violations.isEmpty)
    }

    @Test("a message delivered live has its custom callback, and one without it stores nothing more")
    func liveCallback() {
        let harness = Self.harness()
        let phone = harness.register()
        let plain = harness.publish(phone, "1")
        #expect(harness.rowCount(.taskCallback) == 0)
        harness.customCallback = "c"
        let marked = harness.publish(phone, "2")
        harness.acknowledge(phone, 2)
        let ended = Self.all(harness).filter { $0.kind == .delivered }
        #expect(ended.map(\.message) == [plain.message, marked.message])
        #expect(ended.map(\.customCallback) == [[], Array("c".utf8)])
        // A message that ends in the batch that accepts it.
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        let expired = harness.publish(phone, "3", timeToLive: 0, vendor: false)
        let last = Self.all(harness).first { $0.message == expired.message }
        #expect(last?.kind == .expired && last?.customCallback == Array("c".utf8))
    }

    @Test("events whose custom callback cannot be read wait in order, with a backoff, and are not sent without it")
    func callbackReadFails() throws {
        let harness = Self.harness()
        let phone = harness.register()
        harness.customCallback = "c"
        _ = harness.publish(phone, "1")
        harness.customCallback = ""
        _ = harness.publish(phone, "2")
        _ = Self.all(harness)
        harness.store.cool()
        harness.acknowledge(phone, 2)
        harness.store.readsFailFrom = 0
        let before = harness.statistics.storeReadFailures
        for _ in 0..<9 {
            #expect(Self.take(harness).isEmpty)
            harness.letTimePass(1_000)
        }
        #expect(harness.statistics.storeReadFailures == before + 1)
        harness.store.readsFailFrom = .max
        harness.letTimePass(30_000)
        let items = Self.all(harness).filter { $0.kind == .delivered }
        #expect(items.map(\.customCallback) == [Array("c".utf8), []])
        #expect(harness.rowCount(.event) == 0)
    }

    @Test("a batch of events has at most the bytes of a page")
    func callbackBytes() {
        let harness = Self.harness()
        let phone = harness.register()
        _ = Self.all(harness)
        harness.customCallback = String(repeating: "x", count: MessageBounds.customCallbackByteCount)
        for number in 1...400 { _ = harness.publish(phone, "\(number)", timeToLive: -1, vendor: false) }
        harness.disconnect(phone)
        harness.advance(200_000)
        var ended: [MessageID] = []
        for _ in 0..<20 {
            let batches = harness.shard.takeEvents(Self.share, now: harness.now)
            harness.flush()
            for batch in batches {
                #expect(batch.items.reduce(0) { $0 + FeedRow.byteCount($1) } <= FeedBounds.pageByteCount)
                ended += batch.items.filter { !$0.message.isNone }.map(\.message)
                harness.shard.eventsTold(batch, isTold: true, now: harness.now)
            }
            harness.flush()
        }
        #expect(ended.count == 400 && Set(ended).count == 400)
    }

    @Test("events unreported before a crash are reported after it, before new ones")
    func crash() {
        let harness = Self.harness()
        var phone = harness.register()
        for number in 1...3 { _ = harness.publish(phone, "\(number)") }
        harness.acknowledge(phone, 2)
        harness.flush()
        harness.crash()
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 0, sequence: 3)] }
        harness.flush()
        let items = Self.sweep(harness)
        #expect(items.map(\.kind) == [.online, .delivered, .delivered, .delivered, .online])
        #expect(harness.rowCount(.event) == 0)
    }

    @Test("after a start a new event is reported within a few ticks, while the sweep passes all buckets")
    func soonAfterStart() {
        let harness = Self.harness()
        var phone = harness.register()
        _ = Self.sweep(harness)
        harness.crash()
        harness.connect(&phone)
        #expect((0..<4).flatMap { _ in Self.take(harness) }.map(\.kind) == [.online])
    }

    @Test("a sweep whose read fails backs off and loses nothing")
    func sweepThatFails() {
        let harness = Self.harness()
        let phone = harness.register()
        _ = harness.publish(phone, "1")
        harness.acknowledge(phone, 1)
        harness.flush()
        harness.crash()
        // Heads that cannot be read have a separate backoff. Only the sweep reads here.
        harness.store.readsFailFrom = 0
        var failed: [Int] = []
        for second in 0..<2_500 {
            let before = harness.statistics.storeReadFailures
            _ = Self.take(harness)
            if harness.statistics.storeReadFailures > before { failed.append(second) }
            harness.letTimePass(1_000)
        }
        let looks = [0, 10] + Array(stride(from: 30, to: 2_500, by: 30))
        #expect(failed == looks && harness.statistics.storeReadFailures == UInt64(looks.count))
        harness.store.readsFailFrom = .max
        harness.letTimePass(30_000)
        #expect(Self.sweep(harness).map(\.kind) == [.online, .delivered])
    }

    @Test("a batch that its home refused is sent again, at its place")
    func again() {
        let harness = Self.harness()
        let phone = harness.register()
        for number in 1...4 { _ = harness.publish(phone, "\(number)") }
        harness.acknowledge(phone, 2)
        harness.flush()
        _ = harness.shard.takeEvents(Self.share, now: harness.now)
        let first = Self.take(harness, isTold: false)
        #expect(first.count == 3 && harness.rowCount(.event) == 3)
        harness.acknowledge(phone, 4)
        let items = Self.all(harness)
        #expect(items.map(\.kind) == [.online, .delivered, .delivered, .delivered, .delivered])
        #expect(Array(items.prefix(3)) == first && harness.rowCount(.event) == 0)
    }

    @Test("events above the bound of rows are counted, and the count is reported")
    func bound() {
        let harness = Self.harness { $0.count = 5 }
        let phone = harness.register()
        for number in 1...9 { _ = harness.publish(phone, "\(number)") }
        harness.acknowledge(phone, 9)
        harness.flush()
        #expect(harness.rowCount(.event) == 5 && harness.shard.statistics.eventsLost == 5)
        var lost: UInt64 = 0
        var count = 0
        for _ in 0..<4 {
            let batches = harness.shard.takeEvents(Self.share, now: harness.now)
            harness.flush()
            for batch in batches {
                lost += batch.lost
                count += batch.items.count
                harness.shard.eventsTold(batch, isTold: true, now: harness.now)
            }
            harness.flush()
        }
        #expect(lost == 5 && count == 5 && harness.rowCount(.event) == 0)
    }

    @Test("an app without the feed writes no event")
    func off() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        _ = harness.publish(phone, "1")
        harness.acknowledge(phone, 1)
        harness.disconnect(phone)
        #expect(harness.rowCount(.event) == 0 && harness.shard.takeEvents(Self.share, now: harness.now).isEmpty)
    }
}
