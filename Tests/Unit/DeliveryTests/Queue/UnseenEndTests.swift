import TestKit
import Testing
import Wire

@testable import Delivery

/// The stream does not advance past a message that ends unseen before that end is durable.
///
/// A crash would restore the message under a position that covers it.
@Suite("Messages that end before the device has seen them")
struct UnseenEndTests {
    /// `first` is in flight, `second` waits under a key, `last` waits after it.
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

    @Test("a crash restores a collapsed message, and the device receives it")
    func crash() {
        var (harness, phone) = queued()
        _ = harness.submit(phone, "newer", collapseKey: "a")
        acknowledgeUnsynced(harness, phone, 1)
        // All messages that the device has processed when the gateway crashes, and its position.
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

    @Test("without a crash the stream continues once the end is durable")
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

    @Test("an acked message does not delay the next one, which is sent before the ack is durable")
    func acked() {
        let (harness, phone) = queued()
        acknowledgeUnsynced(harness, phone, 1)
        #expect(harness.takeDelivered().map(\.payload) == ["second"])
    }
}
