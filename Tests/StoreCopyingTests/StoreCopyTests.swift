import CommandLineTool
import Delivery
import Foundation
import TestKit
import Testing
import Wire

@testable import StoreCopying

@Suite("Copying a store")
final class StoreCopyTests {
    private let folder = FileManager.default.temporaryDirectory.appendingPathComponent(
        "longwire-copy-\(UUID().uuidString)")

    init() throws { try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true) }
    deinit { try? FileManager.default.removeItem(at: folder) }

    private func path(_ name: String) -> String { folder.appendingPathComponent(name).path }

    /// Writes rows of every table into a store; those that it has then.
    private func fill(_ path: String, seed: UInt64, count: Int = 3_000) throws -> [StoreKey: [UInt8]] {
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
        let place = try EmbeddedPlace(path, mustExist: false)
        for (_, rows) in Dictionary(grouping: rows.values, by: { $0.key.bucket }) { place.write(rows) }
        place.finishWriting()
        place.close()
        return rows.mapValues(\.value)
    }

    private func longwire(_ words: String...) -> (code: ExitCode, text: String) {
        final class Lines: @unchecked Sendable {
            // Sound because the command runs on one thread.
            var all: [String] = []
        }
        let lines = Lines()
        let context = CommandContext(
            environment: [:], readInput: { [] }, write: { lines.all.append($0) }, complain: { lines.all.append($0) })
        let code = CommandLineTool.run(words, with: StoreCommands.all, in: context)
        return (code, lines.all.joined(separator: "\n"))
    }

    @Test("a copy has every row of every table, and says so")
    func copies() throws {
        let rows = try fill(path("a"), seed: 1)
        let result = longwire("store", "copy", path("a"), path("b"))
        #expect(result.code == .done, "\(result.text)")
        #expect(result.text.contains("copied \(rows.count) rows") && result.text.contains("the stores are the same"))
        for table in StoreKey.Table.allCases {
            #expect(result.text.contains("\(table): \(rows.keys.count { $0.table == table }) rows"))
        }
        let place = try EmbeddedPlace(path("b"), mustExist: true)
        defer { place.close() }
        var found: [StoreKey: [UInt8]] = [:]
        for table in StoreKey.Table.allCases {
            try place.visitRows(of: table) { found[$0.key] = Array($0.value) }
        }
        #expect(found == rows)
    }

    @Test("what is in use, not empty or no store is refused, and nothing is changed")
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
        let place = try EmbeddedPlace(path("a"), mustExist: true)
        let used = longwire("store", "copy", path("a"), path("c"))
        place.close()
        #expect(used.code == .refused && used.text.contains(path("a")), "\(used.text)")
        #expect(longwire("store", "copy", path("a"), path("c")).text.contains("copied \(rows.count) rows"))
    }

    @Test("a copy that is not the same is noticed", arguments: ["lost", "changed", "moved", "added"])
    func differences(fault: String) throws {
        _ = try fill(path("a"), seed: 4, count: 400)
        let source = try EmbeddedPlace(path("a"), mustExist: true)
        defer { source.close() }
        #expect(throws: CopyFailure.self) {
            _ = try StoreCopy.run(
                from: source, to: { FaultyPlace(try EmbeddedPlace(self.path("b"), mustExist: false), fault) },
                tell: { _ in })
        }
    }

    @Test("help tells of the store's commands")
    func help() {
        #expect(longwire("--help").text.contains("store copy"))
        let help = longwire("store", "copy", "--help")
        #expect(
            help.code == .done && help.text.contains("FROM")
                && help.text.split(separator: "\n").allSatisfy { $0.count <= 100 })
    }
}

/// Does something wrong with one row.
private final class FaultyPlace: CopyPlace {
    private let place: EmbeddedPlace
    private let fault: String
    private var isDone = false
    init(_ place: EmbeddedPlace, _ fault: String) { (self.place, self.fault) = (place, fault) }

    var name: String { place.name }
    func visitRows(of table: StoreKey.Table, _ body: (StoredRow) -> Void) throws {
        try place.visitRows(of: table, body)
    }
    func write(_ rows: [CopiedRow]) throws {
        var rows = rows
        if !isDone, rows[0].key.table == .message {
            isDone = true
            switch fault {
            case "lost": rows.removeFirst()
            case "changed": rows[0].value.append(1)
            case "moved": rows[0].wakeAt += 1
            default:
                var more = rows[0]
                more.key.item += 1_000
                rows.append(more)
            }
        }
        if !rows.isEmpty { place.write(rows) }
    }
    func finishWriting() { place.finishWriting() }
    func close() { place.close() }
}
