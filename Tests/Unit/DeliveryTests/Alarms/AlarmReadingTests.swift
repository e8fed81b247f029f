import Structures
import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("The schedule of alarm reads")
struct AlarmReadingTests {
    private static let groups = [AlarmGroup(app: AppKey(1), kind: .held), AlarmGroup(app: AppKey(2), kind: .due)]

    @Test("a group that cannot be read is retried after a second, and other groups are read at once")
    func failedGroup() {
        var reading = AlarmReading()
        reading.asked()
        #expect(!reading.mayAsk(1_000))
        reading.answered(Self.groups[0], hasFailed: true, now: 1_000)
        #expect(reading.mayAsk(1_000))
        #expect(reading.pause(of: Self.groups[0]) == 2_000 && reading.pause(of: Self.groups[1]) == 0)
        reading.answered(Self.groups[0], hasFailed: false, now: 2_000)
        #expect(reading.pause(of: Self.groups[0]) == 0)
    }

    @Test("after a failed read without a group all reads wait a second")
    func failed() {
        var reading = AlarmReading()
        reading.answered(nil, hasFailed: true, now: 1_000)
        #expect(!reading.mayAsk(1_999) && reading.mayAsk(2_000))
        #expect(reading.pause(of: Self.groups[0]) == 0)
    }

    @Test("a device's messages that expire together use none of its command places and refuse no command")
    func manyOfOneDevice() {
        var limits = ShardLimits()
        (limits.waitingPerDevice, limits.waitingInAll) = (2, 2)
        let harness = DeliveryHarness(limits: limits)
        let phone = harness.register()
        harness.disconnect(phone)
        for _ in 0..<20 { _ = harness.publish(phone, timeToLive: 60_000, vendor: false) }
        harness.crash()
        harness.store.cool()
        harness.letTimePass(60_001)
        harness.shard.advance(to: harness.now)
        harness.store.deliverReplies(limit: 1)
        let late = harness.submit(phone, "late")
        harness.flush()
        #expect(harness.outcomes[late]?.code == .accepted)
        #expect(harness.rowCount(.message) == 1 && harness.imbalance() == nil)
    }

    @Test(
        "an alarm reported while a publish has its message in memory still ends the message",
        arguments: [Strategy.liveElseVendor, .liveOnly, .vendorElseLive])
    func broughtByAPublish(strategy: Strategy) {
        for repliesBeforeTheAlarm in 0...6 {
            let harness = DeliveryHarness()
            let phone = harness.register(token: "beef")
            harness.disconnect(phone)
            _ = harness.publish(phone, "old", strategy: strategy, timeToLive: 60_000, collapseKey: "k")
            harness.crash()
            harness.store.cool()
            harness.letTimePass(60_001)
            // The publish looks for messages with its key on disk and is refused then, so the old one leaves memory again.
            let late = harness.submit(
                phone, "late", strategy: .vendorElseLive, collapseKey: "k", kind: .voip)
            for _ in 0..<repliesBeforeTheAlarm { harness.store.deliverReplies(limit: 1) }
            harness.shard.advance(to: harness.now)
            harness.flush()
            #expect(harness.outcomes[late]?.code == .noToken)
            for _ in 0..<3 { harness.advance(2_000) }
            let rowCount = harness.rowCount(.message) + harness.rowCount(.vendorMessage)
            #expect(rowCount == 0, "\(repliesBeforeTheAlarm) replies before the alarm")
            #expect(harness.imbalance() == nil)
        }
    }

    @Test("a device whose rows cannot be read at its removal is removed later", arguments: 1...2)
    func failedRemoval(failing: Int) {
        let harness = DeliveryHarness()
        let gone = harness.register()
        harness.disconnect(gone)
        harness.crash()
        harness.store.cool()
        harness.letTimePass(harness.limits.sessionlessDeviceLifetime + 3_600_000)
        harness.store.failingReads = [harness.store.readCount + failing]
        for _ in 0..<3 { harness.advance(2_000) }
        #expect(harness.store.readCount >= harness.store.failingReads.first ?? .max, "that read was never made")
        #expect(harness.rowCount(.device) == 0 && harness.imbalance() == nil)
    }

    @Test("a device admitted without a Welcome is not removed as one that never reconnected")
    func admittedWithoutWelcome() {
        var admittedCount = 0
        for failing in 1...5 {
            let harness = DeliveryHarness()
            var phone = harness.register()
            // The message was sent and not acked. The position in the Hello covers it.
            _ = harness.publish(phone, timeToLive: 172_800_000, vendor: false)
            harness.disconnect(phone)
            harness.crash()
            harness.store.cool()
            harness.letTimePass(harness.limits.sessionlessDeviceLifetime - 1_000)
            // The device is authenticated, and its Hello fails in a later read.
            harness.store.failingReads = [harness.store.readCount + failing]
            let welcomeCount = harness.welcomes.count
            harness.connect(&phone) { $0.positions = [StreamPosition(stream: 0, sequence: 1)] }
            harness.disconnect(phone)
            harness.store.failingReads = []
            let slot = harness.shard.knownDevice(phone.cid)
            let isAdmitted = slot.map { harness.shard.devices.at($0).value.isEstablished } ?? false
            guard isAdmitted, harness.welcomes.count == welcomeCount else { continue }
            admittedCount += 1
            for _ in 0..<3 { harness.advance(3_600_000) }
            harness.crash()
            harness.store.cool()
            for _ in 0..<60 { harness.advance(3_600_000) }
            #expect(harness.publish(phone).code == .accepted, "failing read \(failing)")
        }
        #expect(admittedCount > 0)
    }
}
