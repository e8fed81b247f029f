// Layout of a backup folder: the files of a store's folder, some trimmed, and a list of them.
//
//     BACKUP/unfinished  exists while the backup is being made, and after a killed process
//     BACKUP/manifest    written last: the files with sizes and digests, and a digest of the manifest
//     BACKUP/format epoch …   the small files of the store's folder
//     BACKUP/rows/       RocksDB
//     BACKUP/journal/    segments, each up to its last record
//
// A running store is backed up between two spills. The spiller makes a checkpoint of the database and hard links to the segments.
// No segment is recycled in between, so database and journal fit together, as after a crash at that moment. The linked files are
// then copied while the store keeps working. A segment that is released during the copy is removed rather than reused.

internal import Cryptography
internal import Journal
internal import Platform

package struct StoreBackup: Sendable {
    package struct Entry: Sendable, Equatable {
        /// The path relative to the backup's folder.
        package var path: String
        package var byteCount: Int
        /// The SHA-256 digest, 64 hex digits.
        package var digest: String
    }

    package var entries: [Entry] = []
    /// The time of the backup in milliseconds since 1970; 0 if unknown.
    package var madeAt: Int64 = 0
    /// The time for which the backup blocked the spiller; publishes were not blocked.
    package var heldMicroseconds: UInt64 = 0

    package var byteCount: Int { entries.reduce(0) { $0 + $1.byteCount } }

    static func manifest(of folder: String) -> String { folder + "/manifest" }
    static func mark(of folder: String) -> String { folder + "/unfinished" }

    package static func isBackup(_ folder: String) -> Bool {
        FileSystem.exists(manifest(of: folder)) || FileSystem.exists(mark(of: folder))
    }

    // MARK: The list

    private static let heading = "longwire backup 1"

    private var text: String {
        var lines = [Self.heading, "made \(madeAt)"]
        lines += entries.map { "file \($0.byteCount) \($0.digest) \($0.path)" }
        let text = lines.joined(separator: "\n") + "\n"
        return text + "list \(SHA256.digest(Array(text.utf8)).hex)\n"
    }

    /// Reads a backup's manifest, but not the listed files.
    ///
    /// - Throws: `.backup` if the folder is not a backup, the backup is incomplete, or the manifest was changed.
    package init(of folder: String) throws(StoreError) {
        guard !FileSystem.exists(Self.mark(of: folder)) else {
            throw .backup(what: "the backup \(folder) is not whole: it did not end; remove it and make another one")
        }
        let path = Self.manifest(of: folder)
        try EmbeddedStore.require(
            "manifest", in: folder, orFail: "there is no backup in \(folder): it has no file manifest")
        let text: String
        do throws(SystemError) {
            text = String(decoding: try FileSystem.read(path), as: UTF8.self)
        } catch { throw StoreError(error) }
        func damaged(_ line: Int) -> StoreError {
            .backup(what: "\(path) is damaged in line \(line): use another backup")
        }
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.count > 3, lines.removeLast().isEmpty, let last = lines.popLast() else { throw damaged(1) }
        let listed = text.utf8.prefix(text.utf8.count - last.utf8.count - 1)
        guard last == "list \(SHA256.digest(Array(listed)).hex)" else { throw damaged(lines.count + 1) }
        guard lines[0] == Self.heading else {
            throw .backup(what: "\(path) begins with \(lines[0].prefix(40)): a later release made it, use that one")
        }
        guard lines[1].hasPrefix("made "), let madeAt = Int64(lines[1].dropFirst(5)) else { throw damaged(2) }
        self.madeAt = madeAt
        for (index, line) in lines.enumerated().dropFirst(2) {
            let words = line.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: false)
            guard words.count == 4, words[0] == "file", let byteCount = Int(words[1]), byteCount >= 0,
                words[2].utf8.count == 64, Self.isPath(words[3])
            else { throw damaged(index + 1) }
            entries.append(Entry(path: String(words[3]), byteCount: byteCount, digest: String(words[2])))
        }
    }

    /// Accepts a file name, or a file name in `rows` or `journal`.
    private static func isPath(_ path: Substring) -> Bool {
        let parts = path.split(separator: "/", omittingEmptySubsequences: false)
        guard let name = parts.last, !name.isEmpty, !name.hasPrefix(".") else { return false }
        return parts.count == 1 || parts.count == 2 && (parts[0] == "rows" || parts[0] == "journal")
    }

    private init() {}

    // MARK: Reading

    /// Reads every file and compares it with the manifest.
    ///
    /// - Throws: `.backup` with the first missing or changed file; `.system` when a file cannot be read.
    package func verify(_ folder: String) throws(StoreError) {
        for entry in entries {
            let path = folder + "/" + entry.path
            let found: (byteCount: Int, digest: String)
            do throws(SystemError) {
                found = try Self.read(path) { (_, _) throws(SystemError) in }
            } catch {
                guard error.isNotFound else { throw StoreError(error) }
                throw .backup(what: "the backup is damaged: \(path) is missing; use another backup")
            }
            guard found.byteCount == entry.byteCount else {
                throw .backup(
                    what:
                        "the backup is damaged: \(path) has \(found.byteCount) bytes in place of \(entry.byteCount); use "
                        + "another backup")
            }
            guard found.digest == entry.digest else {
                throw .backup(what: "the backup is damaged: \(path) is not what was written; use another backup")
            }
        }
    }

    /// Passes a file to `body` in pieces with their offsets; returns the file's size and digest.
    private static func read(
        _ path: String, _ body: (UnsafeRawBufferPointer, Int) throws(SystemError) -> Void
    ) throws(SystemError) -> (byteCount: Int, digest: String) {
        let file = try File(path: path, mode: .read)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Limits.backupPieceByteCount, alignment: 4096)
        defer { buffer.deallocate() }
        var sum = SHA256.Running()
        var offset = 0
        while true {
            let count = try file.read(into: buffer, at: offset)
            guard count > 0 else { break }
            let piece = UnsafeRawBufferPointer(rebasing: buffer[..<count])
            sum.add(piece)
            try body(piece, offset)
            offset += count
        }
        file.forget(from: 0, byteCount: offset)
        return (offset, sum.digest().hex)
    }

    // MARK: Writing

    /// Makes a backup of a stopped store.
    ///
    /// - Parameters:
    ///   - folder: The store's folder.
    ///   - target: The backup's folder, which must not exist.
    ///   - time: The current time in milliseconds since 1970.
    /// - Returns: The manifest.
    /// - Throws: Errors of a store's start, `.backup` for the target, `.diskFull`. The target is removed on failure.
    package static func make(of folder: String, at target: String, time: Int64) throws(StoreError) -> StoreBackup {
        try EmbeddedStore.requireStore(in: folder)
        guard !isBackup(folder) else { throw .isBackup(folder: folder) }
        let lock = try EmbeddedStore.takeFolder(folder)
        defer { withExtendedLifetime(lock) {} }
        guard !EmbeddedStore.isUnfinishedCopy(folder) else { throw .unfinishedCopy(folder: folder) }
        _ = try StoreFormat(of: folder)
        let journal: Recovery
        do throws(JournalError) {
            journal = try Recovery(folder: SegmentFolder(path: folder + "/journal"))
        } catch { throw StoreError(error) }
        try EmbeddedStore.checkDatabaseIsThere(folder)
        return try write(
            target, from: folder, rows: folder + "/rows", journal: folder + "/journal",
            segments: journal.segments.filter { $0.end > 0 }.map { ($0.generation, $0.end) }, time: time)
    }

    /// Copies all files, verifies them, and writes the manifest last.
    ///
    /// - Parameters:
    ///   - target: The folder to create.
    ///   - folder: The folder with the store's small files.
    ///   - rows: The database's folder.
    ///   - journal: The segments' folder.
    ///   - segments: The generations to copy, oldest first, each with its end offset if known.
    ///   - time: See `make`.
    ///   - isCancelled: Called between files.
    /// - Returns: The manifest.
    /// - Throws: See `make`; the target is removed on failure.
    static func write(
        _ target: String, from folder: String, rows: String, journal: String, segments: [(UInt64, Int?)], time: Int64,
        isCancelled: () -> Bool = { false }
    ) throws(StoreError) -> StoreBackup {
        do throws(SystemError) {
            try FileSystem.createNewDirectory(target)
        } catch {
            if error.isAlreadyThere { throw .backup(what: "\(target) is there already: name a folder that is not") }
            if error.isNotFound { throw .backup(what: "the folder above \(target) is not there: make it first") }
            throw StoreError(error)
        }
        do throws(StoreError) {
            var backup = StoreBackup()
            backup.madeAt = time
            do throws(SystemError) {
                try FileSystem.replace(mark(of: target), with: Array("a backup of \(folder) has not ended\n".utf8))
                for name in ["rows", "journal"] { try FileSystem.createNewDirectory(target + "/" + name) }
                for name in try FileSystem.list(folder) where isKept(name, in: folder) {
                    try backup.copy(folder + "/" + name, to: target, as: name)
                }
                for name in try FileSystem.list(rows) where name != "LOCK" && !name.hasPrefix("LOG") {
                    guard !isCancelled() else { throw SystemError(operation: "cancel", subject: target, code: 0) }
                    try backup.copy(rows + "/" + name, to: target, as: "rows/" + name)
                }
            } catch {
                guard error.operation != "cancel" else { throw StoreError.backup(what: "the gateway stops") }
                throw StoreError(error)
            }
            try backup.copySegments(segments, from: journal, to: target)
            do throws(SystemError) {
                for name in ["/rows", "/journal", ""] { try FileSystem.synchronizeDirectory(target + name) }
            } catch { throw StoreError(error) }
            try backup.verify(target)
            do throws(SystemError) {
                try FileSystem.replace(manifest(of: target), with: Array(backup.text.utf8))
                try FileSystem.removeFile(mark(of: target))
                try FileSystem.synchronizeDirectory(target)
            } catch { throw StoreError(error) }
            return backup
        } catch {
            // An incomplete backup would occupy disk space that may be needed.
            try? FileSystem.removeTree(target)
            throw error
        }
    }

    private static func isKept(_ name: String, in folder: String) -> Bool {
        name != "lock" && name != "copying" && !name.hasSuffix(".new") && !FileSystem.isDirectory(folder + "/" + name)
    }

    private mutating func copy(_ source: String, to target: String, as path: String) throws(SystemError) {
        let file = try File(path: target + "/" + path, mode: .createNew)
        let found = try Self.read(source) { (bytes, offset) throws(SystemError) in try file.write(bytes, at: offset) }
        try file.synchronize()
        entries.append(Entry(path: path, byteCount: found.byteCount, digest: found.digest))
    }

    private mutating func copySegments(
        _ segments: [(UInt64, Int?)], from journal: String, to target: String
    ) throws(StoreError) {
        let buffer = SegmentBuffer()
        var last: (generation: UInt64, end: Int)?
        for (generation, end) in segments {
            let name = SegmentFolder.name("segment", generation)
            do throws(JournalError) {
                guard
                    let segment = try SegmentCopy(
                        journal + "/" + name, generation: generation, upTo: end, using: buffer)
                else { continue }
                // Detect this gap now: a start on the restored journal would refuse it as damage.
                if let last, segment.previous.generation == last.generation, segment.previous.end != last.end {
                    throw .damaged(
                        file: journal + "/" + SegmentFolder.name("segment", last.generation), offset: last.end,
                        what: "its records end here, but they were synced up to byte \(segment.previous.end)")
                }
                last = (generation, segment.byteCount)
                do throws(SystemError) {
                    let file = try File(path: target + "/journal/" + name, mode: .createNew)
                    let digest = try segment.withBytes { (bytes) throws(SystemError) in
                        try file.write(bytes, at: 0)
                        return SHA256.digest(bytes)
                    }
                    try file.synchronize()
                    entries.append(
                        Entry(path: "journal/" + name, byteCount: segment.byteCount, digest: digest.hex))
                } catch { throw JournalError.system(error) }
            } catch { throw StoreError(error) }
        }
    }

    // MARK: Restoring

    /// Restores a store from a backup and marks it.
    ///
    /// No gateway starts on it before `EmbeddedStore.endCopy`.
    ///
    /// - Parameters:
    ///   - backup: The backup's folder.
    ///   - folder: An empty or missing folder.
    /// - Returns: The manifest.
    /// - Throws: `.backup` when the backup is damaged or the folder is not empty, `.inUse`; the folder is then unchanged. Errors
    ///   of writing leave the folder marked.
    package static func restore(_ backup: String, to folder: String) throws(StoreError) -> StoreBackup {
        let list = try StoreBackup(of: backup)
        try list.verify(backup)
        if FileSystem.exists(folder) {
            let names: [String]
            do throws(SystemError) { names = try FileSystem.list(folder) } catch { throw StoreError(error) }
            if names.contains("lock") { _ = try EmbeddedStore.takeFolder(folder) }
            guard names.allSatisfy({ $0 == "lock" }) else {
                throw .backup(
                    what: "\(folder) is not empty: nothing was restored; name another folder, or move this one away")
            }
        }
        let lock = try EmbeddedStore.takeFolder(folder)
        defer { withExtendedLifetime(lock) {} }
        try EmbeddedStore.beginCopy(to: folder, from: backup)
        do throws(SystemError) {
            for name in ["rows", "journal"] { try FileSystem.createDirectory(folder + "/" + name) }
            for entry in list.entries { try restore(entry, from: backup, to: folder) }
            for name in ["/rows", "/journal", ""] { try FileSystem.synchronizeDirectory(folder + name) }
        } catch {
            if error.operation == "changed" {
                throw .backup(what: "\(error.subject) changed while it was read: remove \(folder) and begin anew")
            }
            throw StoreError(error)
        }
        return list
    }

    private static func restore(_ entry: Entry, from backup: String, to folder: String) throws(SystemError) {
        let source = backup + "/" + entry.path
        let file = try File(path: folder + "/" + entry.path, mode: .createNew)
        let name = entry.path.split(separator: "/").last ?? ""
        if let generation = SegmentCopy.generation(name) {
            // Restore the full segment size: a start checks it, because the committer writes into preallocated space.
            let head = UnsafeMutableRawBufferPointer.allocate(byteCount: 4096, alignment: 8)
            defer { head.deallocate() }
            let count = try File(path: source, mode: .read).read(into: head, at: 0)
            let byteCount = SegmentCopy.fileByteCount(
                UnsafeRawBufferPointer(rebasing: head[..<count]), generation: generation)
            guard let byteCount, byteCount >= entry.byteCount else {
                throw SystemError(operation: "changed", subject: source, code: 0)
            }
            if try !file.reserve(byteCount: byteCount) { try file.fillWithZeros(byteCount: byteCount) }
        }
        let found = try read(source) { (bytes, offset) throws(SystemError) in try file.write(bytes, at: offset) }
        try file.synchronize()
        guard found.digest == entry.digest, found.byteCount == entry.byteCount else {
            throw SystemError(operation: "changed", subject: source, code: 0)
        }
    }
}

