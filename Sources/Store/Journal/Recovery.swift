// Reading the journal after a stop, clean or not.
//
// Segments are read in the order of their generations, records in the order of their bytes, up to the first byte that
// is not a record of this generation. Usually that is the end. It may also be a torn tail (the machine died during a
// write; nothing of it was ever answered) or damage to what was synced. These two must not be confused. A start cuts a
// torn tail off silently. It refuses damage, since to go on would silently lose accepted messages. One of these is
// damage:
//
// - A later record of the segment says that its group began behind the mismatch, with everything before it synced.
// - A later segment says that this one ended elsewhere.
// - A file is shorter than it was made.
// - A segment between two others is missing.
// - A segment is of an earlier run than the one before it: a process wrote on after another one had taken over.
//
// Segments that were written with durability `os` claim no sync. A power failure may have taken any page of them, early
// ones and late ones, and kept others. The journal then ends at the first byte that is missing. The segments behind it
// are discarded, since what they say rests on what is lost.

internal import Platform

/// The journal as a start finds it.
package struct Recovery {
    package struct Segment: Equatable {
        package var generation: UInt64
        /// Where its records end.
        package var end: Int
        package var batchCount: Int
    }

    package let folder: SegmentFolder
    /// Oldest first.
    package private(set) var segments: [Segment] = []
    /// The torn write behind the last record, if there is one.
    package private(set) var tornTail: (generation: UInt64, offset: Int)?
    /// Segments behind a loss that was allowed; their records are not replayed.
    package private(set) var discarded: [UInt64] = []
    /// What was written behind the place where the journal ends now, as far as it shows.
    package private(set) var cutByteCount = 0
    /// The journal was not synced, so what was cut may have been answered.
    package private(set) var isUnsynced = false
    /// The run that wrote it (`SegmentHeader.run`): a start empties the journal before it writes, so there is one at most.
    package private(set) var run: UInt64 = 0

    /// Checks the whole journal and changes nothing.
    ///
    /// - Throws: `.damaged` when synced records are not what they were; `.system` when a file cannot be read.
    package init(folder: SegmentFolder) throws(JournalError) {
        self.folder = folder
        var previous: SegmentHeader?
        let file = SegmentBuffer()
        var lastExtent = 0
        for generation in try folder.segments() {
            try file.read(folder.segmentPath(generation))
            let scan = try Self.scan(file, generation: generation, isTrimmed: folder.isTrimmed)
            isUnsynced = isUnsynced || scan.isUnsynced
            guard discarded.isEmpty else {
                discarded.append(generation)
                cutByteCount += scan.extent
                continue
            }
            guard let header = scan.header else {
                // Taken from the pool and never written; or its first group was torn.
                segments.append(Segment(generation: generation, end: 0, batchCount: 0))
                lastExtent = scan.extent
                continue
            }
            if let previous, header.run < previous.run {
                throw .damaged(
                    file: file.path, offset: 0,
                    what: "run \(header.run) wrote it, though run \(previous.run) had taken over before")
            }
            if header.previousGeneration != 0, let last = segments.last {
                try Self.check(last, previous, against: header, in: folder)
                if last.end != header.previousEnd {
                    discarded.append(generation)
                    cutByteCount += max(0, header.previousEnd - last.end) + scan.extent
                    tornTail = (last.generation, last.end)
                    continue
                }
            }
            previous = header
            run = header.run
            segments.append(Segment(generation: generation, end: scan.end, batchCount: scan.batchCount))
            lastExtent = scan.extent
            tornTail = scan.isTorn ? (generation, scan.end) : nil
        }
        if discarded.isEmpty, let last = segments.last { cutByteCount = max(0, lastExtent - last.end) }
    }

    /// Frees the segments that are not replayed; before the first of the others is given back.
    ///
    /// The newest first: a start that is cut off in between finds the same loss again.
    package func discard() throws(JournalError) {
        for generation in discarded.reversed() { try folder.recycle(generation) }
    }

    /// Brings the journal to the disk as it was read.
    ///
    /// A process that was killed leaves what it had written and not synced in the kernel's cache, where a start finds it. Were
    /// its rows moved, family by family, and the power failed in between, some rows of a batch would be there for good and the
    /// others gone with the journal's tail.
    package func synchronize() throws(JournalError) {
        do throws(SystemError) {
            for segment in segments where segment.end > 0 {
                try File(path: folder.segmentPath(segment.generation), mode: .readWrite).synchronizeData()
            }
        } catch { throw .system(error) }
    }

    package var batchCount: Int { segments.reduce(0) { $0 + $1.batchCount } }
    package var byteCount: Int { segments.reduce(0) { $0 + $1.end } }

    /// Calls `visit` for each operation of a segment, in order; values are valid until `file` reads another one.
    ///
    /// - Throws: `.damaged` when a record passes its checksum and yet makes no sense to this version.
    package func replay(
        _ segment: Segment, using file: SegmentBuffer = SegmentBuffer(), _ visit: (Operation) -> Void
    ) throws(JournalError) {
        try file.read(folder.segmentPath(segment.generation))
        var offset = SegmentHeader.byteCount
        while offset < segment.end {
            guard let header = RecordHeader(in: file.bytes, at: offset, generation: segment.generation) else {
                throw JournalError.damaged(file: file.path, offset: offset, what: "the file changed while it was read")
            }
            let start = offset + RecordHeader.byteCount
            let record = UnsafeRawBufferPointer(rebasing: file.bytes[start..<start + header.bodyByteCount])
            guard Operation.readAll(in: record, of: header, visit) else {
                throw JournalError.damaged(
                    file: file.path, offset: offset, what: "the record is whole, but this version cannot read it")
            }
            offset += header.recordByteCount
        }
    }

    // MARK: Checking

    private struct Scan {
        var header: SegmentHeader?
        var end = 0
        var batchCount = 0
        var isTorn = false
        /// The end of the last record that shows, whole or not.
        var extent = 0
        var isUnsynced = false
    }

    private static func scan(
        _ file: SegmentBuffer, generation: UInt64, isTrimmed: Bool
    ) throws(JournalError) -> Scan {
        var scan = Scan()
        scan.header = SegmentHeader(in: file.bytes, generation: generation)
        if let header = scan.header, !isTrimmed, file.bytes.count < header.segmentByteCount {
            throw .damaged(
                file: file.path, offset: file.bytes.count,
                what: "the file was made with \(header.segmentByteCount) bytes and ends here")
        }
        var offset = SegmentHeader.byteCount
        if scan.header != nil {
            while let header = RecordHeader(in: file.bytes, at: offset, generation: generation),
                isWhole(header, in: file.bytes, at: offset)
            {
                offset += header.recordByteCount
                scan.batchCount += 1
            }
            scan.end = offset
        } else {
            offset = 0
        }
        scan.extent = scan.end
        scan.isUnsynced = scan.header?.isUnsynced ?? false
        // Whatever is behind the first mismatch must have been written in the same group as it, unless nothing was synced.
        var probe = offset + (offset == 0 ? SegmentHeader.byteCount : 0)
        while probe + RecordHeader.byteCount <= file.bytes.count {
            defer { probe += Limits.alignment }
            guard let later = RecordHeader(in: file.bytes, at: probe, generation: generation) else { continue }
            let isProof = later.groupStart > max(offset, SegmentHeader.byteCount) && later.groupStart <= probe
            if isProof {
                throw .damaged(
                    file: file.path, offset: offset,
                    what:
                        "the record here does not match its checksum, yet byte \(probe) was written after it was synced"
                )
            }
            scan.isTorn = true
            scan.isUnsynced = scan.isUnsynced || later.groupStart == 0
            scan.extent = max(scan.extent, min(probe + later.recordByteCount, file.bytes.count))
        }
        if !scan.isTorn, scan.header != nil, file.bytes.count > offset {
            let tail = UnsafeRawBufferPointer(rebasing: file.bytes[offset..<min(offset + 16, file.bytes.count)])
            scan.isTorn =
                tail.count == 16
                && tail.loadUnaligned(fromByteOffset: 12, as: UInt32.self) == UInt32(truncatingIfNeeded: generation)
        }
        return scan
    }

    static func isWhole(_ header: RecordHeader, in bytes: UnsafeRawBufferPointer, at offset: Int) -> Bool {
        guard header.groupStart <= offset, bytes.count - offset >= header.recordByteCount else { return false }
        let start = offset + RecordHeader.byteCount
        let body = UnsafeRawBufferPointer(rebasing: bytes[start..<start + header.bodyByteCount])
        return Checksum.crc32c(body) == header.bodyChecksum
    }

    /// A segment that follows another proves that the other one is there, and that it was synced to its end if any was.
    private static func check(
        _ last: Segment, _ lastHeader: SegmentHeader?, against next: SegmentHeader, in folder: SegmentFolder
    ) throws(JournalError) {
        guard last.generation == next.previousGeneration else {
            throw .damaged(
                file: folder.segmentPath(next.previousGeneration), offset: 0,
                what: "the file is missing, though \(SegmentFolder.name("segment", last.generation)) before it is there"
            )
        }
        guard last.end == next.previousEnd || next.isUnsynced else {
            throw .damaged(
                file: folder.segmentPath(last.generation), offset: last.end,
                what: "its records end here, but they were synced up to byte \(next.previousEnd)")
        }
    }
}

/// A segment's bytes, read whole, in memory that the next segment uses again.
///
/// Read and not mapped: a disk that cannot give a page of a mapping ends the process with a signal, where a failed read
/// says which file it was.
package final class SegmentBuffer {
    private(set) var path = ""
    private(set) var bytes = UnsafeRawBufferPointer(start: nil, count: 0)
    private var memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    package init() {}

    /// - Throws: `.system` when the file cannot be read; then there are no bytes.
    func read(_ path: String) throws(JournalError) {
        self.path = path
        bytes = UnsafeRawBufferPointer(start: nil, count: 0)
        do throws(SystemError) {
            let file = try File(path: path, mode: .read)
            let count = try file.byteCount()
            if count > memory.count {
                memory.deallocate()
                memory = .allocate(byteCount: count, alignment: 8)
            }
            let done = try file.read(into: UnsafeMutableRawBufferPointer(rebasing: memory[..<count]), at: 0)
            bytes = UnsafeRawBufferPointer(rebasing: memory[..<done])
        } catch {
            throw .system(error)
        }
    }

    deinit { memory.deallocate() }
}
