import Delivery
import Foundation
import Platform
import TestKit
import Testing
import Wire

@testable import MessageStore

extension StoreFixture {
    static func key(_ number: UInt64, _ table: StoreKey.Table = .message) -> StoreKey {
        let bucket = Bucket(UInt16(number % 16))
        return table == .message
            ? StoreKey(bucket, table, ownerHigh: 1, ownerLow: number, item: number)
            : StoreKey(bucket, table, ownerHigh: number &* 0x9E37_79B9_7F4A_7C15, ownerLow: number)
    }

    func put(_ key: StoreKey, _ text: String, wakeAt: Int64 = 0, prior: PriorRow = .none) {
        let shard = shard(of: key.bucket)
        shard.beginBatch(key.bucket)
        shard.put(key, wakeAt: wakeAt, prior: prior, byteCount: text.utf8.count) { $0.copyBytes(from: text.utf8) }
        _ = shard.endBatch()
    }

    func delete(_ key: StoreKey, prior: PriorRow = .maybe(wakeAt: 0)) {
        let shard = shard(of: key.bucket)
        shard.beginBatch(key.bucket)
        shard.delete(key, prior: prior)
        _ = shard.endBatch()
    }

    func sync() throws { try sync(shards.map(\.lastTicket)) }

    /// Returns the row's value through a read, as after a restart.
    func text(_ key: StoreKey) throws -> String? {
        let collector = ReplyCollector()
        let shard = shard(of: key.bucket)
        shard.observer = collector
        let token = shard.read([.get(key)])
        try wait("a reply") { collector.replies[token] != nil }
        if let failure = collector.failures.first { throw WaitFailed(description: failure) }
        return collector.replies[token] ?? nil
    }
}

final class ReplyCollector: ShardStoreObserver {
    var replies: [ReadToken: String?] = [:]
    var failures: [String] = []
    var cooled: [StoreKey] = []
    func storeCommitted(upTo ticket: Ticket) {}
    func storeCooled(_ key: StoreKey) { cooled.append(key) }
    func storeReplied(_ reply: StoreReply) {
        if let failure = reply.failure { failures.append(failure) }
        guard case .row(let row)? = reply.results.first else { return }
        replies[reply.token] = .some(row.map { String(decoding: $0.value, as: UTF8.self) })
    }
}

@Suite("Embedded store: opening and recovery")
struct StoreRecoveryTests {
    @Test("rows are recovered under any number of shards, from the journal and from the ordered store")
    func otherShardCount() throws {
        let folder = try TemporaryFolder()
        for (round, shardCount) in [3, 1, 4].enumerated() {
            let fixture = try StoreFixture(StoreFixture.configuration(folder), shardCount: shardCount)
            defer { fixture.close() }
            for number in UInt64(0)..<40 where round > 0 {
                #expect(try fixture.text(StoreFixture.key(number)) == "round \(round - 1)")
            }
            for number in UInt64(0)..<40 {
                fixture.put(StoreFixture.key(number), "round \(round)", prior: round == 0 ? .none : .maybe(wakeAt: 0))
            }
            try fixture.sync()
            if round == 1 { try fixture.spillAll() }
        }
    }

    #if DEBUG
    @Test("a start syncs the journal to disk before it moves any of it")
    func journalIsSyncedFirst() throws {
        let folder = try TemporaryFolder()
        let configuration = StoreFixture.configuration(folder)
        let first = try StoreFixture(configuration)
        for number in UInt64(0)..<40 { first.put(StoreFixture.key(number), "row") }
        try first.sync()
        first.close()
        let syncs = FaultPlan(folder: folder.path + "/journal", kind: .error(5), at: 1, extent: .once) {
            $0 == "fdatasync"
        }
        let moves = FaultPlan(folder: folder.path, kind: .error(5), at: .max, extent: .once) { $0 == "rocksdb ingest" }
        do {
            try EmbeddedStore(configuration).close()
            Issue.record("nothing was synced")
        } catch {
            #expect("\(error)".contains("fdatasync"))
        }
        syncs.remove()
        moves.remove()
        #expect(moves.callCount == 0)
        let again = try StoreFixture(configuration)
        defer { again.close() }
        for number in UInt64(0)..<40 { #expect(try again.text(StoreFixture.key(number)) == "row") }
    }
    #endif

    @Test("a second opener is refused with the name of the first")
    func secondOpener() throws {
        let folder = try TemporaryFolder()
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        let expected = StoreError.inUse(folder: folder.path, process: ProcessInfo.processInfo.processIdentifier)
        #expect(throws: expected) { try EmbeddedStore(StoreFixture.configuration(folder)) }
        #expect(expected.description.contains("process \(ProcessInfo.processInfo.processIdentifier)"))
    }

    @Test("a newer format is refused, and the folder does not change")
    func newerFormat() throws {
        let folder = try TemporaryFolder()
        let newer = EmbeddedStore.formatVersion + 1
        try "longwire store \(newer)\n".write(toFile: folder.path + "/format", atomically: true, encoding: .utf8)
        let expected = StoreError.newerFormat(folder: folder.path, found: newer, supported: newer - 1)
        #expect(throws: expected) {
            try EmbeddedStore(StoreFixture.configuration(folder))
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() == ["format", "lock"])
    }

