import Delivery
import Foundation
import TestKit
import Testing
import Wire

@testable import MessageStore

/// A point where a thread of the store stops until the test releases it.
final class Gate: @unchecked Sendable {
    // `@unchecked Sendable` is sound because all state is used under the condition's lock.
    private let condition = NSCondition()
    private var isShut: Bool
    private var arrivals = 0

    init(isShut: Bool = true) { self.isShut = isShut }

    func pass() {
        condition.lock()
        arrivals += 1
        while isShut { condition.wait() }
        condition.unlock()
    }
    func open() {
        condition.lock()
        isShut = false
        condition.broadcast()
        condition.unlock()
    }
    var wasReached: Bool {
        condition.lock()
        defer { condition.unlock() }
        return arrivals > 0
    }
}

@Suite("Embedded store: moves to the ordered store")
struct SpillTests {
    /// Returns a store whose spiller stops at `step` until the gate opens.
    private func gated(
        _ folder: TemporaryFolder, _ step: EmbeddedStore.SpillStep
    ) throws -> (fixture: StoreFixture, gate: Gate) {
        let gate = Gate()
        var configuration = StoreFixture.configuration(folder)
        configuration.spillFault = { if $0 == step { gate.pass() } }
        return (try StoreFixture(configuration), gate)
    }

    @Test(
        "a row changed during its move to disk keeps the change",
        arguments: [EmbeddedStore.SpillStep.collected, .ingested], [false, true])
    func changedMeanwhile(step: EmbeddedStore.SpillStep, isDelete: Bool) throws {
        let folder = try TemporaryFolder()
        let key = StoreFixture.key(5)
        let expected = isDelete ? nil : "new"
        do {
            let (fixture, gate) = try gated(folder, step)
            defer { fixture.close() }
            fixture.put(key, "old", wakeAt: 77)
            try fixture.sync()
            fixture.embedded.requestSpill()
            try fixture.wait("the spill") { gate.wasReached }
            if isDelete {
                fixture.delete(key, prior: .maybe(wakeAt: 77))
            } else {
                fixture.put(key, "new", wakeAt: 99, prior: .maybe(wakeAt: 77))
            }
            try fixture.sync()
            gate.open()
            try fixture.wait("the spill") { fixture.embedded.statistics.spilledRowCount > 0 }
            #expect(try fixture.text(key) == expected)
            try fixture.spillAll()
            #expect(try fixture.text(key) == expected)
            #expect(fixture.shards[0].nextAlarm == (isDelete ? .max : 99))
        }
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        #expect(try fixture.text(key) == expected)
    }

    @Test("a crash between moving rows and freeing their segment repeats the work, and revives no row")
    func crashBeforeRecycling() throws {
        let folder = try TemporaryFolder()
        let (kept, gone) = (StoreFixture.key(1), StoreFixture.key(2))
        let journal = folder.path + "/journal"
        let copy = folder.path + "/copy"
        do {
            let (fixture, gate) = try gated(folder, .ingested)
            defer { fixture.close() }
            fixture.put(kept, "kept")
            fixture.put(gone, "gone")
            fixture.delete(gone)
            try fixture.sync()
            fixture.embedded.requestSpill()
            try fixture.wait("the spill") { gate.wasReached }
            try FileManager.default.copyItem(atPath: journal, toPath: copy)
            gate.open()
        }
        // The journal as the crash would have left it, with a database that has the rows.
        try FileManager.default.removeItem(atPath: journal)
        try FileManager.default.moveItem(atPath: copy, toPath: journal)
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        #expect(fixture.embedded.recovery.batchCount == 3)
        #expect(try fixture.text(kept) == "kept")
        #expect(try fixture.text(gone) == nil)
    }

    @Test("a segment waits until the rows that replaced its own are durable")
    func unsyncedReplacement() throws {
        let folder = try TemporaryFolder()
        let key = StoreFixture.key(3)
        do {
            let fixture = try StoreFixture(StoreFixture.configuration(folder))
            defer { fixture.close() }
            fixture.put(key, "durable")
            try fixture.sync()
            fixture.put(key, "not yet", prior: .maybe(wakeAt: 0))
            fixture.embedded.requestSpill()
            try fixture.wait("the collection") { fixture.shards[0].handOverAfter != nil }
            // Closed without `turnEnded`, as in a crash: the second value was never submitted.
        }
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        #expect(try fixture.text(key) == "durable")
    }