extension EmbeddedStore {
    /// Makes a backup while the store is running.
    ///
    /// The backup contains everything that was durable when the call began, and possibly some later writes.
    ///
    /// - Parameters:
    ///   - target: The backup's folder. It must not exist; its parent must exist.
    ///   - isCancelled: Called repeatedly.
    /// - Returns: The manifest.
    /// - Throws: `.backup`, `.diskFull` and read errors. The target is removed on failure; the store is not affected.
    package func backUp(to target: String, isCancelled: () -> Bool) throws(StoreError) -> StoreBackup {
        // Check this before waiting for the spiller.
        guard !FileSystem.exists(target) else {
            throw .backup(what: "\(target) is there already: name a folder that is not")
        }
        let staging = configuration.folder + "/spill/backup"
        let found = Lock<Result<(segments: [(UInt64, Int?)], microseconds: UInt64), StoreError>?>(nil)
        defer {
            ledger.unpinAll()
            try? FileSystem.removeTree(staging)
        }
        let isDone = spiller.runBetweenSegments { [self] in
            let result: Result<(segments: [(UInt64, Int?)], microseconds: UInt64), StoreError>
            do throws(StoreError) { result = .success(try freeze(staging)) } catch { result = .failure(error) }
            found.withLock { $0 = result }
        }
        guard isDone, let result = found.withLock({ $0 }) else {
            throw .backup(what: "the store could not complete it: see spillFailed in the log, and try again")
        }
        let (segments, microseconds) = try result.get()
        guard !isCancelled() else { throw .backup(what: "the gateway stops") }
        var backup = try StoreBackup.write(
            target, from: configuration.folder, rows: staging + "/rows", journal: staging + "/journal",
            segments: segments, time: configuration.now() ?? 0, isCancelled: isCancelled)
        backup.heldMicroseconds = microseconds
        return backup
    }