    @Test("an invalid format file is refused", arguments: ["hello\n", "longwire store 0\n"])
    func unknownFormat(text: String) throws {
        let folder = try TemporaryFolder()
        try text.write(toFile: folder.path + "/format", atomically: true, encoding: .utf8)
        #expect(throws: StoreError.unknownFormat(file: folder.path + "/format")) {
            try EmbeddedStore(StoreFixture.configuration(folder))
        }
    }

    @Test("a folder that cannot be created is a clear error")
    func impossibleFolder() throws {
        let folder = try TemporaryFolder()
        try "".write(toFile: folder.path + "/file", atomically: true, encoding: .utf8)
        var configuration = StoreFixture.configuration(folder)
        configuration.folder = folder.path + "/file/store"
        #expect(throws: StoreError.self) { try EmbeddedStore(configuration) }
    }

    @Test("damage in synced data is refused, and changes nothing")
    func damagedJournal() throws {
        let folder = try TemporaryFolder()
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        for number in UInt64(0)..<3 {
            fixture.put(StoreFixture.key(number), "text")
            try fixture.sync()
        }
        fixture.close()
        let journal = folder.path + "/journal/"
        let name = try #require(
            try FileManager.default.contentsOfDirectory(atPath: journal).first { $0.hasPrefix("segment-") })
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: journal + name)))
        bytes[64 + 50] ^= 1
        try Data(bytes).write(to: URL(fileURLWithPath: journal + name))
        let error = #expect(throws: StoreError.self) { try EmbeddedStore(StoreFixture.configuration(folder)) }
        guard case .damagedJournal(let file, let offset, _)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(file == journal + name && offset == 64)
        #expect([UInt8](try Data(contentsOf: URL(fileURLWithPath: journal + name))) == bytes)
    }

    @Test("counters and facts are loaded for a shard's own buckets")
    func loadAll() throws {
        let folder = try TemporaryFolder()
        do {
            let fixture = try StoreFixture(StoreFixture.configuration(folder))
            defer { fixture.close() }
            for number in UInt64(0)..<32 { fixture.put(StoreFixture.key(number, .counters), "\(number)") }
            try fixture.sync()
        }
        let fixture = try StoreFixture(StoreFixture.configuration(folder), shardCount: 3)
        defer { fixture.close() }
        var all: [String] = []
        for (index, shard) in fixture.shards.enumerated() {
            try shard.loadAll(table: .counters) { row in
                #expect(row.key.bucket.loop(of: 3) == index)
                all.append(String(decoding: row.value, as: UTF8.self))
            }
        }
        #expect(all.compactMap { Int($0) }.sorted() == Array(0..<32))
    }

    @Test("a full disk ends the store with that reason, and no batch commits afterwards")
    func failingCommit() throws {
        let folder = try TemporaryFolder()
        let reported = ErrorBox()
        var configuration = StoreFixture.configuration(folder)
        configuration.committerFault = { $0 == 2 ? .init(code: 28) : nil }
        configuration.fatal = { reported.set($0) }
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        fixture.put(StoreFixture.key(1), "kept")
        try fixture.sync()
        fixture.put(StoreFixture.key(2), "lost")
        for shard in fixture.shards { shard.turnEnded() }
        try fixture.wait("the failure") { reported.value != nil }
        guard case .diskFull? = reported.value else {
            Issue.record("\(String(describing: reported.value))")
            return
        }
        #expect(fixture.shards[0].committedTicket == 1)
    }
}

