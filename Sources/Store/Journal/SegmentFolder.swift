// The folder of segments. A segment in use is named `segment-GENERATION`, one that waits to be used again
// `free-GENERATION` (that of its last use), one that is being filled with zeros `new-…`. Sixteen hex digits, so that
// names sort as generations do. Every change of names is synced before anything relies on it.

internal import Platform

/// The journal's folder on disk.
package struct SegmentFolder: Sendable {
    package let path: String
    package let segmentByteCount: Int
    /// The segments end with their last record, as a backup has them.
    package let isTrimmed: Bool

    package init(path: String, segmentByteCount: Int = Limits.segmentByteCount, isTrimmed: Bool = false) {
        precondition(segmentByteCount >= Limits.smallestSegmentByteCount, "a segment is too small for its batches")
        precondition(segmentByteCount % Limits.alignment == 0, "segments are multiples of eight bytes")
        (self.path, self.segmentByteCount, self.isTrimmed) = (path, segmentByteCount, isTrimmed)
    }

    /// Makes the folder if it is not there and clears away what a crash left half made.
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

    /// The generations of the files whose names begin with `prefix`, ascending.
    func generations(_ prefix: String) throws(JournalError) -> [UInt64] {
        do throws(SystemError) {
            return try FileSystem.list(path).compactMap { name in
                guard name.hasPrefix(prefix + "-"), name.utf8.count == prefix.utf8.count + 17 else { return nil }
                return UInt64(name.dropFirst(prefix.utf8.count + 1), radix: 16)
            }
        } catch { throw .system(error) }
    }

    /// Segments that may hold records, oldest first.
    package func segments() throws(JournalError) -> [UInt64] { try generations("segment") }

    /// Files of the right size that wait to be used again; others are removed.
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

    /// Makes a file of zeros, synced, under the name `free-GENERATION`.
    ///
    /// One that is awaited holds up the committer, and with it each publish: its blocks are reserved and not written, which
    /// costs its syncs something and the wait next to nothing. Any other is written, gently.
    func makeSpare(_ generation: UInt64, isAwaited: Bool) throws(JournalError) {
        // The committer and the spiller may make one each at the same time.
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
            // Under either name: who tries again uses another number, and would leave one file more each time.
            try? FileSystem.removeFile(draft)
            try? FileSystem.removeFile(freePath(generation))
            throw .system(error)
        }
    }

    /// Gives a spare its new generation and opens it.
    func open(spare: UInt64, as generation: UInt64) throws(JournalError) -> File {
        do throws(SystemError) {
            try FileSystem.rename(freePath(spare), to: segmentPath(generation))
            try FileSystem.synchronizeDirectory(path)
            return try File(path: segmentPath(generation), mode: .readWrite)
        } catch { throw .system(error) }
    }

    /// Frees a segment: its records will not be replayed again.
    ///
    /// Segments are freed oldest first, each synced before the next: a delete must not go before what it deletes.
    package func recycle(_ generation: UInt64) throws(JournalError) {
        do throws(SystemError) {
            try FileSystem.rename(segmentPath(generation), to: freePath(generation))
            try FileSystem.synchronizeDirectory(path)
        } catch { throw .system(error) }
    }

    /// As `recycle`, for a segment whose bytes are still read under another name.
    func remove(segment: UInt64) throws(JournalError) {
        do throws(SystemError) {
            try FileSystem.removeFile(segmentPath(segment))
            try FileSystem.synchronizeDirectory(path)
        } catch { throw .system(error) }
    }

    func remove(spare: UInt64) throws(JournalError) {
        do throws(SystemError) { try FileSystem.removeFile(freePath(spare)) } catch { throw .system(error) }
    }

    /// The highest generation that a file here has; 0 without files.
    package func highestGeneration() throws(JournalError) -> UInt64 {
        let all = try segments() + generations("free")
        return all.max() ?? 0
    }
}
