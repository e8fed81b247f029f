/// A parser for one HTTP/1.1 answer at the start of received bytes, in place.
enum HTTPResponseScanner {
    struct Response: Equatable {
        var status: Int
        var body: Range<Int>
        var keepsAlive: Bool
    }

    enum Outcome: Equatable {
        case incomplete
        case response(Response)
        /// The bytes are not an HTTP answer that allows keep-alive.
        case malformed
    }

    /// Parses received bytes from an answer's first byte on.
    static func scan(_ bytes: UnsafeRawBufferPointer, limit: Int = Limits.responseByteCount) -> Outcome {
        guard let headEnd = end(ofHead: bytes) else {
            return bytes.count > limit ? .malformed : .incomplete
        }
        guard headEnd >= 16, starts(bytes, at: 0, "http/1."), bytes[8] == UInt8(ascii: " "),
            let status = number(bytes, 9..<12)
        else { return .malformed }
        var length: Int?
        var keepsAlive = true
        var line = 0
        while line < headEnd - 2 {
            var lineEnd = line
            while bytes[lineEnd] != UInt8(ascii: "\n") { lineEnd += 1 }
            if starts(bytes, at: line, "content-length:") {
                var first = line + 15
                while first < lineEnd, bytes[first] == UInt8(ascii: " ") { first += 1 }
                var last = lineEnd
                while last > first, bytes[last - 1] == UInt8(ascii: "\r") || bytes[last - 1] == UInt8(ascii: " ") {
                    last -= 1
                }
                length = number(bytes, first..<last)
                if length == nil { return .malformed }
            } else if starts(bytes, at: line, "connection: close") {
                keepsAlive = false
            }
            line = lineEnd + 1
        }
        guard let length, length <= limit else { return .malformed }
        guard headEnd + length <= bytes.count else { return .incomplete }
        return .response(Response(status: status, body: headEnd..<(headEnd + length), keepsAlive: keepsAlive))
    }

    /// Returns Getui's result code from an answer's body, or `nil`.
    static func code(_ body: UnsafeRawBufferPointer) -> Int? {
        guard let start = find(body, "\"code\":") else { return nil }
        var offset = start
        while offset < body.count, body[offset] == UInt8(ascii: " ") { offset += 1 }
        var end = offset
        while end < body.count, body[end] >= 48, body[end] <= 57 { end += 1 }
        return number(body, offset..<end)
    }

    /// Returns the text value of `"key":"…"`, which must not contain escapes.
    static func text(_ key: String, _ body: UnsafeRawBufferPointer) -> String? {
        guard let colon = find(body, "\"\(key)\":") else { return nil }
        var offset = colon
        while offset < body.count, body[offset] == UInt8(ascii: " ") { offset += 1 }
        guard offset < body.count, body[offset] == UInt8(ascii: "\"") else { return nil }
        offset += 1
        var end = offset
        while end < body.count, body[end] != UInt8(ascii: "\"") { end += 1 }
        guard end < body.count else { return nil }
        return String(decoding: body[offset..<end], as: UTF8.self)
    }

    static func refusedIndexes(_ body: UnsafeRawBufferPointer) -> Set<Int> {
        guard let start = find(body, "\"refused\":") else { return [] }
        var rest = UnsafeRawBufferPointer(rebasing: body[start...])
        var found: Set<Int> = []
        while let place = find(rest, "\"index\":") {
            var end = place
            while end < rest.count, rest[end] >= 48, rest[end] <= 57 { end += 1 }
            if let index = number(rest, place..<end) { found.insert(index) }
            rest = UnsafeRawBufferPointer(rebasing: rest[end...])
        }
        return found
    }

    /// Returns the offset after the blank line.
    private static func end(ofHead bytes: UnsafeRawBufferPointer) -> Int? {
        var offset = 3
        while offset < bytes.count {
            if bytes[offset] == 10, bytes[offset - 1] == 13, bytes[offset - 2] == 10, bytes[offset - 3] == 13 {
                return offset + 1
            }
            offset += 1
        }
        return nil
    }

    private static func starts(_ bytes: UnsafeRawBufferPointer, at start: Int, _ text: StaticString) -> Bool {
        guard start + text.utf8CodeUnitCount <= bytes.count else { return false }
        for index in 0..<text.utf8CodeUnitCount {
            var byte = bytes[start + index]
            if byte >= 65, byte <= 90 { byte += 32 }
            if byte != text.utf8Start[index] { return false }
        }
        return true
    }

    /// Returns the offset after the first occurrence of `text`.
    static func find(_ bytes: UnsafeRawBufferPointer, _ text: String) -> Int? {
        var text = text
        return text.withUTF8 { ByteSearch.find(UnsafeRawBufferPointer($0), in: bytes) }
    }

    private static func number(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) -> Int? {
        guard !range.isEmpty, range.count <= 9, range.upperBound <= bytes.count else { return nil }
        var value = 0
        for index in range {
            guard bytes[index] >= 48, bytes[index] <= 57 else { return nil }
            value = value * 10 + Int(bytes[index] - 48)
        }
        return value
    }
}
