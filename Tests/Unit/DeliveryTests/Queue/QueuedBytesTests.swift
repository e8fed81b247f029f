import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Queued bytes of an app")
struct QueuedBytesTests {
    private static func bytes(_ count: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        bytes.withUnsafeMutableBytes(write)
        return bytes
    }

    @Test("a change carries the sizes of a whole batch, and its sum may wrap")
    func wrap() {
        var row = CountersRow(app: AppKey(9), day: 20_000)
        row.extra[.acceptedBlocks] = .max - 10
        row.extra[.endedBlocks] = .max - 30
        let key = CountersRow.key(Bucket(3), app: row.app, day: row.day)
        var stored = Self.bytes(CountersRow.byteCount) { row.write(into: $0) }
        var change = CounterChange()
        for _ in 0..<16 { change.count(CountersRow.Extra.acceptedBlocks, by: 4_000) }
        change.count(CountersRow.Extra.endedBlocks, by: 0)
        #expect(change.byteCount == 3 + 3, "nothing is written of what is not counted")
        let written = Self.bytes(change.byteCount) { change.write(into: $0) }
        let read = written.withUnsafeBytes { CounterChange($0) }
        #expect(read == change)
        stored = change.added(to: stored, key)
        let sum = stored.withUnsafeBytes { CountersRow($0) }
        #expect(sum?.holdings.blocks == Int64(64_020))
        #expect(sum?.extra[.acceptedBlocks] == 63_989)
        // More bytes ended than were accepted, on a day on which others' messages ended.
        row.extra[.acceptedBlocks] = 5
        row.extra[.endedBlocks] = 9
        #expect(row.holdings.blocks == -4)
    }

    @Test("the largest batch of the largest messages fits the amounts of a change")
    func largestBatch() {
        let largest = Int(
            QueuedBlocks.count(MessageRow.charge(MessageRow.overheadByteCount + MessageBounds.byteCount)))
        let ends = OpenBatch.rowLimit / 3 + 1
        #expect(ends * largest <= Int(UInt16.max))
        // The most that one message displaces: its own size in rounded blocks, and one message that starts below that.
        #expect(3 * largest + largest * MessageRow.chargeBesideRow <= Int(UInt16.max) * MessageRow.chargeBesideRow)
        #expect(QueuedBlocks.largestMessageByteCount > largest * QueuedBlocks.blockByteCount)
    }

    // MARK: In a shard

    private static func queued(_ harness: DeliveryHarness) -> Int64 {
        harness.shard.statistics(of: [DeliveryHarness.app])[0].queuedBytes
    }

    /// Returns the charge of all pending messages from their rows.
    private static func stored(_ harness: DeliveryHarness) -> Int64 {
        harness.store.visibleRows.reduce(0) { sum, entry in
            switch entry.key.table {
            case .message, .vendorMessage:
                sum + (Int64(MessageRow.charge(entry.value.value.count)) + 63) / 64 * 64
            default: sum
            }
        }
    }

    @Test("acks, expiry, overflow, vendor results and crashes keep the sum of pending messages, and finally zero")
    func ends() {
        let harness = DeliveryHarness {
            $0.queuedMessageLimit = 6
            $0.overflowPolicy = .dropOldest
        }
        let payloads = ["p", String(repeating: "q", count: 900), String(repeating: "r", count: 16_000)]
        var phone = harness.register(token: "aa")
        for payload in payloads { _ = harness.publish(phone, payload) }
        #expect(Self.queued(harness) == Self.stored(harness) && Self.queued(harness) > 17_000)
        harness.acknowledge(phone, 2)
        #expect(Self.queued(harness) == Self.stored(harness) && Self.queued(harness) > 16_000)
        harness.disconnect(phone)
        harness.crash()
        #expect(Self.queued(harness) == Self.stored(harness))
        // The vendor fails them all. Those of strategy 4 move to the live stream with other rows.
        for payload in payloads { _ = harness.publish(phone, payload, strategy: .vendorElseLive) }
        for payload in payloads { _ = harness.publish(phone, payload, strategy: .vendorOnly, timeToLive: 60_000) }
        // One message too many, so the oldest overflows.
        _ = harness.publish(phone, payloads[1], timeToLive: 60_000)
        #expect(Self.queued(harness) == Self.stored(harness) && Self.queued(harness) > 32_000)
        for job in harness.lease(100) { harness.settle(job, .rejected, reason: "no") }
        #expect(Self.queued(harness) == Self.stored(harness))
        harness.crash()
        #expect(Self.queued(harness) == Self.stored(harness) && Self.queued(harness) > 0)
        harness.advance(120_000)
        #expect(Self.queued(harness) == Self.stored(harness))
        harness.connect(&phone)
        for sequence in 1...12 { harness.acknowledge(phone, UInt64(sequence)) }
        harness.advance(10_000_000)
        #expect(Self.stored(harness) == 0 && Self.queued(harness) == 0)
        #expect(harness.statistics.pending == 0 && harness.store.violations.isEmpty)
    }

    @Test("a broadcast's message counts its small row until its end, whatever the broadcast's size")
    func broadcast() {
        let world = BroadcastHarness()
        let harness = world.harness
        let phone = harness.register()
        let neighbour = harness.register()
        harness.disconnect(neighbour)
        _ = world.send(String(repeating: "b", count: 8_000))
        world.enumerate()
        #expect(Self.queued(harness) == 2 * 192 || Self.queued(harness) == 192, "\(Self.queued(harness))")
        harness.crash()
        let atStart = Self.queued(harness)
        #expect(atStart % 192 == 0)
        world.acknowledge(phone, 1)
        world.advance(20_000_000)
        #expect(Self.queued(harness) == 0 && harness.statistics.pending == 0)
    }
}
