/// An incremental decoder of a chunked body (RFC 9112, section 7.1); extensions and trailers are validated and ignored.
struct HTTPChunks {
    private enum Place { case size, data, dataEnd, trailer, done }

    private var place = Place.size
    private var missing = 0
    private var lineByteCount = 0

    var isDone: Bool { place == .done }

    /// Decodes as much as possible and appends the data to `body`.
    ///
    /// - Returns: the number of bytes consumed. The remaining bytes are less than a line and must be passed again with the bytes
    ///   that follow.
    /// - Throws: the response to a body that is malformed or larger than `limit`.
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
            guard let end = try Self.endOfLine(UnsafeRawBufferPointer(rebasing: bytes[offset...]), place) else {
                guard bytes.count - offset <= Limits.chunkLineByteCount else { throw Self.malformed }
                return offset
            }
            guard end <= Limits.chunkLineByteCount else { throw Self.malformed }
            let line = UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + end - 1])
            offset += end + 1
            switch place {
            case .size:
                missing = try Self.size(line)
                guard body.count - bodyStart + missing <= limit else {
                    throw HTTPHead.Refusal(status: 413, reason: "the body is too large")
                }
                place = missing == 0 ? .trailer : .data
            case .dataEnd: place = .size
            case .trailer:
                lineByteCount += line.count
                guard lineByteCount <= Limits.chunkLineByteCount else { throw Self.malformed }
                guard line.isEmpty || Self.isField(line) else { throw Self.malformed }
                if line.isEmpty { place = .done }
            case .data, .done: break
            }
        }
        return offset
    }

    private static let malformed = HTTPHead.Refusal(status: 400, reason: "the chunks cannot be read")

    /// Returns the offset of the first LF; refuses invalid bytes before the line is complete, since the client may send no more.
    private static func endOfLine(_ bytes: UnsafeRawBufferPointer, _ place: Place) throws(HTTPHead.Refusal) -> Int? {
        var hasReturn = false
        for index in bytes.indices {
            let byte = bytes[index]
            if byte == 0x0A {
                guard hasReturn else { throw malformed }
                return index
            }
            guard !hasReturn else { throw malformed }
            hasReturn = byte == 0x0D
            // A chunk's data must be followed by a line end immediately.
            guard hasReturn || place != .dataEnd && (byte >= 0x20 && byte != 0x7F || byte == 0x09) else {
                throw malformed
            }
        }
        return nil
    }

    private static func isField(_ line: UnsafeRawBufferPointer) -> Bool {
        guard let colon = line.firstIndex(of: 0x3A), colon > 0 else { return false }
        return line[..<colon].allSatisfy { HTTPHead.isToken($0) }
    }

    private static func size(_ line: UnsafeRawBufferPointer) throws(HTTPHead.Refusal) -> Int {
        var size = 0
        var count = 0
        digits: for byte in line {
            let value: UInt8
            switch byte {
            case 0x30...0x39: value = byte - 0x30
            case 0x41...0x46: value = byte - 0x41 + 10
            case 0x61...0x66: value = byte - 0x61 + 10
            default: break digits
            }
            count += 1
            guard size < 1 << 28 else { throw HTTPHead.Refusal(status: 413, reason: "the body is too large") }
            size = size << 4 | Int(value)
        }
        guard count > 0, areExtensions(UnsafeRawBufferPointer(rebasing: line[count...])) else { throw malformed }
        return size
    }

    /// Returns whether the bytes are valid chunk extensions (RFC 9112, section 7.1.1).
    private static func areExtensions(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var place = 0
        func skipBlanks() { while place < bytes.count, bytes[place] == 0x20 || bytes[place] == 0x09 { place += 1 } }
        func skipWord() -> Bool {
            let start = place
            while place < bytes.count, HTTPHead.isToken(bytes[place]) { place += 1 }
            return place > start
        }
        while place < bytes.count {
            skipBlanks()
            guard place < bytes.count, bytes[place] == 0x3B else { return false }
            place += 1
            skipBlanks()
            guard skipWord() else { return false }
            let end = place
            skipBlanks()
            guard place < bytes.count, bytes[place] == 0x3D else {
                place = end
                continue
            }
            place += 1
            skipBlanks()
            guard place < bytes.count, bytes[place] == 0x22 else {
                guard skipWord() else { return false }
                continue
            }
            place += 1
            while place < bytes.count, bytes[place] != 0x22 { place += bytes[place] == 0x5C ? 2 : 1 }
            guard place < bytes.count else { return false }
            place += 1
        }
        return true
    }
}
