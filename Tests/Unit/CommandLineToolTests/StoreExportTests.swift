import Delivery
import Foundation
import TestKit
import Testing
import TextForms
import Wire

@testable import CommandLineTool
@testable import MessageStore

extension StoreCopyTests {
    private func tables(_ text: String) -> [Substring] {
        text.split(separator: "\n").filter { $0.contains(", digest ") }
    }

    private func bytes(_ name: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: path(name))))
    }

    private func write(_ bytes: [UInt8], to name: String) throws {
        try Data(bytes).write(to: URL(fileURLWithPath: path(name)))
    }

    @Test("an export has every row of every table, and an import restores the same store")
    func exports() throws {
        let rows = try fill(path("a"), seed: 21)
        let exported = longwire("store", "export", path("a"), path("file"))
        #expect(exported.code == .done && exported.text.contains("exported \(rows.count) rows"), "\(exported.text)")
        let rights = try FileManager.default.attributesOfItem(atPath: path("file"))[.posixPermissions] as? Int
        #expect(rights == 0o600 && !FileManager.default.fileExists(atPath: path("file.part")))
        let imported = longwire("store", "import", path("file"), path("b"))
        #expect(imported.code == .done && imported.text.contains("imported \(rows.count) rows"), "\(imported.text)")
        #expect(tables(imported.text) == tables(exported.text) && tables(exported.text).count > 10)
        #expect(try read(path("b")) == rows)
        #expect(tables(longwire("store", "copy", path("b"), path("c")).text) == tables(exported.text))
        let again = longwire("store", "export", path("a"), path("file"))
        #expect(again.code == .refused && again.text.contains("is there already"), "\(again.text)")
        let full = longwire("store", "import", path("file"), path("b"))
        #expect(full.code == .refused && full.text.contains("is not empty"), "\(full.text)")
        #expect(longwire("store", "import", path("file"), path("b"), "--replace").code == .done)
    }

    @Test("a store in use is not exported, and no file is left")
    func usedSource() throws {
        _ = try fill(path("a"), seed: 22, count: 60)
        let place = EmbeddedPlace(path("a"))
        try place.beginReading(for: "a test")
        let result = longwire("store", "export", path("a"), path("file"))
        place.close()
        #expect(result.code == .refused)
        #expect(!FileManager.default.fileExists(atPath: path("file")))
        #expect(!FileManager.default.fileExists(atPath: path("file.part")))
    }

    @Test("any changed bit, a truncation and an extension are refused with the place, and no store is created")
    func damagedFiles() throws {
        let rows = try fill(path("a"), seed: 23, count: 4_000)
        #expect(longwire("store", "export", path("a"), path("file")).code == .done)
        let whole = try bytes("file")
        #expect(whole.count > 2 * ExportForm.blockByteCount, "\(rows.count) rows make one block")
        var random = SeededGenerator(seed: 24)
        for step in 0..<40 {
            var damaged = whole
            // A file with other first bytes is not an export, which has a different message.
            let place = step == 0 ? 20 : 30 + Int(random.next() % UInt64(whole.count - 30))
            damaged[place] ^= 1 << UInt8(random.next() % 8)
            try write(damaged, to: "damaged")
            let result = longwire("store", "import", path("damaged"), path("b"))
            #expect(result.code == .refused && result.text.contains("at byte "), "\(place): \(result.text)")
            #expect(!FileManager.default.fileExists(atPath: path("b")))
        }
        for count in [whole.count - 1, whole.count / 2, 19, 18] {
            try write(Array(whole.prefix(count)), to: "short")
            let result = longwire("store", "import", path("short"), path("b"))
            #expect(result.code == .refused && result.text.contains("it ends "), "\(count): \(result.text)")
            #expect(result.text.contains("at byte "), "\(result.text)")
        }
        try write(whole + [0], to: "long")
        #expect(longwire("store", "import", path("long"), path("b")).text.contains("bytes follow its last block"))
        try write(Array("{}".utf8), to: "other")
        #expect(longwire("store", "import", path("other"), path("b")).text.contains("is no export of Longwire"))
    }

    @Test("two swapped blocks are refused")
    func exchangedBlocks() throws {
        _ = try fill(path("a"), seed: 25, count: 6_000)
        #expect(longwire("store", "export", path("a"), path("file")).code == .done)
        let whole = try bytes("file")
        var blocks: [[UInt8]] = []
        var offset = ExportForm.firstLine.utf8.count
        while offset < whole.count {
            let count = whole[offset..<offset + 4].reduce(0) { $0 << 8 | Int($1) } + ExportForm.blockHeadByteCount
            blocks.append(Array(whole[offset..<offset + count]))
            offset += count
        }
        #expect(blocks.count > 3)
        blocks.swapAt(1, 2)
        try write(Array(ExportForm.firstLine.utf8) + blocks.flatMap { $0 }, to: "exchanged")
        #expect(longwire("store", "import", path("exchanged"), path("b")).text.contains("does not have its checksum"))
    }

    @Test("a later release's file is refused with advice", arguments: ["form", "rows"])
    func laterReleases(what: String) throws {
        if what == "form" {
            try write(Array("longwire export 2\n".utf8), to: "file")
        } else {
            var all: [UInt8] = []
            var writer = try ExportWriter(
                ExportHeader(storeFormat: EmbeddedStore.format + 1, release: "9.9.9", madeAt: 1, source: "x"),
                put: { all += $0 })
            try writer.end()
            try write(all, to: "file")
        }
        let result = longwire("store", "import", path("file"), path("b"))
        #expect(result.code == .refused && result.text.contains("import it with"), "\(result.text)")
    }

    @Test("an interrupted import leaves no store that a gateway starts on")
    func brokenImport() throws {
        _ = try fill(path("a"), seed: 26, count: 6_000)
        #expect(longwire("store", "export", path("a"), path("file")).code == .done)
        let whole = try bytes("file")
        // As from a pipe, which cannot be checked in advance.
        var offset = 0
        let target = EmbeddedPlace(path("b"))
        #expect(throws: CopyFailure.self) {
            _ = try StoreExport.read(
                "-", into: target, isReplacing: false,
                take: { count in
                    defer { offset += count }
                    return Array(whole.prefix(whole.count - 5).dropFirst(offset).prefix(count))
                }, report: { _ in })
        }
        target.close()
        #expect(EmbeddedStore.isUnfinishedCopy(path("b")))
        #expect(longwire("store", "copy", path("b"), path("c")).text.contains("is a copy that did not end"))
        #expect(longwire("store", "import", path("file"), path("b")).text.contains("--replace"))
        #expect(longwire("store", "import", path("file"), path("b"), "--replace").code == .done)
        #expect(try read(path("b")) == read(path("a")))
    }
}
