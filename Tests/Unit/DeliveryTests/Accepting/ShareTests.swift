import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Shares")
struct ShareTests {
    private let harness = DeliveryHarness()
    private static let neighbour = DeliveryHarness.otherApp

    /// Two devices, one per app; the first app publishes ten times as much.
    private func flood() -> (flooder: Phone, neighbour: Phone) {
        let flooder = harness.register(token: "aa")
        let neighbour = harness.register(token: "aa", app: Self.neighbour)
        for _ in 0..<20 { #expect(harness.publish(flooder).code == .accepted) }
        for _ in 0..<2 { #expect(harness.publish(neighbour, app: Self.neighbour).code == .accepted) }
        return (flooder, neighbour)
    }

    @Test("with enough room no share is enforced")
    func room() {
        let (flooder, neighbour) = flood()
        #expect(harness.publish(flooder).code == .accepted)
        #expect(harness.publish(neighbour, app: Self.neighbour).code == .accepted)
    }

    @Test("with little room an app above its share is refused as busy, and another one is not")
    func shortRoom() {
        let (flooder, neighbour) = flood()
        harness.store.isShortOfRoom = true
        #expect(harness.publish(flooder).code == .busy)
        #expect(harness.publish(neighbour, app: Self.neighbour).code == .accepted)
        #expect(harness.statistics.refusedOverShare == 1)
        harness.store.isShortOfRoom = false
        #expect(harness.publish(flooder).code == .accepted)
    }

    @Test("an app that is alone has all the room")
    func alone() {
        let phone = harness.register(token: "aa")
        for _ in 0..<20 { _ = harness.publish(phone) }
        harness.store.isShortOfRoom = true
        #expect(harness.publish(phone).code == .accepted)
    }

    @Test("an app's past usage expires within seconds")
    func ages() {
        let (flooder, _) = flood()
        for _ in 0..<20 { harness.advance(1_000) }
        harness.store.isShortOfRoom = true
        #expect(harness.publish(flooder).code == .accepted)
        #expect(harness.shard.publishingApps == [DeliveryHarness.app])
    }

    @Test("a command above its device's limit of pending commands is refused as busy, not as a store failure")
    func crowded() {
        var limits = ShardLimits()
        limits.waitingPerDevice = 2
        let harness = DeliveryHarness(limits: limits)
        let phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.crash()
        let requests = (0..<3).map { _ in harness.submit(phone, "p") }
        #expect(harness.outcomes[requests[2]]?.code == .busy)
        harness.flush()
        #expect(requests[..<2].allSatisfy { harness.outcomes[$0]?.code == .accepted })
    }

    @Test("an app's tag walks do not block those of another app")
    func tagWalks() {
        var limits = ShardLimits()
        limits.tagWalks = 2
        let harness = DeliveryHarness(limits: limits)
        _ = harness.register()
        _ = harness.register(app: Self.neighbour)
        let step = DirectoryStep.count(TagExpression(), first: 0, stride: 1)
        let own = (0..<3).map { _ in harness.send(step, to: Bucket(0)) }
        let other = (0..<2).map { _ in harness.send(step, to: Bucket(0), app: Self.neighbour) }
        #expect(harness.directoryReplies[own[2]] == .failed && harness.directoryReplies[other[1]] == .failed)
        harness.flush()
        #expect(own[..<2].allSatisfy { harness.directoryReplies[$0] == .count(1) })
        #expect(harness.directoryReplies[other[0]] == .count(1))
    }
}
