import Foundation
import Platform
import Testing
import Wire

@testable import Delivery
@testable import MessageStore

/// Data folders as released versions wrote them, each with every row that it holds.
///
/// They stand under `Tests/Fixtures/store-format-N`, the folder as text and its rows beside it, and are never rewritten.
/// When the format changes, raise `EmbeddedStore.formatVersion` and let `LONGWIRE_MAKE_FIXTURE=1 swift test --filter
/// ReleasedFormatTests` write the next one. The test of the old one stays and shows that the new code reads it.
@Suite("Released store formats")
struct ReleasedFormatTests {
    static let time: Int64 = 1_795_000_000_000
    static let fixtures = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Fixtures")

    static func folder(_ version: Int) -> URL { fixtures.appendingPathComponent("store-format-\(version)") }

    /// The format that first had this table.
    private static func firstVersion(of table: StoreKey.Table) -> Int {
        switch table {
        case .alias, .tag: 2
        case .task, .taskMessage, .taskEvent, .taskTargets, .taskGroup, .singleTask: 3
        case .broadcast: 4
        case .feed, .upstream, .event: 9
        default: 1
        }
    }

    private static func configuration(_ folder: TemporaryFolder) -> EmbeddedStore.Configuration {
        var configuration = StoreFixture.configuration(folder)
        configuration.now = { time }
        return configuration
    }

    @Test(
        "the current format has its fixture, and every fixture opens with every row",
        arguments: 1...EmbeddedStore.formatVersion)
    func opens(version: Int) throws {
        let temporary = try TemporaryFolder()
        let source = Self.folder(version)
        let text = try String(contentsOf: source.appendingPathComponent("store.txt"), encoding: .utf8)
        try FolderText.unpack(text, into: temporary.path)
        let format = try String(contentsOfFile: temporary.path + "/format", encoding: .utf8)
        #expect(format == "longwire store \(version)\n")
        let journal = try FileManager.default.contentsOfDirectory(atPath: temporary.path + "/journal")
        let rows = try FileManager.default.contentsOfDirectory(atPath: temporary.path + "/rows")
        #expect(journal.contains { $0.hasPrefix("segment-") } && rows.contains { $0.hasSuffix(".sst") })

        let lines = try String(contentsOf: source.appendingPathComponent("rows.txt"), encoding: .utf8)
            .split(separator: "\n").filter { !$0.hasPrefix("#") }.map(String.init)
        let fixture = try StoreFixture(Self.configuration(temporary))
        defer { fixture.close() }
        #expect(fixture.embedded.recovery.batchCount > 0)
        #expect(lines.count > 20)
        let found = try Self.readAll(fixture, ephemeral: lines)
        #expect(found == lines)
        for table in StoreKey.Table.allCases where version >= Self.firstVersion(of: table) {
            #expect(lines.contains { $0.contains(" \(table) ") }, "no \(table)")
        }
        let now = try String(contentsOfFile: temporary.path + "/format", encoding: .utf8)
        #expect(now == "longwire store \(EmbeddedStore.formatVersion)\n", "an older version must refuse it from now on")
    }

    /// Up to format 4 the rows that a start reads whole were in the ordered store among all others.
    private static func writeAsFormat4(_ rows: [StoreKey: String], _ folder: TemporaryFolder) throws {
        try StoreFixture(configuration(folder)).close()
        let database = try RowDatabase(path: folder.path + "/rows", cacheByteCount: 1 << 20)
        defer { database.close() }
        // A start of format 5 that was cut off, and then the older version deleted the row.
        let stale = [StoreKey(Bucket(9), .meta, ownerHigh: 1, ownerLow: 1): "stale"]
        for (rows, family) in [(rows, database.rows), (stale, database.start)] {
            var writer = try SortedFileWriter(database, path: folder.path + "/spill/old.sst")
            var keyBytes = [UInt8](repeating: 0, count: KeyCoding.rowKeyByteCount)
            for key in rows.keys.sorted() {
                keyBytes.withUnsafeMutableBytes { if let start = $0.baseAddress { KeyCoding.write(key, to: start) } }
                let stored = [UInt8](repeating: 0, count: KeyCoding.rowPrefixByteCount) + Array((rows[key] ?? "").utf8)
                try keyBytes.withUnsafeBytes { key in try stored.withUnsafeBytes { try writer.put(key, $0) } }
            }
            try writer.finish()
            try database.ingest([writer.path], into: family)
        }
        try "longwire store 4\n".write(toFile: folder.path + "/format", atomically: true, encoding: .utf8)
    }

