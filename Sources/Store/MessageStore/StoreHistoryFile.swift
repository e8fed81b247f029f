internal import Cryptography
package import Delivery
internal import Platform

/// The reason for a new history: the content may be older than what devices and consumers have seen.
package enum HistoryChange: String, Sendable {
    /// The folder was copied without `longwire`.
    case copied
    /// The machine failed while commits were not synced (durability `os`).
    case machineFailed
    /// An operator emptied or removed the file, or it is damaged.
    case asked
}

/// The file `history` of a store's folder.
///
/// It contains the store's history and detects content that was rolled back.
///
///     longwire history ID:BEGAN BIRTH BOOT
///
/// BIRTH is the file's creation time in nanoseconds; the file in a copied folder was created later. Each start creates the file
/// anew. An older copy written over the folder thus names another BIRTH than the file's creation time. BOOT is the boot id during
/// unsynced commits, or `-`.
enum StoreHistoryFile {
    private static let prefix = "longwire history "

    struct Content: Equatable {
        var history: StoreHistory
        /// The creation time; 0 on a file system without creation times.
        var birth: Int64 = 0
        var boot = "-"
    }

    static func path(_ folder: String) -> String { folder + "/history" }

    /// Reads the file at a start, and begins a new history if the content may be older.
    ///
    /// The file is durable on return.
    ///
    /// - Parameters:
    ///   - folder: The store's folder, locked by this process.
    ///   - isNew: Whether no process has written to the store before.
    ///   - isSynced: Whether commits of this run are synced.
    ///   - wall: The wall clock in milliseconds since 1970. The begin of a history only has to be later than earlier ones.
    /// - Returns: The current history, and the reason if it is new.
    /// - Throws: An error of reading or writing the file.
    static func open(
        _ folder: String, isNew: Bool, isSynced: Bool, wall: () -> Int64
    ) throws(StoreError) -> (StoreHistory, HistoryChange?) {
        let wanted = isSynced ? "-" : boot()
        do throws(SystemError) {
            let found = try read(folder)
            if found == nil, isNew {
                let history = StoreHistory(ofNewStore: SecureRandom.word())
                try write(history, to: folder, boot: wanted)
                return (history, nil)
            }
            let content = found.flatMap { Self.content($0.text) }
            let change: HistoryChange?
            if let content {
                if content.birth != 0, let birth = found?.birth, birth != content.birth {
                    change = .copied
                } else {
                    change = content.boot != "-" && content.boot != boot() ? .machineFailed : nil
                }
            } else {
                change = .asked
            }
            guard let content, change == nil else {
                let history = successor(of: content?.history, wall())
                try write(history, to: folder, boot: wanted)
                return (history, change)
            }
            try write(content.history, to: folder, boot: wanted)
            return (content.history, nil)
        } catch { throw StoreError(error) }
    }

    /// Returns the kernel's boot id; without it every start counts as another boot.
    private static func boot() -> String { SystemClock.bootID ?? "unknown-\(SecureRandom.word())" }

    /// Records that all commits are synced; called when the store is closed.
    static func noteSynced(_ history: StoreHistory, in folder: String) {
        // A failed write only causes an unneeded new history at the next boot.
        try? write(history, to: folder, boot: "-")
    }

    static func renew(_ folder: String, wall: Int64) throws(SystemError) {
        let earlier = try read(folder).flatMap { content($0.text) }
        try write(successor(of: earlier?.history, wall), to: folder, boot: "-")
    }

    private static func successor(of history: StoreHistory?, _ wall: Int64) -> StoreHistory {
        (history ?? StoreHistory(ofNewStore: 1)).successor(id: SecureRandom.word(), now: wall)
    }

    private static func read(_ folder: String) throws(SystemError) -> (text: String, birth: Int64?)? {
        do throws(SystemError) {
            let file = try File(path: path(folder), mode: .read)
            return (String(decoding: try FileSystem.read(path(folder)), as: UTF8.self), file.birthTime())
        } catch {
            guard error.isNotFound else { throw error }
            return nil
        }
    }

    private static func write(_ history: StoreHistory, to folder: String, boot: String) throws(SystemError) {
        let draft = path(folder) + ".new"
        try FileSystem.removeFile(draft)
        do {
            let file = try File(path: draft, mode: .createNew)
            let content = Content(history: history, birth: file.birthTime() ?? 0, boot: boot)
            try file.write(Array(text(content).utf8).span.bytes, at: 0)
            try file.synchronize()
        }
        try FileSystem.rename(draft, to: path(folder))
        try FileSystem.synchronizeDirectory(folder)
    }

    // MARK: Text

    static func text(_ content: Content) -> String { "\(prefix)\(content.history) \(content.birth) \(content.boot)\n" }

    static func content(_ text: String) -> Content? {
        guard text.hasPrefix(prefix), text.hasSuffix("\n") else { return nil }
        let words = text.dropFirst(prefix.count).dropLast().split(separator: " ", omittingEmptySubsequences: false)
        guard words.count == 3, let history = StoreHistory(words[0]), let birth = Int64(words[1]), birth >= 0,
            !words[2].isEmpty
        else { return nil }
        return Content(history: history, birth: birth, boot: String(words[2]))
    }
}

extension StoreHistory {
    /// Returns the signing key of the push API's tokens, derived from the stored key.
    ///
    /// After a rollback the store may have lost token revocations. The derived key therefore invalidates all earlier tokens.
    package func tokenKey(_ stored: [UInt8]) -> [UInt8] {
        guard hasGoneBack else { return stored }
        return SHA256.digest(Array("longwire tokens \(self) ".utf8) + stored).bytes
    }
}
