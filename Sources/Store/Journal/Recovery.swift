// Reading the journal after a clean stop or a crash.
//
// Segments are read in the order of their generations, and records in file order, up to the first byte that is not a record of
// this generation. That byte is usually the end of the journal. Otherwise it is a torn tail or damage to synced data. A torn tail
// is left by a machine that crashed during a write; no batch in it was acknowledged. A start silently cuts off a torn tail. A
// start refuses damage, because continuing would silently lose acknowledged messages. Each of these conditions is damage:
//
// - A later record's group start is behind the mismatch. Everything before a group start was synced.
// - A later segment states another end offset for this segment.
// - A file is shorter than its header states.
// - A segment between two others is missing.
// - A segment belongs to an earlier run than the segment before it: an old process kept writing after a takeover.
//
// Segments written with durability `os` claim no sync. A power failure may have lost any of their pages and kept later ones. The
// journal then ends at the first missing byte, and later segments are discarded because they depend on the lost records.

internal import Platform

package struct Recovery {
    package struct Segment: Equatable {
        package var generation: UInt64
        package var end: Int
        package var batchCount: Int
    }

    package let folder: SegmentFolder
    /// The segments to replay, oldest first.
    package private(set) var segments: [Segment] = []
    /// The position of a torn write behind the last record, if any.
    package private(set) var tornTail: (generation: UInt64, offset: Int)?
    /// Segments after a gap that durability `os` allows; their records are not replayed.
    package private(set) var discarded: [UInt64] = []
    /// The number of bytes cut off after the last valid record, up to the end of the last record with a readable header.
    package private(set) var cutByteCount = 0
    /// Whether any segment was written without sync, so that the cut bytes may contain acknowledged batches.
    package private(set) var isUnsynced = false
    /// The run that wrote the journal (`SegmentHeader.run`); a start empties the journal before it writes, so all segments are of
    /// one run.
    package private(set) var run: UInt64 = 0

    /// Reads and checks the whole journal.
    ///
    /// Changes nothing on disk.
    ///
    /// - Throws: `.damaged` when synced records are missing or changed; `.system` when a file cannot be read.
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
                // The segment was taken from the pool and never written, or its first group is torn.
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

    /// Recycles the discarded segments.
    ///
    /// Call this before any replayed segment is recycled. The newest segment is recycled first, so that a start that is
    /// interrupted in between detects the same loss again.
    package func discard() throws(JournalError) {
        for generation in discarded.reversed() { try folder.recycle(generation) }
    }

    /// Syncs the journal's segments before their rows are moved into the database.
    ///
    /// A killed process leaves unsynced writes in the kernel's page cache, where this start reads them. Rows move to the database
    /// one column family at a time. A power failure between two families would otherwise keep some rows of a batch and lose the
    /// others.
    package func synchronize() throws(JournalError) {
        do throws(SystemError) {
            for segment in segments where segment.end > 0 {
                try File(path: folder.segmentPath(segment.generation), mode: .readWrite).synchronizeData()
            }
        } catch { throw .system(error) }
    }

    package var batchCount: Int { segments.reduce(0) { $0 + $1.batchCount } }
    package var byteCount: Int { segments.reduce(0) { $0 + $1.end } }

    /// Calls `visit` for each operation of a segment, in order.
    ///
    /// Values are valid until `file` reads another segment.
    ///
    /// - Throws: `.damaged` when a record passes its checksum but cannot be decoded by this version.
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
        /// The end offset of the last record whose header is readable, whether or not its body is complete.
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
        // Records behind the first mismatch must belong to the same group as the mismatch, unless nothing was synced.
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

    /// Checks that the previous segment exists and that its records reach the end offset that the next header states.
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

/// A buffer that holds one whole segment and is reused for the next.
///
/// The file is read rather than mapped: a failed page of a mapping would end the process with a signal, while a failed read
/// reports the file.
package final class SegmentBuffer {
    private(set) var path = ""
    private(set) var bytes = UnsafeRawBufferPointer(start: nil, count: 0)
    private var memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    package init() {}

    /// - Throws: `.system` when the file cannot be read; `bytes` is then empty.
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
