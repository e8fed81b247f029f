import Delivery
import Foundation
import Platform
import TestKit
import Testing

@testable import MessageStore

@Suite("Embedded store: histories")
struct HistoryFileTests {
    private static func configuration(_ path: String, _ durability: EmbeddedStore.Configuration.Durability = .fsync)
        -> EmbeddedStore.Configuration
    {
        var configuration = EmbeddedStore.Configuration(folder: path)
        (configuration.segmentByteCount, configuration.durability) = (64 << 10, durability)
        return configuration
    }

    /// Opens and closes the store as a gateway does.
    private static func start(
        _ path: String, _ durability: EmbeddedStore.Configuration.Durability = .fsync
    ) throws -> (history: StoreHistory, change: HistoryChange?) {
        let store = try EmbeddedStore(configuration(path, durability))
        defer { store.close() }
        return (store.history, store.historyChange)
    }

    private static func copy(_ source: String, _ target: String) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/bin/cp")
        process.arguments = ["-a", source, target]
        try process.run()
        process.waitUntilExit()
        #expect(process.terminationStatus == 0)
    }

    private static func text(_ path: String) throws -> String {
        String(decoding: try FileSystem.read(path + "/history"), as: UTF8.self)
    }

    @Test(
        "restarts keep a store's history, and a store whose history file was removed starts a new one"
    )
    func restarts() throws {
        let folder = try TemporaryFolder()
        let first = try Self.start(folder.path)
        #expect(first.change == nil && !first.history.hasGoneBack)
        for durability in [.fsync, .os, .os, .fsync] as [EmbeddedStore.Configuration.Durability] {
            let next = try Self.start(folder.path, durability)
            #expect(next == (first.history, nil))
        }
        try FileSystem.removeFile(folder.path + "/history")
        let next = try Self.start(folder.path)
        #expect(next.change == .asked && next.history.hasGoneBack && next.history.id != first.history.id)
    }

    @Test(
        "a manual copy of a folder gets a new history once; the original and a renamed folder keep theirs"
    )
    func copies() throws {
        let folder = try TemporaryFolder()
        let path = folder.path + "/data"
        let first = try Self.start(path)
        guard try File(path: path + "/history", mode: .read).birthTime() != nil else { return }
        try Self.copy(path, folder.path + "/copy")
        let copied = try Self.start(folder.path + "/copy")
        #expect(copied.change == .copied && copied.history.hasGoneBack && copied.history.id != first.history.id)
        #expect(try Self.start(folder.path + "/copy") == (copied.history, nil))
        try FileSystem.rename(path, to: folder.path + "/moved")
        #expect(try Self.start(folder.path + "/moved") == (first.history, nil))
        // Restored over a store that had been used since.
        try FileSystem.removeTree(folder.path + "/moved")
        try Self.copy(folder.path + "/copy", folder.path + "/moved")
        let back = try Self.start(folder.path + "/moved")
        #expect(back.change == .copied && back.history.began > copied.history.began)
    }

    @Test("an earlier copy that is written over the folder in place starts a new history", arguments: [false, true])
    func copiedInPlace(isFolderEmptied: Bool) throws {
        let folder = try TemporaryFolder()
        let path = folder.path + "/data"
        let first = try Self.start(path)
        guard try File(path: path + "/history", mode: .read).birthTime() != nil else { return }
        try Self.copy(path, folder.path + "/copy")
        #expect(try Self.start(path) == (first.history, nil))
        // The file keeps its inode, as with `cp -a copy/. data/` and `rsync --inplace`.
        if isFolderEmptied {
            for name in ["rows", "journal"] { try FileSystem.removeTree(path + "/" + name) }
        }
        try Self.copy(folder.path + "/copy/.", path)
        let back = try Self.start(path)
        #expect(back.change == .copied && back.history.hasGoneBack && back.history.id != first.history.id)
    }

    @Test(
        "an emptied or damaged history file starts a new history",
        arguments: ["", "x", "longwire history 1:2 3 -\n"])
    func asked(text: String) throws {
        let folder = try TemporaryFolder()
        let first = try Self.start(folder.path)
        try Data(text.utf8).write(to: URL(fileURLWithPath: folder.path + "/history"))
        let next = try Self.start(folder.path)
        #expect(next.change == .asked && next.history.hasGoneBack && next.history.id != first.history.id)
        #expect(try Self.start(folder.path) == (next.history, nil))
    }

    @Test("without syncs a machine failure starts a new history; a kill, a stop and a reboot after a stop do not")
    func machineFails() throws {
        let folder = try TemporaryFolder()
        let first = try Self.start(folder.path, .os)
        #expect(try Self.text(folder.path).hasSuffix(" -\n"), "a stop syncs")
        var history = first.history
        func write(_ boot: String) throws {
            // In place, so that the file keeps its birth time.
            let birth = try File(path: folder.path + "/history", mode: .read).birthTime() ?? 0
            let text = StoreHistoryFile.text(.init(history: history, birth: birth, boot: boot))
            let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: folder.path + "/history"))
            try handle.truncate(atOffset: 0)
            try handle.write(contentsOf: Data(text.utf8))
            try handle.close()
        }
        // A killed process leaves its own boot id there.
        try write(try #require(SystemClock.bootID))
        #expect(try Self.start(folder.path, .os) == (first.history, nil))
        // The configuration after the failure does not matter.
        for durability in [EmbeddedStore.Configuration.Durability.os, .fsync] {
            try write("0123456789abcdef0123456789abcdef")
            let next = try Self.start(folder.path, durability)
            #expect(next.change == .machineFailed && next.history.hasGoneBack)
            #expect(try Self.start(folder.path, durability) == (next.history, nil))
            history = next.history
        }
    }

    @Test("while commits are not synced the file names the boot")
    func running() throws {
        let folder = try TemporaryFolder()
        let store = try EmbeddedStore(Self.configuration(folder.path, .os))
        let text = try Self.text(folder.path)
        store.close()
        #expect(text.hasSuffix(" \(try #require(SystemClock.bootID))\n"))
    }

    @Test("a restored store gets a new history each time, and its backup's store keeps its own")
    func restores() throws {
        let folder = try TemporaryFolder()
        let (data, backup) = (folder.path + "/data", folder.path + "/backup")
        let first = try Self.start(data)
        _ = try StoreBackup.make(of: data, at: backup, time: 0)
        var known: Set<StoreHistory> = [first.history]
        for target in ["/one", "/two"] {
            _ = try StoreBackup.restore(backup, to: folder.path + target)
            try EmbeddedStore.endCopy(to: folder.path + target, wall: 1_700_000_000_000)
            let restored = try Self.start(folder.path + target)
            #expect(restored.change == nil && restored.history.hasGoneBack && known.insert(restored.history).inserted)
        }
        #expect(try Self.start(data) == (first.history, nil))
    }

    @Test("tokens issued before a restore are no longer valid")
    func tokens() {
        let key = Array(0..<32 as Range<UInt8>)
        let histories = [StoreHistory(id: 1, began: 5), StoreHistory(id: 1, began: 6), StoreHistory(id: 2, began: 5)]
        #expect(StoreHistory(ofNewStore: 3).tokenKey(key) == key)
        #expect(Set(histories.map { $0.tokenKey(key) } + [key]).count == 4)
        #expect(histories.allSatisfy { $0.tokenKey(key).count == 32 })
    }
}

private func == (left: (history: StoreHistory, change: HistoryChange?), right: (StoreHistory, HistoryChange?)) -> Bool {
    left.history == right.0 && left.change == right.1
}
