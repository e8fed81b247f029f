internal import Platform

/// A segment's header and records, without the unused bytes behind them, as a backup stores them.
package struct SegmentCopy {
    package let generation: UInt64
    /// The previous segment of the same run and its end offset; generation 0 if there was none.
    package let previous: (generation: UInt64, end: Int)
    package let byteCount: Int
    private let buffer: SegmentBuffer

    /// Reads a segment to which the committer may still be appending; `nil` if the segment was never written.
    ///
    /// - Parameters:
    ///   - path: The segment's file.
    ///   - generation: The segment's generation.
    ///   - end: The end offset of the records, if known. Otherwise the copy ends with the last whole record.
    ///   - buffer: The memory for the bytes, valid until `buffer` reads another file.
    /// - Throws: `.damaged` when the records end before `end`; `.system` when the file cannot be read.
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

    /// Returns the file size that the segment's header states; `nil` if the header is not of this generation.
    package static func fileByteCount(_ header: UnsafeRawBufferPointer, generation: UInt64) -> Int? {
        SegmentHeader(in: header, generation: generation)?.segmentByteCount
    }

    package static func generation(_ name: some StringProtocol) -> UInt64? {
        guard name.hasPrefix("segment-"), name.utf8.count == "segment-".utf8.count + 16 else { return nil }
        return UInt64(name.dropFirst("segment-".utf8.count), radix: 16)
    }
}
