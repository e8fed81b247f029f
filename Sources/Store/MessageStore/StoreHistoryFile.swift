internal import Cryptography
package import Delivery
internal import Platform

/// Why a start gave a store another history: its content may be older than what devices and consumers have seen.
package enum HistoryChange: String, Sendable {
    /// The folder is a copy of another one, made without `longwire`.
    case copied
    /// The machine failed while the store did not sync its commits (durability `os`).
    case machineFailed
    /// An operator emptied the file or removed it, or it is damaged.
    case asked
}

/// The file `history` of a store's folder: the store's history, and how to find out that the content is older.
///
///     longwire history ID:BEGAN BIRTH BOOT
///
/// BIRTH is when this file was made, in nanoseconds: a copy of the folder has a file that was made later. Each start makes
/// the file anew, so an earlier copy that is written over the folder names another birth than the file that it fills. BOOT is
/// the boot in which commits go unsynced, or `-`.
enum StoreHistoryFile {
    private static let prefix = "longwire history "

    struct Content: Equatable {
        var history: StoreHistory
        /// 0 on a file system that does not keep it.
        var birth: Int64 = 0
        var boot = "-"
    }

    static func path(_ folder: String) -> String { folder + "/history" }

    /// Reads the file at a start, and gives the store another history if its content may be older.
    ///
    /// The file is durable on return.
    ///
    /// - Parameters:
    ///   - folder: the store's, locked by this process.
    ///   - isNew: no process has written to the store before.
    ///   - isSynced: commits of this run are synced.
    ///   - wall: the wall clock in milliseconds since 1970; the beginning of a history has no other use than to be later.
    /// - Returns: the history in force, and why it is another one than before.
    /// - Throws: what reading or writing the file met.
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

    /// The kernel's id of this boot; without it every start counts as another boot.
    private static func boot() -> String { SystemClock.bootID ?? "unknown-\(SecureRandom.word())" }

    /// Notes that all commits are synced: the store has been closed.
    static func noteSynced(_ history: StoreHistory, in folder: String) {
        // Otherwise the next boot begins a history without need.
        try? write(history, to: folder, boot: "-")
    }

    /// Gives a folder another history; for what makes a store of a copy.
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
    /// The key that signs tokens of the push API, made of the stored one.
    ///
    /// An older store does not know which tokens were revoked since: after its content went back no earlier token counts.
    package func tokenKey(_ stored: [UInt8]) -> [UInt8] {
        guard hasGoneBack else { return stored }
        return SHA256.digest(Array("longwire tokens \(self) ".utf8) + stored).bytes
    }
}
