import Delivery
import TestKit
import Testing
import Wire

@Suite("Sessions") struct SessionTests {
    @Test("a registration is welcomed with its cid and secret once it is durable")
    func registration() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        let welcome = harness.welcomes.first?.welcome
        #expect(welcome?.cid == phone.cid)
        #expect(welcome?.deviceSecret == phone.secret)
        #expect(welcome?.generation == 1)
        #expect(welcome?.queueEpoch == 7)
        #expect(welcome?.window == 32)
        #expect(harness.rowCount(.device) == 1)
    }

    @Test("a wrong proof, an unknown cid and another app are refused")
    func turnedAway() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.connect(&phone) { $0.proof = [9] }
        #expect(harness.closes.last?.code == .badProof)
        harness.connect(&phone, app: DeliveryHarness.otherApp)
        #expect(harness.closes.last?.code == .unknownDevice)
        var stranger = phone
        stranger.cid = DeviceID(high: 5, low: 5)
        harness.connect(&stranger)
        #expect(harness.closes.last?.code == .unknownDevice)
        #expect(harness.welcomes.count == 1)
    }

    @Test("a timestamp must exceed the last one and lie within 120 s")
    func clockSkew() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        // A registration proves another secret, so its timestamp does not bind the device, however far ahead it is.
        let first = UInt64(harness.now)
        harness.connect(&phone) { $0.timestamp = first }
        #expect(harness.welcomes.count == 2)
        harness.connect(&phone) { $0.timestamp = first }
        #expect(harness.closes.last?.code == .clockSkew)
        harness.connect(&phone) { $0.timestamp += 120_001 }
        #expect(harness.closes.last?.code == .clockSkew)
        harness.connect(&phone) { $0.timestamp = .max }
        #expect(harness.closes.last?.code == .clockSkew)
        harness.connect(&phone) { $0.timestamp += 119_000 }
        #expect(harness.welcomes.count == 3)
        harness.crash()
        // Replayed after a restart: the last timestamp is durable.
        harness.connect(&phone) { $0.timestamp += 118_000 }
        #expect(harness.closes.last?.code == .clockSkew)
    }

    @Test("the newest session wins, and the old one's acks no longer count")
    func newestWins() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        let old = phone
        _ = harness.publish(phone)
        harness.connect(&phone)
        #expect(harness.closes.map(\.code) == [.replaced])
        #expect(harness.closes.first?.session == old.session)
        #expect(harness.welcomes.last?.welcome.generation == 2)
        harness.acknowledge(old, 1)
        #expect(harness.statistics.ended(.delivered) == 0)
        harness.disconnect(old)
        #expect(harness.status(phone)?.isConnected == true)
        harness.acknowledge(phone, 1)
        #expect(harness.statistics.ended(.delivered) == 1)
    }

    @Test("the backlog follows the Welcome in order and with the offline flag")
    func backlogInOrder() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.disconnect(phone)
        for index in 0..<5 { _ = harness.publish(phone, "\(index)") }
        harness.order.removeAll()
        harness.connect(&phone)
        #expect(harness.order == ["welcome"] + Array(repeating: "deliver", count: 5))
        #expect(harness.welcomes.last?.welcome.backlog == 5)
        #expect(harness.delivered.map(\.payload) == ["0", "1", "2", "3", "4"])
        #expect(harness.delivered.allSatisfy { $0.isOffline })
    }

    @Test("a cold backlog is paged from the store in order, one window at a time, before young messages")
    func coldBacklog() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        for index in 0..<100 { _ = harness.publish(phone, "\(index)") }
        harness.store.cool()
        for index in 100..<110 { _ = harness.publish(phone, "\(index)") }
        harness.connect(&phone)
        #expect(harness.delivered.count == 32)
        var acked: UInt64 = 0
        while let last = harness.delivered.last, last.sequence > acked {
            acked = last.sequence
            harness.acknowledge(phone, acked)
        }
        #expect(harness.delivered.map(\.payload) == (0..<110).map(String.init))
        #expect(harness.imbalance() == nil)
        #expect(harness.rowCount(.message) == 0)
        #expect(harness.rowCount(.job) == 0)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("the window closes at 32 messages or 64 KiB, and always admits one")
    func window() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        for _ in 0..<40 { _ = harness.publish(phone, "x", vendor: false) }
        #expect(harness.takeDelivered().count == 32)
        harness.acknowledge(phone, 1)
        #expect(harness.takeDelivered().count == 1)
        harness.acknowledge(phone, 40)
        harness.acknowledge(phone, 40)
        harness.delivered.removeAll()
        let large = String(repeating: "y", count: 16_000)
        for _ in 0..<6 { _ = harness.publish(phone, large, vendor: false) }
        #expect(harness.takeDelivered().count == 4)
        harness.connect(&phone) { $0.window = 2 }
        #expect(harness.welcomes.last?.welcome.window == 2)
        #expect(harness.takeDelivered().count == 2)
    }

    @Test("a narrow byte window still admits one large message")
    func oneAlwaysFits() {
        var limits = ShardLimits()
        limits.windowByteCount = 100
        let harness = DeliveryHarness(limits: limits)
        let phone = harness.register()
        _ = harness.publish(phone, String(repeating: "z", count: 5_000))
        _ = harness.publish(phone, "small")
        #expect(harness.delivered.count == 1)
        harness.acknowledge(phone, 1)
        #expect(harness.delivered.count == 2)
    }

    @Test("a position above every assigned number changes the epoch and settles nothing")
    func queueEpoch() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.disconnect(phone)
        _ = harness.publish(phone)
        harness.connect(&phone) { $0.positions = [StreamPosition(sequence: 5_000)] }
        #expect(harness.welcomes.last?.welcome.queueEpoch == 8)
        #expect(harness.delivered.count == 1)
        harness.crash()
        harness.connect(&phone)
        #expect(harness.welcomes.last?.welcome.queueEpoch == 8)
    }

    @Test("a Hello's positions settle the rows they cover, including cold ones", arguments: [false, true])
    func positionsSettle(cold: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        for index in 0..<6 { _ = harness.publish(phone, "\(index)") }
        harness.disconnect(phone)
        if cold { harness.store.cool() }
        harness.delivered.removeAll()
        harness.connect(&phone) {
            $0.positions = [StreamPosition(sequence: 2, ranges: [SequenceRange(first: 4, last: 5)])]
        }
        #expect(harness.delivered.map(\.payload) == ["2", "5"])
        #expect(harness.welcomes.last?.welcome.backlog == 2)
        #expect(harness.imbalance() == nil)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("sequences are never reused, across crashes and evictions")
    func sequencesNeverRepeat() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        _ = harness.publish(phone, "a")
        harness.acknowledge(phone, 1)
        harness.crash()
        harness.connect(&phone)
        _ = harness.publish(phone, "b")
        #expect(harness.delivered.last?.payload == "b")
        #expect((harness.delivered.last?.sequence ?? 0) > 1)
        let before = harness.delivered.last?.sequence ?? 0
        harness.crash()
        harness.connect(&phone)
        #expect(harness.delivered.last?.sequence == before)
    }

    @Test("Welcome reports messages that ended unseen since the last session, once")
    func dropped() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.disconnect(phone)
        _ = harness.publish(phone, timeToLive: 1_000, vendor: false)
        _ = harness.publish(phone, timeToLive: 1_000, vendor: false)
        harness.advance(1_000)
        harness.connect(&phone)
        #expect(harness.welcomes.last?.welcome.dropped == [Dropped(reason: "expired", count: 2)])
        harness.connect(&phone)
        #expect(harness.welcomes.last?.welcome.dropped == [])
    }

    @Test("a device that never reconnected is removed after a day, and one that did is not")
    func collected() {
        let harness = DeliveryHarness()
        let gone = harness.register()
        var kept = harness.register()
        harness.disconnect(gone)
        harness.connect(&kept)
        harness.disconnect(kept)
        harness.store.cool()
        harness.advance(24 * 3_600_000 + 1)
        #expect(harness.publish(gone).code == .unknownDevice)
        #expect(harness.publish(kept).code == .accepted)
    }

    private static func refuse(_ phone: Phone, _ harness: DeliveryHarness) {
        harness.shard.sessionRefused(phone.session, now: harness.now)
        harness.flush()
    }

    @Test("a device whose registration is refused before its Welcome leaves nothing behind", arguments: [false, true])
    func refusedRegistration(hasEvents: Bool) {
        let harness = DeliveryHarness { $0.events = hasEvents ? FeedLimits() : nil }
        let refused = harness.register(token: "aa")
        let kept = harness.register()
        Self.refuse(refused, harness)
        for isRestarted in [false, true] {
            if isRestarted { harness.crash() }
            #expect(harness.rowCount(.device) == 1 && harness.rowCount(.tag) == 1)
            #expect(harness.publish(refused).code == .unknownDevice)
            #expect(harness.publish(kept).code == .accepted)
        }
        // Both devices registered, and one was removed.
        #expect(harness.rowCount(.event) == (hasEvents ? 3 : 0))
        var again = refused
        harness.connect(&again)
        #expect(harness.closes.last?.code == .unknownDevice)
        harness.advance(24 * 3_600_000 + 1)
        #expect(harness.imbalance() == nil)
    }

    @Test(
        "a refused session does not change a device that connected before or has queued messages",
        arguments: [false, true])
    func refusedSession(hasCome: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        if hasCome {
            harness.connect(&phone)
        } else {
            _ = harness.publish(phone)
        }
        Self.refuse(phone, harness)
        #expect(harness.rowCount(.device) == 1 && harness.status(phone)?.isConnected == false)
        harness.connect(&phone)
        #expect(harness.status(phone)?.isConnected == true)
    }

    @Test("a device with a broadcast's message stays when its registration is refused, and the message ends")
    func refusedAmidBroadcast() {
        let base = BroadcastHarness()
        let harness = base.harness
        let refused = harness.register(token: "aa")
        base.send(timeToLive: 60_000)
        Self.refuse(refused, harness)
        #expect(harness.rowCount(.device) == 1)
        harness.advance(61_000)
        #expect(harness.imbalance() == nil)
    }

    @Test("a connection that ends while its Hello waits for the disk leaves no session behind")
    func hangsUpEarly() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.crash()
        harness.connect(&phone, flushing: false)
        harness.disconnect(phone)
        #expect(harness.welcomes.count == 1)
        // Its proof was never verified, so the Hello does not count as a connection of the device.
        #expect(harness.leftBeforeWelcome.isEmpty)
        #expect(harness.status(phone)?.isConnected == false)
        #expect(harness.publish(phone).isLive == false)
        harness.connect(&phone)
        #expect(harness.delivered.count == 1)
    }

    @Test("a connection that ends before its valid Hello is durable is reported, because the device has connected")
    func leavesBeforeWelcome() {
        let harness = DeliveryHarness()
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.connect(&phone, flushing: false)
        #expect(harness.welcomes.count == 1)
        harness.disconnect(phone)
        #expect(harness.welcomes.count == 1)
        #expect(harness.leftBeforeWelcome == [phone.cid])
    }

    @Test("a failed read closes the Hello as retryable and the next one succeeds")
    func failedRead() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.crash()
        harness.store.failingReads = [harness.store.readCount + 1]
        harness.connect(&phone)
        #expect(harness.closes.last?.code == .storeUnavailable)
        harness.connect(&phone)
        #expect(harness.welcomes.count == 2)
    }

    @Test("a query whose read fails is answered as unreadable, not as an unknown device")
    func failedQuestion() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        harness.crash()
        harness.store.failingReads = [harness.store.readCount + 1]
        #expect(harness.status(phone) == nil)
        guard case .unreadable = harness.deviceAnswers.last else {
            Issue.record("a failed read must not look like a missing device")
            return
        }
        #expect(harness.status(phone) != nil)
    }
}
