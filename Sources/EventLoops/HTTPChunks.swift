/// Puts a chunked body together (RFC 9112, section 7.1), from bytes that come in any pieces.
///
/// Extensions and trailers are checked for length and passed over.
struct HTTPChunks {
    private enum Place { case size, data, dataEnd, trailer, done }

    private var place = Place.size
    private var missing = 0
    private var lineByteCount = 0

    var isDone: Bool { place == .done }

    /// Takes what it can from the front and appends the bodies' bytes to `body`.
    ///
    /// - Returns: how many bytes are done with; the rest, less than a line, must come again with what follows it.
    /// - Throws: the answer to a body that is malformed or larger than `limit`.
    mutating func take(
        _ bytes: UnsafeRawBufferPointer, into body: inout HTTPRequestBuffer, bodyStart: Int, limit: Int
    ) throws(HTTPHead.Refusal) -> Int {
        var offset = 0
        while offset < bytes.count, place != .done {
            if place == .data {
                let count = min(missing, bytes.count - offset)
                body.append(UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + count]))
                missing -= count
                offset += count
                if missing == 0 { place = .dataEnd }
                continue
            }
            guard let end = bytes[offset...].firstIndex(of: 0x0A) else {
                guard bytes.count - offset <= Limits.chunkLineByteCount else { throw Self.malformed }
                return offset
            }
            guard end > offset, bytes[end - 1] == 0x0D, end - offset <= Limits.chunkLineByteCount else {
                throw Self.malformed
            }
            let line = UnsafeRawBufferPointer(rebasing: bytes[offset..<end - 1])
            offset = end + 1
            switch place {
            case .size:
                missing = try Self.size(line)
                guard body.count - bodyStart + missing <= limit else {
                    throw HTTPHead.Refusal(status: 413, reason: "the body is too large")
                }
                place = missing == 0 ? .trailer : .data
            case .dataEnd:
                guard line.isEmpty else { throw Self.malformed }
                place = .size
            case .trailer:
                lineByteCount += line.count
                guard lineByteCount <= Limits.chunkLineByteCount else { throw Self.malformed }
                if line.isEmpty { place = .done }
            case .data, .done: break
            }
        }
        return offset
    }

    private static let malformed = HTTPHead.Refusal(status: 400, reason: "the chunks cannot be read")

    private static func size(_ line: UnsafeRawBufferPointer) throws(HTTPHead.Refusal) -> Int {
        var size = 0
        var digits = 0
        for byte in line {
            let value: UInt8
            switch byte {
            case 0x30...0x39: value = byte - 0x30
            case 0x41...0x46: value = byte - 0x41 + 10
            case 0x61...0x66: value = byte - 0x61 + 10
            case 0x3B where digits > 0: return size  // an extension
            default: throw malformed
            }
            digits += 1
            guard digits <= 8 else { throw HTTPHead.Refusal(status: 413, reason: "the body is too large") }
            size = size << 4 | Int(value)
        }
        guard digits > 0 else { throw malformed }
        return size
    }
}