    /// Creates hard links to all files of the store at one moment; runs on the spiller's thread.
    private func freeze(
        _ staging: String
    ) throws(StoreError) -> (segments: [(UInt64, Int?)], microseconds: UInt64) {
        let began = SystemClock.monotonicNanoseconds
        var segments: [(UInt64, Int?)] = []
        do throws(SystemError) {
            try FileSystem.removeTree(staging)
            try FileSystem.createDirectory(staging + "/journal")
        } catch { throw StoreError(error) }
        try database.makeCheckpoint(staging + "/rows")
        // Read the durable end after the checkpoint, so that the checkpoint has no row that is newer than the copied segments.
        let durable = committer.durableEnd
        do throws(JournalError) {
            let generations = try ledger.folder.segments().filter { $0 <= durable.generation }
            ledger.pin(generations)
            for generation in generations {
                do throws(SystemError) {
                    try FileSystem.link(
                        ledger.folder.segmentPath(generation),
                        as: staging + "/journal/" + SegmentFolder.name("segment", generation))
                } catch { throw JournalError.system(error) }
                segments.append((generation, generation == durable.generation ? durable.end : nil))
            }
        } catch { throw StoreError(error) }
        return (segments, (SystemClock.monotonicNanoseconds - began) / 1_000)
    }
}