    @Test("rows of a shard that has closed stay in the journal")
    func closedShard() throws {
        let folder = try TemporaryFolder()
        do {
            let fixture = try StoreFixture(StoreFixture.configuration(folder), shardCount: 2)
            defer { fixture.close() }
            for number in UInt64(0)..<20 { fixture.put(StoreFixture.key(number), "text") }
            try fixture.sync()
            fixture.shards[1].close()
            fixture.embedded.requestSpill()
            for _ in 0..<10 { fixture.loop.turn(waitingAtMost: 0.01) }
        }
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        for number in UInt64(0)..<20 { #expect(try fixture.text(StoreFixture.key(number)) == "text") }
    }

    @Test("a read that starts while rows leave memory finds them on disk")
    func readWhileCooling() throws {
        let folder = try TemporaryFolder()
        // One segment has all rows.
        let fixture = try StoreFixture(StoreFixture.configuration(folder, segment: 4 << 20))
        defer { fixture.close() }
        let shard = fixture.shards[0]
        let collector = ReplyCollector()
        shard.observer = collector
        let count = UInt64(fixture.embedded.sliceRowCount * 2 + 1)
        for number in 0..<count {
            fixture.put(StoreFixture.key(number), "text \(number)")
            if number % 256 == 0 { try fixture.sync() }
        }
        try fixture.sync()
        fixture.embedded.requestSpill()
        // A slice of the rows has left memory, and the others are about to.
        try fixture.wait("the first slice") { shard.youngRowCount < Int(count) }
        var tokens: [UInt64: ReadToken] = [:]
        for number in 0..<count where shard.young(StoreFixture.key(number)) != .unknown {
            tokens[number] = shard.read([.get(StoreFixture.key(number))])
            if tokens.count == 8 { break }
        }
        #expect(!tokens.isEmpty)
        // The rows leave before the replies are read.
        while !shard.cooling.isEmpty { shard.coolSlice() }
        #expect(shard.youngRowCount == 0)
        try fixture.wait("replies") { tokens.values.allSatisfy { collector.replies[$0] != nil } }
        for (number, token) in tokens { #expect(collector.replies[token] == .some("text \(number)")) }
        #expect(collector.failures.isEmpty)
    }

    @Test("a row that becomes cold is reported once, and its alarm then belongs to the store")
    func cooledAndAlarm() throws {
        let folder = try TemporaryFolder()
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        let collector = ReplyCollector()
        fixture.shards[0].observer = collector
        fixture.put(StoreFixture.key(1), "one", wakeAt: 500)
        fixture.put(StoreFixture.key(2, .counters), "two")
        try fixture.sync()
        #expect(fixture.shards[0].nextAlarm == .max)
        try fixture.spillAll()
        #expect(collector.cooled == [StoreFixture.key(1)])
        #expect(fixture.shards[0].nextAlarm == 500)
    }

    @Test("a row that left memory is found with its latest value, and not after its deletion")
    func search() throws {
        let folder = try TemporaryFolder()
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        let collector = ReplyCollector()
        let shard = fixture.shards[0]
        shard.observer = collector
        for number in UInt64(0)..<200 { fixture.put(StoreFixture.key(number), "text \(number)") }
        func found(_ text: String, bucket: UInt16 = 5) throws -> String? {
            let token = shard.read([
                .search(bucket: Bucket(bucket), table: .message) { $0.elementsEqual(text.utf8) }
            ])
            try fixture.wait("a reply") { collector.replies[token] != nil }
            return collector.replies[token] ?? nil
        }
        try fixture.sync()
        try fixture.spillAll()
        // 37 is in bucket 5 of 16.
        #expect(try found("text 37") == "text 37")
        #expect(try found("text 38") == nil && found("text 38", bucket: 6) == "text 38")
        fixture.put(StoreFixture.key(37), "other", prior: .maybe(wakeAt: 0))
        #expect(try found("text 37") == "other")
        fixture.delete(StoreFixture.key(37))
        #expect(try found("text 37") == nil)
        try fixture.sync()
        try fixture.spillAll()
        #expect(try found("text 37") == nil)
    }

    @Test("deleted rows free their space")
    func spaceComesBack() throws {
        let folder = try TemporaryFolder()
        var configuration = StoreFixture.configuration(folder, segment: 1 << 20)
        configuration.deletionsBeforeCompaction = 100
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        let text = String(repeating: "0123456789", count: 1000)
        for number in UInt64(0)..<500 { fixture.put(StoreFixture.key(number), text) }
        try fixture.sync()
        try fixture.spillAll()
        let before = fixture.embedded.statistics.rowFileByteCount
        #expect(before > 4_000_000)
        for number in UInt64(0)..<500 { fixture.delete(StoreFixture.key(number)) }
        try fixture.sync()
        try fixture.spillAll()
        try fixture.wait("the compaction") { fixture.embedded.statistics.rowFileByteCount < before / 5 }
    }

    @Test("request and trace rows expire after a day, and the absence of request ids is then known again")
    func ephemeralPeriods() throws {
        let folder = try TemporaryFolder()
        let clock = TestClock()
        var configuration = StoreFixture.configuration(folder)
        configuration.now = { clock.now }
        let known = StoreFixture.key(1, .request), other = StoreFixture.key(2, .request)
        do {
            let fixture = try StoreFixture(configuration)
            defer { fixture.close() }
            #expect(fixture.shards[0].isCertainlyAbsent(known))
            fixture.put(known, "request")
            try fixture.sync()
            try fixture.spillAll()
            #expect(!fixture.shards[0].isCertainlyAbsent(known))
            #expect(fixture.shards[0].isCertainlyAbsent(other))
            #expect(try fixture.text(known) == "request")
        }
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        // After a start the disk has to be read.
        #expect(!fixture.shards[0].isCertainlyAbsent(other))
        #expect(try fixture.text(known) == "request")
        clock.advance(hours: 5)
        try fixture.wait("the next period") { fixture.embedded.database.ephemeralFamilies.count == 2 }
        clock.advance(hours: 18)
        fixture.put(other, "other")
        try fixture.sync()
        try fixture.spillAll()
        #expect(try fixture.text(known) == "request")
        clock.advance(hours: 6)
        try fixture.wait("the end of the period") { fixture.shards[0].isCertainlyAbsent(known) }
        #expect(try fixture.text(known) == nil)
        #expect(try fixture.text(other) == "other")
        #expect(!fixture.shards[0].isCertainlyAbsent(other))
    }

    @Test("request and trace rows above their budget expire early, oldest period first")
    func ephemeralBudget() throws {
        let folder = try TemporaryFolder()
        let clock = TestClock()
        var configuration = StoreFixture.configuration(folder)
        configuration.now = { clock.now }
        configuration.traceByteLimit = 60_000
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        let text = String(repeating: "x", count: 5000)
        for number in UInt64(0)..<20 {
            fixture.put(StoreFixture.key(number, .trace), text)
            if number == 9 {
                try fixture.sync()
                try fixture.spillAll()
                clock.advance(hours: 5)
                #expect(fixture.embedded.statistics.traces.cutCount == 0)
            }
        }
        try fixture.sync()
        try fixture.spillAll()
        // The bytes are also below the budget before the second spill is counted.
        try fixture.wait("the budget") { fixture.embedded.statistics.traces.cutCount > 0 }
        #expect(fixture.embedded.statistics.traces.byteCount < 60_000)
        #expect(fixture.embedded.statistics.traces.cutCount == 1)
        #expect(try fixture.text(StoreFixture.key(3, .trace)) == nil)
        #expect(try fixture.text(StoreFixture.key(15, .trace)) == text)
    }

    @Test("writes are refused while too much is uncommitted, and accepted again")
    func uncommittedBound() throws {
        let folder = try TemporaryFolder()
        let gate = Gate()
        var configuration = StoreFixture.configuration(folder)
        configuration.uncommittedByteLimit = 1000
        configuration.committerFault = { _ in
            gate.pass()
            return nil
        }
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        defer { gate.open() }
        #expect(fixture.shards[0].acceptsWrites)
        for number in UInt64(0)..<20 { fixture.put(StoreFixture.key(number), "some text of a message") }
        #expect(!fixture.shards[0].acceptsWrites, "what the turn under way has encoded counts")
        #expect(!fixture.shards[0].hasRoomForLists)
        fixture.shards[0].turnEnded()
        #expect(!fixture.shards[0].acceptsWrites)
        gate.open()
        try fixture.sync()
        try fixture.wait("room") { fixture.shards[0].acceptsWrites }
    }

    @Test("uncommitted bytes of one loop are visible to the others, and counted once")
    func uncommittedBoundOfAll() throws {
        let folder = try TemporaryFolder()
        var configuration = StoreFixture.configuration(folder, segment: 8 << 20)
        configuration.uncommittedByteLimit = 1 << 20
        let fixture = try StoreFixture(configuration, shardCount: 2)
        defer { fixture.close() }
        let text = String(repeating: "t", count: 100_000)
        var number: UInt64 = 0
        // Even numbers are in the first shard.
        while fixture.shards[0].hasRoomForLists, number < 1_000 {
            fixture.put(StoreFixture.key(number), text)
            number += 2
        }
        #expect(fixture.shards[0].acceptsWrites, "a list leaves room for single publishes")
        #expect(!fixture.shards[1].hasRoomForLists)
        while fixture.shards[1].acceptsWrites, number < 1_000 {
            fixture.put(StoreFixture.key(number), text)
            number += 2
        }
        #expect(number < 100)
        try fixture.sync()
        try fixture.wait("room") { fixture.embedded.statistics.uncommittedByteCount == 0 }
        #expect(fixture.shards[0].acceptsWrites && fixture.shards[1].hasRoomForLists)
    }

    @Test("writes are refused while the journal is full, and accepted again once the spiller has caught up")
    func journalBound() throws {
        let folder = try TemporaryFolder()
        let gate = Gate()
        var configuration = StoreFixture.configuration(folder)
        configuration.journalByteLimit = 4 * configuration.segmentByteCount
        configuration.spillFault = { if $0 == .collected { gate.pass() } }
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        defer { gate.open() }
        let text = String(repeating: "y", count: 2000)
        var number: UInt64 = 0
        while fixture.shards[0].acceptsWrites, number < 1000 {
            fixture.put(StoreFixture.key(number), text)
            try fixture.sync()
            number += 1
        }
        #expect(!fixture.shards[0].acceptsWrites)
        gate.open()
        try fixture.wait("the spiller") { fixture.shards[0].acceptsWrites }
        #expect(try fixture.text(StoreFixture.key(0)) == text)
    }

    @Test("memory of deleted messages is reused")
    func blocksAreReused() throws {
        let folder = try TemporaryFolder()
        let fixture = try StoreFixture(StoreFixture.configuration(folder, segment: 1 << 20))
        defer { fixture.close() }
        let text = String(repeating: "z", count: 1000)
        for round in UInt64(0)..<200 {
            for number in UInt64(0)..<20 { fixture.put(StoreFixture.key(round * 20 + number), text) }
            for number in UInt64(0)..<20 { fixture.delete(StoreFixture.key(round * 20 + number)) }
            try fixture.sync()
        }
        #expect(fixture.shards[0].youngRowCount == 0)
        #expect(fixture.shards[0].blockByteCount < 1 << 20)
    }

    @Test("a batch larger than a block is still one batch")
    func largeBatch() throws {
        let folder = try TemporaryFolder()
        let configuration = StoreFixture.configuration(folder, segment: 1 << 20)
        let texts = (0..<6).map { String(repeating: "\($0)", count: 10 + $0 * 25_000) }
        do {
            let fixture = try StoreFixture(configuration)
            defer { fixture.close() }
            let shard = fixture.shards[0]
            shard.beginBatch(Bucket(3))
            for (item, text) in texts.enumerated() {
                let key = StoreKey(Bucket(3), .message, ownerHigh: 1, ownerLow: 1, item: UInt64(item))
                shard.put(key, wakeAt: 0, prior: .none, byteCount: text.utf8.count) { $0.copyBytes(from: text.utf8) }
            }
            _ = shard.endBatch()
            try fixture.sync()
        }
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        #expect(fixture.embedded.recovery.batchCount == 1)
        for (item, text) in texts.enumerated() {
            let key = StoreKey(Bucket(3), .message, ownerHigh: 1, ownerLow: 1, item: UInt64(item))
            #expect(try fixture.text(key) == text)
        }
    }
}

final class TestClock: @unchecked Sendable {
    // `@unchecked Sendable` is sound because `time` is used only under the lock.
    private let lock = NSLock()
    private var time: Int64 = 1_700_000_000_000
    var now: Int64 { lock.withLock { time } }
    func advance(hours: Int64) { lock.withLock { time += hours * 3_600_000 } }
}