/// Passes an error from a thread of the store to the test.
final class ErrorBox: @unchecked Sendable {
    // `@unchecked Sendable` is sound because `error` is used only under the lock.
    private let lock = NSLock()
    private var error: StoreError?
    func set(_ error: StoreError) { lock.withLock { self.error = error } }
    func clear() { lock.withLock { error = nil } }
    var value: StoreError? { lock.withLock { error } }
}

@Suite("Embedded store: a damaged database")
struct DamagedDatabaseTests {
    /// Returns a closed store whose rows are in the database.
    private func spilled() throws -> TemporaryFolder {
        let folder = try TemporaryFolder()
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        for number in UInt64(0)..<10 { fixture.put(StoreFixture.key(number), "text") }
        try fixture.sync()
        try fixture.spillAll()
        return folder
    }

    private func expectRefusal(_ folder: TemporaryFolder) throws {
        let before = ((try? FileManager.default.contentsOfDirectory(atPath: folder.path + "/rows")) ?? []).filter {
            $0.hasSuffix(".sst")
        }
        let error = #expect(throws: StoreError.self) { try EmbeddedStore(StoreFixture.configuration(folder)) }
        guard case .damagedDatabase(let named, _)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(named == folder.path + "/rows" && error?.description.contains("backup") == true)
        let after = try FileManager.default.contentsOfDirectory(atPath: folder.path + "/rows")
        for file in before { #expect(after.contains(file), "\(file) is gone") }
    }

    @Test("a first start interrupted by a power failure during the database's creation leaves a new store")
    func unfinishedDatabase() throws {
        let folder = try TemporaryFolder()
        try EmbeddedStore(StoreFixture.configuration(folder)).close()
        let files = FileManager.default
        for name in try files.contentsOfDirectory(atPath: folder.path) where name != "rows" && name != "format" {
            try files.removeItem(atPath: folder.path + "/" + name)
        }
        let rows = folder.path + "/rows/"
        for name in try files.contentsOfDirectory(atPath: rows) where name.hasPrefix("MANIFEST") {
            try files.removeItem(atPath: rows + name)
        }
        try EmbeddedStore(StoreFixture.configuration(folder)).close()
    }

    @Test("a database without its file CURRENT is refused, and keeps its tables")
    func missingRoot() throws {
        let folder = try spilled()
        try FileManager.default.removeItem(atPath: folder.path + "/rows/CURRENT")
        try expectRefusal(folder)
    }

    @Test("a missing database is refused")
    func missingFolder() throws {
        let folder = try spilled()
        try FileManager.default.removeItem(atPath: folder.path + "/rows")
        try expectRefusal(folder)
    }

    @Test("a missing manifest or table is refused", arguments: ["MANIFEST", ".sst"])
    func missingFile(part: String) throws {
        let folder = try spilled()
        let rows = folder.path + "/rows/"
        let name = try #require(
            try FileManager.default.contentsOfDirectory(atPath: rows).first { $0.contains(part) })
        try FileManager.default.removeItem(atPath: rows + name)
        try expectRefusal(folder)
    }

    @Test("an unreadable format file is not mistaken for a missing one")
    func unreadableFormat() throws {
        let folder = try spilled()
        let path = folder.path + "/format"
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        #expect(throws: StoreError.self) { try EmbeddedStore(StoreFixture.configuration(folder)) }
        var isDirectory: ObjCBool = false
        #expect(FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory) && isDirectory.boolValue)
    }

