internal import Platform

/// A segment's header and records, without what follows them: what a backup keeps of the file.
package struct SegmentCopy {
    package let generation: UInt64
    /// Where the segment before it ended, if this run wrote one.
    package let previous: (generation: UInt64, end: Int)
    package let byteCount: Int
    private let buffer: SegmentBuffer

    /// Reads a segment, whose end the committer may be writing; `nil` when it was never written.
    ///
    /// - Parameters:
    ///   - path: the file.
    ///   - generation: the segment's.
    ///   - end: where its records end, if that is known; otherwise with the last one that is whole.
    ///   - buffer: lends its memory until it reads another file.
    /// - Throws: `.damaged` when its records end before `end`; `.system` when the file cannot be read.
    package init?(
        _ path: String, generation: UInt64, upTo end: Int?, using buffer: SegmentBuffer
    ) throws(JournalError) {
        try buffer.read(path)
        let bytes = buffer.bytes
        guard let header = SegmentHeader(in: bytes, generation: generation) else {
            guard let end, end > 0 else { return nil }
            throw .damaged(file: path, offset: 0, what: "its header is gone")
        }
        var offset = SegmentHeader.byteCount
        while offset < end ?? .max,
            let record = RecordHeader(in: bytes, at: offset, generation: generation),
            Recovery.isWhole(record, in: bytes, at: offset)
        {
            offset += record.recordByteCount
        }
        if let end, offset != end {
            throw .damaged(file: path, offset: offset, what: "a record does not match its checksum")
        }
        (self.generation, byteCount, self.buffer) = (generation, offset, buffer)
        previous = (header.previousGeneration, header.previousEnd)
    }

    package func withBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(UnsafeRawBufferPointer(rebasing: buffer.bytes[..<byteCount]))
    }

    /// The size that the file of a segment had, by its header; `nil` when that is none of this generation.
    package static func fileByteCount(_ header: UnsafeRawBufferPointer, generation: UInt64) -> Int? {
        SegmentHeader(in: header, generation: generation)?.segmentByteCount
    }

    /// The generation that a segment's name tells.
    package static func generation(_ name: some StringProtocol) -> UInt64? {
        guard name.hasPrefix("segment-"), name.utf8.count == "segment-".utf8.count + 16 else { return nil }
        return UInt64(name.dropFirst("segment-".utf8.count), radix: 16)
    }
}
