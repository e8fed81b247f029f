// The folder of journal segments. A segment in use is named `segment-GENERATION`. A spare for reuse is named `free-GENERATION`,
// with the generation of its last use. A file that is being filled with zeros is named `new-…`. Generations have sixteen hex
// digits, so that names sort in generation order. Every rename is synced to the directory before other code relies on it.

internal import Platform

package struct SegmentFolder: Sendable {
    package let path: String
    package let segmentByteCount: Int
    /// Whether each file ends with its last record, as in a backup.
    package let isTrimmed: Bool

    package init(path: String, segmentByteCount: Int = Limits.segmentByteCount, isTrimmed: Bool = false) {
        precondition(segmentByteCount >= Limits.smallestSegmentByteCount, "a segment is too small for its batches")
        precondition(segmentByteCount % Limits.alignment == 0, "segments are multiples of eight bytes")
        (self.path, self.segmentByteCount, self.isTrimmed) = (path, segmentByteCount, isTrimmed)
    }

    /// Creates the folder if it does not exist and removes unfinished `new-` files of a crash.
    package func prepare() throws(JournalError) {
        do throws(SystemError) {
            try FileSystem.createDirectory(path)
            for name in try FileSystem.list(path) where name.hasPrefix("new-") {
                try FileSystem.removeFile(path + "/" + name)
            }
        } catch { throw .system(error) }
    }

    package static func name(_ prefix: String, _ generation: UInt64) -> String {
        let digits = String(generation, radix: 16)
        return prefix + "-" + String(repeating: "0", count: 16 - digits.count) + digits
    }

    package func segmentPath(_ generation: UInt64) -> String { path + "/" + Self.name("segment", generation) }
    func freePath(_ generation: UInt64) -> String { path + "/" + Self.name("free", generation) }

    func generations(_ prefix: String) throws(JournalError) -> [UInt64] {
        do throws(SystemError) {
            return try FileSystem.list(path).compactMap { name in
                guard name.hasPrefix(prefix + "-"), name.utf8.count == prefix.utf8.count + 17 else { return nil }
                return UInt64(name.dropFirst(prefix.utf8.count + 1), radix: 16)
            }
        } catch { throw .system(error) }
    }

    package func segments() throws(JournalError) -> [UInt64] { try generations("segment") }

    /// Returns the spare files of the configured size and removes spares of another size.
    func spares() throws(JournalError) -> [UInt64] {
        var spares: [UInt64] = []
        for generation in try generations("free") {
            do throws(SystemError) {
                let byteCount = try File(path: freePath(generation), mode: .read).byteCount()
                if byteCount == segmentByteCount {
                    spares.append(generation)
                } else {
                    try FileSystem.removeFile(freePath(generation))
                }
            } catch { throw .system(error) }
        }
        return spares
    }

    /// Creates a synced file of zeros under the name `free-GENERATION`.
    ///
    /// With `isAwaited`, the committer and every publish wait for the file. Its blocks are then only reserved: the creation is
    /// fast, but later syncs are slower. Other spares are written with throttling (`isGentle`).
    func makeSpare(_ generation: UInt64, isAwaited: Bool) throws(JournalError) {
        // The name contains the generation, because the committer and the spiller may create spares at the same time.
        let draft = path + "/" + Self.name("new", generation)
        do throws(SystemError) {
            do {
                let file = try File(path: draft, mode: .createNew)
                let isReserved = isAwaited ? try file.reserve(byteCount: segmentByteCount) : false
                if !isReserved {
                    try file.fillWithZeros(byteCount: segmentByteCount, isGentle: !isAwaited)
                }
            }
            try FileSystem.rename(draft, to: freePath(generation))
            try FileSystem.synchronizeDirectory(path)
        } catch {
            // Remove both names: a retry uses another number, so each failed try would leave one more file.
            try? FileSystem.removeFile(draft)
            try? FileSystem.removeFile(freePath(generation))
            throw .system(error)
        }
    }

    func open(spare: UInt64, as generation: UInt64) throws(JournalError) -> File {
        do throws(SystemError) {
            try FileSystem.rename(freePath(spare), to: segmentPath(generation))
            try FileSystem.synchronizeDirectory(path)
            return try File(path: segmentPath(generation), mode: .readWrite)
        } catch { throw .system(error) }
    }

    /// Renames a segment to a spare.
    ///
    /// Its records will not be replayed again. Segments are recycled oldest first, and each rename is synced before the next.
    /// Otherwise a crash could keep a row and lose the later record of its deletion.
    package func recycle(_ generation: UInt64) throws(JournalError) {
        do throws(SystemError) {
            try FileSystem.rename(segmentPath(generation), to: freePath(generation))
            try FileSystem.synchronizeDirectory(path)
        } catch { throw .system(error) }
    }

    /// Removes a segment in place of `recycle`, because a backup still reads its bytes through a hard link.
    func remove(segment: UInt64) throws(JournalError) {
        do throws(SystemError) {
            try FileSystem.removeFile(segmentPath(segment))
            try FileSystem.synchronizeDirectory(path)
        } catch { throw .system(error) }
    }

    func remove(spare: UInt64) throws(JournalError) {
        do throws(SystemError) { try FileSystem.removeFile(freePath(spare)) } catch { throw .system(error) }
    }

    /// Returns the highest generation of any segment or spare; 0 without files.
    package func highestGeneration() throws(JournalError) -> UInt64 {
        let all = try segments() + generations("free")
        return all.max() ?? 0
    }
}
