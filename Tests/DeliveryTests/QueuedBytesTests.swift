import TestKit
import Testing
import Wire

@testable import Delivery

/// What an app has queued in bytes: counted at the acceptance, and taken back at the end if the message's rows say so.
@Suite("Queued bytes of an app")
struct QueuedBytesTests {
    private static func bytes(_ count: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        bytes.withUnsafeMutableBytes(write)
        return bytes
    }

    private static func facts(isCounted: Bool, table: StoreKey.Table = .message) -> MessageFacts {
        var facts = MessageFacts(
            message: MessageID(bucket: Bucket(3), acceptedAt: 1_790_000_000_000, digest: 77),
            task: TaskID(high: 5, low: 6), app: AppKey(9), cid: DeviceID(high: 1, low: 2), strategy: .liveElseVendor,
            flags: [], table: table, item: 4, acceptedAt: 1_790_000_000_000, expiresAt: 1_790_000_060_000,
            fallbackAt: 0, wakeAt: 1_790_000_060_000, timeToLive: 60_000, byteCount: 1_000)
        facts.isCounted = isCounted
        return facts
    }

    private static func command(_ facts: MessageFacts) -> PublishCommand {
        PublishCommand(
            origin: .none, app: facts.app, bucket: facts.bucket, cid: facts.cid, task: facts.task, messageDigest: 77,
            strategy: facts.strategy, timeToLive: facts.timeToLive,
            payload: UnsafeRawBufferPointer(start: nil, count: 0))
    }

    @Test("rows of messages, of jobs and of broadcasts say whether the acceptance counted the bytes")
    func marks() {
        for isCounted in [true, false] {
            let facts = Self.facts(isCounted: isCounted)
            let texts = MessageRow.Texts(Self.command(facts))
            let message = Self.bytes(MessageRow.byteCount(texts, facts: facts)) {
                MessageRow.write(texts, facts: facts, into: $0)
            }
            message.withUnsafeBytes {
                let read = MessageRow($0)?.facts(cid: facts.cid, table: .message, item: 4)
                #expect(read?.isCounted == isCounted)
                #expect(read?.queuedBlocks == (isCounted ? QueuedBlocks.count(MessageRow.charge(message.count)) : 0))
            }
            let row = JobRow(facts: facts, state: .due, dueAt: facts.acceptedAt)
            let job = Self.bytes(row.byteCount) { row.write(into: $0) }
            job.withUnsafeBytes {
                let read = JobRow($0)
                #expect(read?.facts.isCounted == isCounted)
                #expect(read?.facts.channels.isEmpty == true && read?.channelBits == row.channelBits)
            }
            let ledger = LedgerRow(
                cid: facts.cid, app: facts.app, flags: isCounted ? [.live, .bytesCounted] : .live, state: nil,
                fallback: .none, fallbackReason: .noContent, acceptedAt: facts.acceptedAt, timeToLive: 60_000,
                table: .broadcast, item: 4)
            let key = StoreKey(facts.bucket, .taskMessage, facts.task, item: facts.message.low)
            let read = Shard.facts(of: ledger, key, facts.expiresAt)
            #expect(read.isCounted == isCounted && read.queuedBlocks == (isCounted ? 3 : 0))
        }
        // The two bits of a job's channels are free as long as no channel has their numbers.
        #expect(VendorChannel.allCases.allSatisfy { $0.rawValue < 14 })
    }

    @Test("a row written before the mark was, reads as one that is not counted")
    func earlierRows() {
        let facts = Self.facts(isCounted: true)
        let row = EarlierRows.message(MessageRow.Texts(Self.command(facts)), facts)
        row.withUnsafeBytes {
            #expect(MessageRow($0)?.facts(cid: facts.cid, table: .message, item: 4).queuedBlocks == 0)
        }
    }

    @Test("a change carries sizes of a whole batch, and a sum of them wraps without harm")
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
        // More went than came, on a day on which others' messages ended.
        row.extra[.acceptedBlocks] = 5
        row.extra[.endedBlocks] = 9
        #expect(row.holdings.blocks == -4)
    }

    @Test("the largest batch of the largest messages fits into the amounts of a change")
    func largestBatch() {
        let largest = Int(
            QueuedBlocks.count(MessageRow.charge(MessageRow.overheadByteCount + MessageBounds.byteCount)))
        let ends = OpenBatch.rowLimit / 3 + 1
        #expect(ends * largest <= Int(UInt16.max))
        // What one message displaces: as much as it counts, each rounded up, and one that begins below that.
        #expect(3 * largest + largest * MessageRow.chargeBesideRow <= Int(UInt16.max) * MessageRow.chargeBesideRow)
        #expect(QueuedBlocks.largestMessageByteCount > largest * QueuedBlocks.blockByteCount)
    }

    // MARK: In a shard

    private static func queued(_ harness: DeliveryHarness) -> Int64 {
        harness.shard.statistics(of: [DeliveryHarness.app])[0].queuedBytes
    }

    /// What the rows of pending messages count, by the rows themselves.
    private static func stored(_ harness: DeliveryHarness) -> Int64 {
        harness.store.visibleRows.reduce(0) { sum, entry in
            switch entry.key.table {
            case .message, .vendorMessage:
                sum + (Int64(MessageRow.charge(entry.value.value.count)) + 63) / 64 * 64
            default: sum
            }
        }
    }

    @Test("acks, expiry, overflow, a vendor's word and crashes leave the sum of what is pending, and at last nothing")
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
        // The vendor fails them all: those of strategy 4 move to the live stream with other rows.
        for payload in payloads { _ = harness.publish(phone, payload, strategy: .vendorElseLive) }
        for payload in payloads { _ = harness.publish(phone, payload, strategy: .vendorOnly, timeToLive: 60_000) }
        // One too many: the oldest overflows.
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

    @Test("messages that an earlier release accepted count nothing, and their ends take nothing away")
    func upgrade() {
        let harness = DeliveryHarness()
        let phone = harness.register()
        harness.disconnect(phone)
        for _ in 0..<3 { _ = harness.publish(phone, "from before", timeToLive: 60_000) }
        _ = harness.publish(phone, "moves", strategy: .vendorElseLive, timeToLive: 60_000)
        // As the earlier release left them: rows without the mark, counts without sizes.
        for (key, row) in harness.store.visibleRows {
            var bytes = row.value
            switch key.table {
            case .message, .vendorMessage: bytes[3] &= 0xBF
            case .counters: for place in bytes.count - 8..<bytes.count { bytes[place] = 0 }
            default: continue
            }
            harness.store.beginBatch(key.bucket)
            _ = harness.store.put(key, wakeAt: row.wakeAt, prior: .maybe(wakeAt: row.wakeAt), byteCount: bytes.count) {
                $0.copyBytes(from: bytes)
            }
            _ = harness.store.endBatch()
        }
        harness.store.sync()
        harness.crash()
        #expect(Self.queued(harness) == 0 && harness.statistics.pending >= 3)
        _ = harness.publish(phone, "from now on", timeToLive: 7_200_000)
        let own = Self.queued(harness)
        #expect(own > 0)
        harness.advance(120_000)
        #expect(Self.queued(harness) == own && harness.statistics.pending == 1)
        harness.advance(7_200_000)
        #expect(Self.queued(harness) == 0 && harness.statistics.pending == 0)
    }

    @Test("a broadcast's message counts its small row, whatever the broadcast has to say, until its end")
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