    #if DEBUG
    @Test(
        "what a start of format 5 reads whole is moved from where format 4 had it, though any call of that start fails")
    func movesStartRows() throws {
        var rows: [StoreKey: String] = [:]
        for bucket in stride(from: UInt16(0), to: UInt16(Bucket.count), by: 511) {
            for table in StoreKey.Table.allCases where table.isReadAtStart {
                rows[StoreKey(Bucket(bucket), table, ownerHigh: 7, ownerLow: UInt64(bucket))] = "\(table) \(bucket)"
            }
            // Others stay where they are.
            rows[StoreKey(Bucket(bucket), .device, ownerHigh: 7, ownerLow: UInt64(bucket))] = "device \(bucket)"
        }
        var number = 1
        var isOver = false
        while !isOver {
            let temporary = try TemporaryFolder()
            try Self.writeAsFormat4(rows, temporary)
            let plan = FaultPlan(folder: temporary.path, kind: .error(5), at: number, extent: .fromThereOn)
            var configuration = Self.configuration(temporary)
            configuration.fatal = { _ in }
            do {
                try StoreFixture(configuration).close()
                isOver = plan.hits.isEmpty
            } catch is StoreError {}
            plan.remove()
            let fixture = try StoreFixture(Self.configuration(temporary))
            defer { fixture.close() }
            var found: [StoreKey: String] = [:]
            for table in StoreKey.Table.allCases where !table.isEphemeral {
                try fixture.shards[0].loadAll(table: table) {
                    found[$0.key] = String(decoding: $0.value, as: UTF8.self)
                }
            }
            #expect(found == rows, "call \(number): \(plan.hits.first ?? "none")")
            for key in rows.keys { #expect(try fixture.text(key) == rows[key]) }
            // Most of the later calls look for such rows in bucket after bucket.
            number += max(1, number / 8)
        }
        #expect(number > 1_000)
    }
    #endif

    @Test(
        "a new format gets a new fixture, beside the old ones",
        .enabled(if: ProcessInfo.processInfo.environment["LONGWIRE_MAKE_FIXTURE"] == "1"))
    func make() throws {
        let target = Self.folder(EmbeddedStore.formatVersion)
        try #require(!FileManager.default.fileExists(atPath: target.path), "\(target.path) is there: never rewritten")
        let temporary = try TemporaryFolder()
        let rows = FixtureRows.all(at: Self.time)
        do {
            let fixture = try StoreFixture(Self.configuration(temporary))
            defer { fixture.close() }
            let half = rows.count / 2
            for row in rows[..<half] { fixture.put(row, "older ") }
            try fixture.sync()
            try fixture.spillAll()
            for row in rows[..<half] where row.key.table == .counters || row.key.table == .device { fixture.put(row) }
            for row in rows[half...] { fixture.put(row) }
            fixture.delete(rows[0].key, prior: .maybe(wakeAt: rows[0].wakeAt))
            try fixture.sync()
        }
        let text = try FolderText.pack(temporary.path)
        let fixture = try StoreFixture(Self.configuration(temporary))
        defer { fixture.close() }
        let ephemeral = rows.filter { $0.key.table.isEphemeral }.map { Self.line($0.key, 0, $0.value) }
        let lines = try Self.readAll(fixture, ephemeral: ephemeral)
        let head = "# bucket table owner item wakeAt | what it says | its bytes\n"
        try FileManager.default.createDirectory(at: target, withIntermediateDirectories: true)
        try text.write(to: target.appendingPathComponent("store.txt"), atomically: true, encoding: .utf8)
        try (head + lines.joined(separator: "\n") + "\n")
            .write(to: target.appendingPathComponent("rows.txt"), atomically: true, encoding: .utf8)
    }

    // MARK: Rows as text

    /// Every row of the tables that can be listed, and those of the others that `ephemeral` names.
    private static func readAll(_ fixture: StoreFixture, ephemeral: [String]) throws -> [String] {
        var found: [(key: StoreKey, line: String)] = []
        for table in StoreKey.Table.allCases where !table.isEphemeral {
            try fixture.shards[0].loadAll(table: table) { row in
                found.append((row.key, line(row.key, row.wakeAt, Array(row.value))))
            }
        }
        for key in ephemeral.compactMap(key) where key.table.isEphemeral {
            if let value = try fixture.bytes(key) { found.append((key, line(key, 0, value))) }
        }
        return found.sorted { $0.key < $1.key }.map(\.line)
    }

    static func line(_ key: StoreKey, _ wakeAt: Int64, _ value: [UInt8]) -> String {
        func hex(_ word: UInt64) -> String { String(word, radix: 16) }
        let name = "\(key.bucket.index) \(key.table) \(hex(key.ownerHigh)).\(hex(key.ownerLow)) \(key.item) \(wakeAt)"
        let bytes = value.map { String(UInt16($0) + 256, radix: 16).dropFirst() }.joined()
        return "\(name) | \(FixtureRows.summary(key, value)) | \(bytes)"
    }

    static func key(_ line: String) -> StoreKey? {
        let words = line.split(separator: " ")
        guard words.count > 4, let bucket = UInt16(words[0]),
            let table = StoreKey.Table.allCases.first(where: { "\($0)" == words[1] }), let item = UInt64(words[3])
        else { return nil }
        let owner = words[2].split(separator: ".").compactMap { UInt64($0, radix: 16) }
        guard owner.count == 2 else { return nil }
        return StoreKey(Bucket(bucket), table, ownerHigh: owner[0], ownerLow: owner[1], item: item)
    }
}

extension StoreFixture {
    fileprivate func put(_ row: FixtureRows.Row, _ mark: String = "") {
        let shard = shard(of: row.key.bucket)
        // What is replaced later was something else before.
        let isReplaced = !mark.isEmpty && (row.key.table == .counters || row.key.table == .device)
        let value = isReplaced ? Array(mark.utf8) : row.value
        shard.beginBatch(row.key.bucket)
        let prior: PriorRow = .maybe(wakeAt: isReplaced ? 0 : row.wakeAt)
        shard.put(row.key, wakeAt: row.wakeAt, prior: prior, byteCount: value.count) { $0.copyBytes(from: value) }
        _ = shard.endBatch()
    }

    fileprivate func bytes(_ key: StoreKey) throws -> [UInt8]? {
        final class Answer: ShardStoreObserver {
            var reply: StoreReply?
            func storeCommitted(upTo ticket: Ticket) {}
            func storeCooled(_ key: StoreKey) {}
            func storeReplied(_ reply: StoreReply) { self.reply = reply }
        }
        let answer = Answer()
        let shard = shard(of: key.bucket)
        shard.observer = answer
        _ = shard.read([.get(key)])
        try wait("a reply") { answer.reply != nil }
        guard case .row(let row?)? = answer.reply?.results.first else { return nil }
        return Array(row.value)
    }
}
