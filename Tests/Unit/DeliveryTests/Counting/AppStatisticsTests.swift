import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Statistics by app")
struct AppStatisticsTests {
    private static let other = DeliveryHarness.otherApp
    private let harness = DeliveryHarness()

    private func statistics(_ app: AppKey) -> AppStatistics { harness.shard.statistics(of: [app])[0] }

    @Test("each app has its own numbers, in the order of the request, and their sums are the shard's")
    func apart() {
        let phone = harness.register(token: "aa")
        let neighbour = harness.register(token: "aa", app: Self.other)
        for _ in 0..<3 { #expect(harness.publish(phone).code == .accepted) }
        harness.disconnect(neighbour)
        for _ in 0..<2 { #expect(harness.publish(neighbour, app: Self.other).code == .accepted) }
        let numbers = harness.shard.statistics(of: [Self.other, AppKey(0xC99), DeliveryHarness.app])
        #expect(numbers.map(\.accepted) == [2, 0, 3])
        #expect(numbers.map(\.connectedDevices) == [0, 0, 1])
        #expect(numbers.map { $0.dueJobs[.apns] } == [2, 0, 0])
        #expect(harness.statistics.accepted == 5 && harness.statistics[.apns].dueJobs == 2)
        _ = harness.lease(1)
        #expect(statistics(Self.other).dueJobs[.apns] == 1)
    }

    @Test("an undelivered message counts for its app by its final state")
    func undelivered() {
        let phone = harness.register()
        let neighbour = harness.register(app: Self.other)
        #expect(harness.publish(phone, vendor: false).code == .accepted)
        harness.shard.reject(phone.session, sequence: 1, reason: "no", now: harness.now)
        harness.flush()
        harness.disconnect(neighbour)
        #expect(harness.publish(neighbour, timeToLive: 5_000, vendor: false, app: Self.other).code == .accepted)
        harness.advance(10_000)
        #expect(statistics(DeliveryHarness.app).failed == 1 && statistics(DeliveryHarness.app).expired == 0)
        #expect(statistics(Self.other).failed == 0 && statistics(Self.other).expired == 1)
        #expect(harness.statistics.ended(.failed) == 1 && harness.statistics.ended(.expired) == 1)
    }

    @Test("refusals above its share count for the app")
    func overShare() {
        let phone = harness.register(token: "aa")
        let neighbour = harness.register(token: "aa", app: Self.other)
        for _ in 0..<20 { #expect(harness.publish(phone).code == .accepted) }
        #expect(harness.publish(neighbour, app: Self.other).code == .accepted)
        harness.store.isShortOfRoom = true
        #expect(harness.publish(phone).code == .busy)
        #expect(statistics(DeliveryHarness.app).refusedOverShare == 1)
        #expect(statistics(Self.other).refusedOverShare == 0)
    }

    @Test("an app's stored data besides its queue are its devices and the messages of two days, ended or not")
    func retained() {
        let (device, message) = (RetainedBytes.ofDevice, RetainedBytes.ofRecentMessage)
        func retained() -> Int64 { statistics(DeliveryHarness.app).retainedBytes }
        #expect(retained() == 0)
        var phone = harness.register()
        harness.connect(&phone)
        let stranger = harness.register()
        harness.disconnect(stranger)
        #expect(retained() == 2 * device && statistics(Self.other).retainedBytes == 0)
        for _ in 0..<3 { #expect(harness.publish(phone).code == .accepted) }
        harness.acknowledge(phone, 3)
        #expect(retained() == 2 * device + 3 * message && statistics(DeliveryHarness.app).queuedBytes == 0)
        harness.crash()
        #expect(retained() == 2 * device + 3 * message)
        // A device that never reconnected is removed after a day. Yesterday's messages still count.
        harness.advance(86_400_000)
        #expect(retained() == device + 3 * message)
        harness.crash()
        #expect(retained() == device + 3 * message)
        harness.advance(86_400_000)
        #expect(retained() == device)
        harness.crash()
        #expect(retained() == device)
    }

    @Test("the first command after midnight does not count in the old day, and earlier days leave memory")
    func midnight() {
        _ = harness.register()
        #expect(harness.shard.counters.rowCount == 1)
        for day in 1...4 {
            // A command arrives before the timer of the new day.
            harness.letTimePass(86_400_000)
            _ = harness.register()
            harness.advance(1_000)
            #expect(harness.shard.counters.rowCount == 2, "day \(day): yesterday's and today's")
        }
        let today = CountersRow.day(of: harness.now)
        let registered = (0...4).map { harness.shard.counters.totals(of: DeliveryHarness.app, day: today - UInt32($0)) }
        #expect(registered.map(\.registered) == [1, 1, 1, 1, 1])
        #expect(registered[0].accumulated == 5)
    }

    @Test("an app loaded from a row before a reload lists it has its place")
    func relisted() {
        var phone = harness.register(token: "aa", app: Self.other)
        harness.disconnect(phone)
        #expect(harness.publish(phone, app: Self.other).code == .accepted)
        let all = harness.apps
        harness.apps = [all[0]]
        harness.crash()
        harness.advance(1_000)
        #expect(statistics(Self.other).dueJobs[.apns] == 1, "its job's alarm, though no configuration names it")
        harness.shard.reload(apps: all)
        harness.connect(&phone, app: Self.other)
        #expect(statistics(Self.other).connectedDevices == 1)
    }
}
