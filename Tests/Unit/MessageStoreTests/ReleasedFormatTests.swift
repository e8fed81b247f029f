import Foundation
import Platform
import Testing
import Wire

@testable import Delivery
@testable import MessageStore

/// Data folders written by released versions, each with every row in it.
///
/// The fixtures are in `Tests/Support/Fixtures/store-format-N`, each a store's folder as text with its rows beside it, and are
/// never rewritten. When the format changes, raise `EmbeddedStore.formatVersion` and let `LONGWIRE_MAKE_FIXTURE=1 swift test
/// --filter ReleasedFormatTests` write the next one. The test of the old fixture stays and shows that the new code reads it.
@Suite("Released store formats")
struct ReleasedFormatTests {
    static let time: Int64 = 1_795_000_000_000
    static let fixtures = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("Support/Fixtures")

    static func folder(_ version: Int) -> URL { fixtures.appendingPathComponent("store-format-\(version)") }

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
        // This table is newer than the fixture.
        for table in StoreKey.Table.allCases where table != .attributes {
            #expect(lines.contains { $0.contains(" \(table) ") }, "no \(table)")
        }
        let now = try String(contentsOfFile: temporary.path + "/format", encoding: .utf8)
        #expect(now == "longwire store \(EmbeddedStore.formatVersion)\n", "an older version must refuse it from now on")
    }

    @Test(
        "a new format gets a new fixture beside the old ones",
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

    /// Returns every row of the tables that can be listed, and the rows of other tables that `ephemeral` names.
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
        // A row that is replaced later has another value first.
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
