import Delivery
import Foundation
import TestKit
import Testing
import TextForms
import Wire

@testable import CommandLineTool
@testable import MessageStore

@Suite("Copying a store")
final class StoreCopyTests {
    private let folder = FileManager.default.temporaryDirectory.appendingPathComponent(
        "longwire-copy-\(UUID().uuidString)")

    init() throws { try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true) }
    deinit { try? FileManager.default.removeItem(at: folder) }

    func path(_ name: String) -> String { folder.appendingPathComponent(name).path }

    /// Writes rows of every table into a store; returns all of its rows.
    func fill(_ path: String, seed: UInt64, count: Int = 3_000) throws -> [StoreKey: [UInt8]] {
        var random = SeededGenerator(seed: seed)
        var rows: [StoreKey: CopiedRow] = [:]
        for number in 0..<count {
            let table = StoreKey.Table.allCases[number % StoreKey.Table.allCases.count]
            let bucket = table == .meta ? Bucket(0) : Bucket(UInt16(random.next() % UInt64(Bucket.count)))
            let key = StoreKey(
                bucket, table, ownerHigh: random.next(), ownerLow: random.next(),
                item: table.hasItems ? random.next() % 100 : 0)
            var value = (0..<Int(random.next() % 200)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            if table == .counters { value = CounterChange().added(to: nil, key) }
            let wakeAt = table.hasAlarms && random.next() % 2 == 0 ? Int64(random.next() % 1_000_000) : 0
            rows[key] = value.withUnsafeBytes { CopiedRow(StoredRow(key: key, wakeAt: wakeAt, value: $0)) }
        }
        let place = EmbeddedPlace(path)
        defer { place.close() }
        try place.beginWriting(from: "a test", isReplacing: false)
        try place.write(Array(rows.values))
        try place.finishWriting()
        try place.complete()
        return rows.mapValues(\.value)
    }

    func read(_ path: String) throws -> [StoreKey: [UInt8]] {
        let place = EmbeddedPlace(path)
        defer { place.close() }
        try place.beginReading(for: "a test")
        var found: [StoreKey: [UInt8]] = [:]
        try place.visitRows { found[$0.key] = Array($0.value) }
        return found
    }

    func longwire(_ words: String...) -> (code: ExitCode, text: String) { longwire(words) }

    func longwire(_ words: [String]) -> (code: ExitCode, text: String) {
        final class Lines: @unchecked Sendable {
            // `@unchecked Sendable` is sound because the command runs on one thread.
            var all: [String] = []
        }
        let lines = Lines()
        let context = CommandContext(
            environment: [:], readInput: { [] }, write: { lines.all.append($0) }, complain: { lines.all.append($0) })
        let code = CommandLineTool.run(words, in: context)
        return (code, lines.all.joined(separator: "\n"))
    }

    @Test("a copy has every row of every table and reports it")
    func copies() throws {
        let rows = try fill(path("a"), seed: 1)
        let result = longwire("store", "copy", path("a"), path("b"))
        #expect(result.code == .done, "\(result.text)")
        #expect(result.text.contains("copied \(rows.count) rows") && result.text.contains("the stores are the same"))
        for table in StoreKey.Table.allCases {
            #expect(result.text.contains("\(table): \(rows.keys.count { $0.table == table }) rows"))
        }
        #expect(try read(path("b")) == rows)
    }

    @Test("a folder that cannot be read is not reported as one without a store")
    func unreadable() throws {
        let file = path("file")
        try "x".write(toFile: file, atomically: true, encoding: .utf8)
        for command in [
            ["check", file], ["stats", file], ["export", file, path("x")], ["copy", file, path("c")],
            ["backup", path("k"), "--from", file],
        ] {
            let result = longwire(["store"] + command)
            #expect(result.code != .done && result.text.contains("cannot be read: Not a directory"), "\(result.text)")
            #expect(!result.text.contains("there is no store"))
        }
        let restore = longwire("store", "restore", file, path("r"))
        #expect(restore.text.contains("cannot be read: Not a directory"), "\(restore.text)")
    }

    @Test("a store in use, a target with content and a missing store are refused without changes")
    func refusals() throws {
        let rows = try fill(path("a"), seed: 2, count: 200)
        _ = try fill(path("b"), seed: 3, count: 40)
        let notEmpty = longwire("store", "copy", path("a"), path("b"))
        #expect(notEmpty.code == .refused && notEmpty.text.contains("is not empty"), "\(notEmpty.text)")
        let none = longwire("store", "copy", path("none"), path("c"))
        #expect(none.code == .refused && none.text.contains("there is no store in"), "\(none.text)")
        #expect(
            !FileManager.default.fileExists(atPath: path("none")) && !FileManager.default.fileExists(atPath: path("c")))
        #expect(longwire("store", "copy", path("a"), path("a")).code == .usage)
        let place = EmbeddedPlace(path("a"))
        try place.beginReading(for: "a test")
        let used = longwire("store", "copy", path("a"), path("c"))
        place.close()
        #expect(used.code == .refused && used.text.contains(path("a")), "\(used.text)")
        #expect(longwire("store", "copy", path("a"), path("c")).text.contains("copied \(rows.count) rows"))
    }

    @Test("a copy that differs is detected", arguments: ["lost", "changed", "moved", "added"])
    func differences(fault: String) throws {
        _ = try fill(path("a"), seed: 4, count: 400)
        let source = EmbeddedPlace(path("a"))
        let target = FaultyPlace(EmbeddedPlace(path("b")), fault)
        #expect(throws: CopyFailure.self) { _ = try StoreCopy.run(from: source, to: target, report: { _ in }) }
        source.close()
        target.close()
        // The target is not a valid store until a copy has succeeded.
        #expect(longwire("store", "copy", path("b"), path("c")).text.contains("is a copy that did not end"))
        #expect(longwire("store", "copy", path("a"), path("b")).text.contains("run it again with --replace"))
        #expect(longwire("store", "copy", path("a"), path("b"), "--replace").code == .done)
        #expect(try read(path("b")) == read(path("a")))
    }

    @Test("a store is replaced on request and keeps its owner number")
    func replaces() throws {
        let rows = try fill(path("a"), seed: 5, count: 300)
        _ = try fill(path("b"), seed: 6, count: 500)
        let result = longwire("store", "copy", path("a"), path("b"), "--replace")
        #expect(result.code == .done, "\(result.text)")
        #expect(try read(path("b")) == rows)
        func epoch(_ name: String) throws -> Int? {
            let text = try String(contentsOfFile: path(name) + "/epoch", encoding: .utf8)
            return text.split(separator: " ").last.flatMap { Int($0.dropLast()) }
        }
        #expect(try #require(try epoch("b")) > 2)
    }

    @Test("a row that the source lost on its disk stops the copy")
    func damage() throws {
        _ = try fill(path("a"), seed: 7)
        // Opening the store again moves the journal's rows to RocksDB's files.
        #expect(try read(path("a")).count > 0)
        let files = try FileManager.default.subpathsOfDirectory(atPath: path("a") + "/rows")
        let table = try #require(
            files.filter { $0.hasSuffix(".sst") }.map { path("a") + "/rows/" + $0 }.max { size($0) < size($1) })
        let handle = try #require(FileHandle(forUpdatingAtPath: table))
        let place = UInt64(size(table) / 3)
        try handle.seek(toOffset: place)
        let old = try #require(try handle.read(upToCount: 1)?.first)
        try handle.seek(toOffset: place)
        try handle.write(contentsOf: Data([~old]))
        try handle.close()
        let result = longwire("store", "copy", path("a"), path("b"))
        #expect(
            result.code == .refused && result.text.contains("damaged") || result.text.contains("orruption"),
            "\(result.text)")
        #expect(longwire("store", "copy", path("b"), path("c")).code == .refused)
    }

    private func size(_ path: String) -> Int {
        (try? FileManager.default.attributesOfItem(atPath: path)[.size] as? Int) ?? 0
    }

    @Test("invalid servers and numbers of partitions are refused")
    func redisWords() {
        for words in [
            ["redis://", "b"], ["redis://nowhere", "b"], ["a", "redis://127.0.0.1:1", "--parts", "12"],
            ["a", "redis://127.0.0.1:1", "--min-replicas", "9"],
        ] {
            let result = longwire(
                "store", "copy", words[0], words[1], words.count > 2 ? words[2] : "--min-replicas",
                words.count > 3 ? words[3] : "0")
            #expect(result.code == .usage, "\(words): \(result.text)")
        }
    }

    @Test("a check names invalid rows and missing alarms")
    func checks() throws {
        let key = StoreKey(Bucket(7), .taskGroup, ownerHigh: 1, ownerLow: 2, item: 3)
        let odd = StoreKey(Bucket(9), .job, ownerHigh: 1, ownerLow: 2)
        let place = EmbeddedPlace(path("a"))
        try place.beginWriting(from: "a test", isReplacing: false)
        try place.write([[UInt8]([1, 2]).withUnsafeBytes { CopiedRow(StoredRow(key: key, wakeAt: 5, value: $0)) }])
        try place.finishWriting()
        try place.complete()
        place.close()
        let whole = longwire("store", "check", path("a"), "--json")
        #expect(whole.code == .done && whole.text.contains("\"isWhole\":true"), "\(whole.text)")

        let store = try EmbeddedStore(EmbeddedStore.Configuration(folder: path("a")))
        var alarm = [UInt8](repeating: 0, count: KeyCoding.alarmKeyByteCount)
        alarm.withUnsafeMutableBytes { KeyCoding.write(Alarm(wakeAt: 5, key: key), to: $0.baseAddress!) }
        try store.database.deleteLoosely([alarm], in: store.database.alarms)
        store.close()
        let asleep = longwire("store", "check", path("a"), "--text")
        #expect(asleep.code == .refused, "\(asleep.text)")
        #expect(asleep.text.contains("the index of alarms has no entry for it"), "\(asleep.text)")

        let again = EmbeddedPlace(path("b"))
        try again.beginWriting(from: "a test", isReplacing: false)
        try again.write([[UInt8]([9, 9]).withUnsafeBytes { CopiedRow(StoredRow(key: odd, wakeAt: 0, value: $0)) }])
        try again.finishWriting()
        try again.complete()
        again.close()
        let nonsense = longwire("store", "check", path("b"), "--json")
        #expect(nonsense.code == .refused && nonsense.text.contains("\"kind\":\"row\""), "\(nonsense.text)")
        #expect(nonsense.text.contains("table job, bucket 9"), "\(nonsense.text)")
    }

    @Test("help describes the store's commands")
    func help() {
        #expect(longwire("--help").text.contains("store copy"))
        let help = longwire("store", "copy", "--help")
        #expect(
            help.code == .done && help.text.contains("FROM")
                && help.text.split(separator: "\n").allSatisfy { $0.count <= 100 })
    }
}

/// A target that changes one row.
private final class FaultyPlace: CopyPlace {
    private let place: EmbeddedPlace
    private let fault: String
    private var isDone = false
    init(_ place: EmbeddedPlace, _ fault: String) { (self.place, self.fault) = (place, fault) }

    var name: String { place.name }
    func beginReading(for target: String) throws { try place.beginReading(for: target) }
    func beginWriting(from source: String, isReplacing: Bool) throws {
        try place.beginWriting(from: source, isReplacing: isReplacing)
    }
    func visitRows(_ body: (StoredRow) throws -> Void) throws { try place.visitRows(body) }
    func write(_ rows: [CopiedRow]) throws {
        var rows = rows
        if !isDone, let first = rows.firstIndex(where: { $0.key.table == .message }) {
            isDone = true
            switch fault {
            case "lost": rows.remove(at: first)
            case "changed": rows[first].value.append(1)
            case "moved": rows[first].wakeAt += 1
            default:
                var more = rows[first]
                more.key.item += 1_000
                rows.append(more)
            }
        }
        if !rows.isEmpty { try place.write(rows) }
    }
    func finishWriting() throws { try place.finishWriting() }
    func complete() throws { try place.complete() }
    func close() { place.close() }
}
