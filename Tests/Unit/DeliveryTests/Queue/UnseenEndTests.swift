import TestKit
import Testing
import Wire

@testable import Delivery

/// The stream does not pass a message that ends unseen before that end is durable.
///
/// A crash would bring the message back under a position that covers it.
@Suite("Ends that a device has not seen")
struct UnseenEndTests {
    /// `first` is in flight, `second` waits under a key, `last` waits behind it.
    private func queued() -> (harness: DeliveryHarness, phone: Phone) {
        var limits = ShardLimits()
        limits.window = 1
        let harness = DeliveryHarness(limits: limits)
        let phone = harness.register(token: "t")
        for (payload, key) in [("first", ""), ("second", "a"), ("last", "")] {
            #expect(harness.publish(phone, payload, collapseKey: key).code == .accepted)
        }
        #expect(harness.takeDelivered().map(\.payload) == ["first"])
        return (harness, phone)
    }

    private func acknowledgeUnsynced(_ harness: DeliveryHarness, _ phone: Phone, _ sequence: UInt64) {
        [SequenceRange]().withUnsafeBufferPointer {
            harness.shard.acknowledge(phone.session, cumulative: sequence, ranges: $0, now: harness.now)
        }
        harness.drain()
    }

    @Test("what collapsed comes back with a crash, and is shown")
    func crash() {
        var (harness, phone) = queued()
        _ = harness.submit(phone, "newer", collapseKey: "a")
        acknowledgeUnsynced(harness, phone, 1)
        // All that the device has processed when the gateway dies, and its position.
        var seen = harness.takeDelivered().map(\.payload)
        let position: UInt64 = seen.contains("last") ? 3 : 1
        harness.crash()
        harness.connect(&phone) { $0.positions = [StreamPosition(sequence: position)] }
        for sequence in [2, 3, 4] as [UInt64] {
            seen += harness.takeDelivered().map(\.payload)
            harness.acknowledge(phone, sequence)
        }
        seen += harness.takeDelivered().map(\.payload)
        #expect(seen == ["second", "last"])
        #expect(harness.imbalance() == nil)
    }

    @Test("without one the stream goes on once the end is durable")
    func goesOn() {
        let (harness, phone) = queued()
        _ = harness.submit(phone, "newer", collapseKey: "a")
        acknowledgeUnsynced(harness, phone, 1)
        #expect(harness.takeDelivered().isEmpty)
        harness.flush()
        #expect(harness.takeDelivered().map(\.payload) == ["last"])
        harness.acknowledge(phone, 3)
        #expect(harness.takeDelivered().map(\.payload) == ["newer"])
        #expect(harness.imbalance() == nil)
    }

    @Test("an acked message holds up nothing: the next one goes out before the ack is durable")
    func acked() {
        let (harness, phone) = queued()
        acknowledgeUnsynced(harness, phone, 1)
        #expect(harness.takeDelivered().map(\.payload) == ["second"])
    }
}