    @Test("a copy of a segment under another number restores and removes nothing")
    func copiedSegment() throws {
        let folder = try TemporaryFolder()
        do {
            let fixture = try StoreFixture(StoreFixture.configuration(folder))
            defer { fixture.close() }
            fixture.put(StoreFixture.key(1), "first")
            fixture.put(StoreFixture.key(1), "second", prior: .maybe(wakeAt: 0))
            try fixture.sync()
        }
        let journal = folder.path + "/journal/"
        let name = try #require(
            try FileManager.default.contentsOfDirectory(atPath: journal).first { $0.hasPrefix("segment-") })
        for copy in ["segment-00000000000000ff", "segment-0000000000000000"] {
            try FileManager.default.copyItem(atPath: journal + name, toPath: journal + copy)
        }
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        #expect(fixture.embedded.recovery.batchCount == 2)
        #expect(try fixture.text(StoreFixture.key(1)) == "second")
    }

    @Test(
        "a start finds every alarm of any bucket once, the earliest first, and no read scans everything"
    )
    func alarmsOfManyBuckets() throws {
        final class Alarms: ShardStoreObserver {
            var replies: [ReadToken: (keys: [StoreKey], isComplete: Bool)] = [:]
            func storeCommitted(upTo ticket: Ticket) {}
            func storeCooled(_ key: StoreKey) {}
            func storeReplied(_ reply: StoreReply) {
                guard case .rows(let rows, let isComplete)? = reply.results.first else { return }
                replies[reply.token] = (rows.map(\.key), isComplete)
            }
        }
        let folder = try TemporaryFolder()
        let keys = stride(from: UInt64(0), to: UInt64(Bucket.count), by: 3).map {
            StoreKey(Bucket(UInt16($0)), .job, ownerHigh: $0 << 52, ownerLow: $0)
        }
        do {
            let fixture = try StoreFixture(StoreFixture.configuration(folder))
            defer { fixture.close() }
            // One of three rows is due later. The others are due earlier the higher their bucket is.
            for (number, key) in keys.enumerated() {
                fixture.put(key, "row", wakeAt: number % 3 == 0 ? 10_000 : 5_000 - Int64(number))
            }
            try fixture.sync()
        }
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        let shard = fixture.shards[0]
        let observer = Alarms()
        shard.observer = observer
        var found: [StoreKey] = []
        func ask(upTo time: Int64) throws -> Int {
            var count = 0
            while true {
                #expect(shard.nextAlarm <= time)
                let token = shard.requestAlarms(upTo: time, limit: 50)
                count += 1
                try fixture.wait("alarms") { observer.replies[token] != nil }
                let reply = try #require(observer.replies[token])
                #expect(reply.keys.count <= 50)
                found += reply.keys
                if reply.isComplete { return count }
            }
        }
        let readCount = try ask(upTo: 9_999)
        // No read scans everything.
        #expect(readCount >= Bucket.count / Limits.bucketsPerAlarmRead)
        #expect(found == keys.enumerated().filter { $0.offset % 3 != 0 }.map(\.element).reversed())
        #expect(shard.nextAlarm == 10_000)
        _ = try ask(upTo: 10_000)
        #expect(Set(found) == Set(keys) && found.count == keys.count)
        #expect(shard.nextAlarm == .max)
    }

    @Test("buckets whose alarms cannot be read do not delay the others")
    func failingAlarmReads() {
        var clock = AlarmClock(shardIndex: 0, shardCount: 1, hasAlarms: true)
        var looked: Set<UInt16> = []
        var reads = 0
        while clock.next <= 1_000, reads < 1_000 {
            reads += 1
            var work = clock.makeWork(AlarmRequest(upTo: 1_000, limit: 10))
            // In place of the reader: bucket 3 and every hundredth bucket cannot be read.
            for index in work.scans.indices {
                work.underWay = index
                let bucket = work.scans[index].bucket
                if bucket == 3 || bucket % 100 == 0 { break }
                work.scans[index].wasRead = true
                work.scans[index].nextAlarm = 2_000 + Int64(bucket)
                looked.insert(bucket)
            }
            if work.scans.allSatisfy(\.wasRead) { work.underWay = nil }
            clock.finish(work)
        }
        #expect(looked.count == Bucket.count - 42)
        #expect(clock.next == 2_001)
        // The failed buckets are read again when no other alarm is due.
        let before = clock.makeWork(AlarmRequest(upTo: 2_000, limit: 10))
        #expect(before.scans.isEmpty)
        var again: Set<UInt16> = []
        while again.count < 42 {
            var work = clock.makeWork(AlarmRequest(upTo: 1_000 + Limits.alarmRetryMilliseconds, limit: 10))
            guard !work.scans.isEmpty else { break }
            for index in work.scans.indices {
                let bucket = work.scans[index].bucket
                if bucket == 3 || bucket % 100 == 0 { again.insert(bucket) }
                work.scans[index].wasRead = true
            }
            clock.finish(work)
        }
        #expect(again.count == 42)
    }

    @Test("a folder that has lost its format file is refused, and does not change")
    func lostFormat() throws {
        let folder = try TemporaryFolder()
        try StoreFixture(StoreFixture.configuration(folder)).close()
        try FileManager.default.removeItem(atPath: folder.path + "/format")
        #expect(throws: StoreError.missingFormat(file: folder.path + "/format")) {
            _ = try StoreFixture(StoreFixture.configuration(folder))
        }
        #expect(!FileManager.default.fileExists(atPath: folder.path + "/format"))
    }
}
