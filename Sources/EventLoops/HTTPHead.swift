/// The request line and the headers of one request, checked: where each part stands in the bytes it was read from.
///
/// Strict where two readers of the same bytes could disagree (RFC 9112, sections 3, 5.1, 6.3 and 11.2). Lines end with
/// CRLF only, no line is folded, and only a name stands before a colon. A length is given once, in digits, and not
/// together with chunks.
package struct HTTPHead {
    /// Why a request is not taken; the connection ends with the answer.
    package struct Refusal: Error {
        package var status: Int
        package var reason: StaticString
    }

    /// Bytes from an offset on.
    struct Range: Equatable {
        var start: Int32
        var end: Int32
    }

    /// What follows the head.
    enum Body: Equatable {
        case length(Int)
        case chunks
    }

    private(set) var method = HTTPMethod.get
    private(set) var target = Range(start: 0, end: 0)
    private(set) var body = Body.length(0)
    /// The client can take another request's answer on this connection.
    private(set) var keepsAlive = true
    private(set) var isHTTP10 = false
    /// The body comes when the client has been told to go on.
    private(set) var expectsContinue = false
    private var saidClose = false
    /// Names and values, in order.
    private var fields: [(name: Range, value: Range)] = []

    /// Forgets a request and keeps the memory.
    mutating func removeAll() {
        fields.removeAll(keepingCapacity: true)
        (method, target, body) = (.get, Range(start: 0, end: 0), .length(0))
        (keepsAlive, saidClose, isHTTP10, expectsContinue) = (true, false, false, false)
    }

    /// The first header of that name, in any case; `bytes` begin with the head that was read.
    func value(_ name: UnsafeRawBufferPointer, in bytes: UnsafeRawBufferPointer) -> Range? {
        for field in fields where Self.equals(name, bytes, field.name) { return field.value }
        return nil
    }

    // MARK: Reading

    /// The head, while it is read; afterwards its bytes may move.
    private var bytes = UnsafeRawBufferPointer(start: nil, count: 0)

    /// Reads a whole head, its last empty line included.
    mutating func read(_ head: UnsafeRawBufferPointer, bodyLimit: Int) throws(Refusal) {
        removeAll()
        bytes = head
        defer { bytes = UnsafeRawBufferPointer(start: nil, count: 0) }
        guard head.count <= Int32.max else { throw Refusal(status: 431, reason: "the headers are too large") }
        var place = try readRequestLine()
        // The last two bytes are the empty line's own.
        while place < head.count - 2 { place = try readField(at: place) }
        try interpret(bodyLimit: bodyLimit)
    }

    /// The offset of the line's CR; nothing in a line may be a control character but a tab.
    private func endOfLine(from start: Int) throws(Refusal) -> Int {
        var place = start
        while true {
            let byte = bytes[place]
            if byte == 0x0D {
                guard bytes[place + 1] == 0x0A else { break }
                return place
            }
            guard byte >= 0x20 && byte != 0x7F || byte == 0x09 else { break }
            place += 1
        }
        throw Refusal(status: 400, reason: "a line of the head has characters that do not belong there")
    }

    private mutating func readRequestLine() throws(Refusal) -> Int {
        let malformed = Refusal(status: 400, reason: "the request line cannot be read")
        let end = try endOfLine(from: 0)
        guard let first = find(0x20, 0..<end), first > 0, let second = find(0x20, first + 1..<end), second > first + 1
        else { throw malformed }
        let version = second + 1..<end
        // Eight characters, in capitals: "HTTP/", a digit, a dot, a digit.
        let name: StaticString = "HTTP/"
        guard version.count == 8, (0..<5).allSatisfy({ bytes[version.lowerBound + $0] == name.utf8Start[$0] }),
            bytes[end - 2] == 0x2E, (0x30...0x39).contains(bytes[end - 1]), (0x30...0x39).contains(bytes[end - 3])
        else { throw malformed }
        guard bytes[end - 3] == 0x31 else { throw Refusal(status: 505, reason: "the server speaks HTTP/1.1") }
        isHTTP10 = bytes[end - 1] == 0x30
        keepsAlive = !isHTTP10
        for place in first + 1..<second where bytes[place] == 0x09 { throw malformed }
        target = Range(start: Int32(first + 1), end: Int32(second))
        guard
            let known = HTTPMethod.allCases.first(where: { method in
                method.name.utf8CodeUnitCount == first
                    && (0..<first).allSatisfy { bytes[$0] == method.name.utf8Start[$0] }
            })
        else {
            throw Refusal(status: 501, reason: "the method is not supported")
        }
        method = known
        return end + 2
    }

    private mutating func readField(at start: Int) throws(Refusal) -> Int {
        let end = try endOfLine(from: start)
        guard let colon = find(0x3A, start..<end), colon > start else {
            throw Refusal(status: 400, reason: "a header has no name")
        }
        for place in start..<colon where !Self.isToken(bytes[place]) {
            throw Refusal(status: 400, reason: "a header's name has characters that do not belong there")
        }
        var (first, last) = (colon + 1, end)
        while first < last, bytes[first] == 0x20 || bytes[first] == 0x09 { first += 1 }
        while last > first, bytes[last - 1] == 0x20 || bytes[last - 1] == 0x09 { last -= 1 }
        guard fields.count < Limits.headerCount else {
            throw Refusal(status: 431, reason: "there are too many headers")
        }
        fields.append(
            (Range(start: Int32(start), end: Int32(colon)), Range(start: Int32(first), end: Int32(last))))
        return end + 2
    }

    // MARK: Meaning

    private mutating func interpret(bodyLimit: Int) throws(Refusal) {
        var length: Int?
        var isChunked = false
        for field in fields {
            let value = Int(field.value.start)..<Int(field.value.end)
            switch field.name.end - field.name.start {
            case 14 where Self.equals("content-length", bytes, field.name):
                guard length == nil else {
                    throw Refusal(status: 400, reason: "Content-Length is given more than once")
                }
                length = try number(value)
            case 17 where Self.equals("transfer-encoding", bytes, field.name):
                guard !isChunked else {
                    throw Refusal(status: 400, reason: "Transfer-Encoding is given more than once")
                }
                guard Self.equals("chunked", bytes, value) else {
                    throw Refusal(status: 501, reason: "the only transfer encoding is chunked")
                }
                isChunked = true
            case 10 where Self.equals("connection", bytes, field.name): readConnection(value)
            case 6 where Self.equals("expect", bytes, field.name):
                guard Self.equals("100-continue", bytes, value) else {
                    throw Refusal(status: 417, reason: "the only expectation is 100-continue")
                }
                expectsContinue = !isHTTP10
            default: break
            }
        }
        if saidClose { keepsAlive = false }
        if isChunked {
            // The two disagree about where the request ends, and a proxy in front of us may read it the other way.
            guard length == nil else {
                throw Refusal(status: 400, reason: "Content-Length and Transfer-Encoding are both given")
            }
            guard !isHTTP10 else { throw Refusal(status: 400, reason: "HTTP/1.0 knows no chunks") }
        }
        guard method != .head || !isChunked && (length ?? 0) == 0 else {
            throw Refusal(status: 400, reason: "this method takes no body")
        }
        guard (length ?? 0) <= bodyLimit else { throw Refusal(status: 413, reason: "the body is too large") }
        body = isChunked ? .chunks : .length(length ?? 0)
    }

    private func number(_ range: Swift.Range<Int>) throws(Refusal) -> Int {
        var number = 0
        guard !range.isEmpty else { throw Refusal(status: 400, reason: "Content-Length is not a number") }
        for place in range {
            guard (0x30...0x39).contains(bytes[place]) else {
                throw Refusal(status: 400, reason: "Content-Length is not a number")
            }
            guard number <= (Int.max - 9) / 10 else { throw Refusal(status: 413, reason: "the body is too large") }
            number = number * 10 + Int(bytes[place] - 0x30)
        }
        return number
    }

    /// `close` ends the connection in any version, `keep-alive` keeps one of HTTP/1.0.
    private mutating func readConnection(_ range: Swift.Range<Int>) {
        var start = range.lowerBound
        while start < range.upperBound {
            let end = find(0x2C, start..<range.upperBound) ?? range.upperBound
            var (first, last) = (start, end)
            while first < last, bytes[first] == 0x20 || bytes[first] == 0x09 { first += 1 }
            while last > first, bytes[last - 1] == 0x20 || bytes[last - 1] == 0x09 { last -= 1 }
            if Self.equals("close", bytes, first..<last) { saidClose = true }
            if Self.equals("keep-alive", bytes, first..<last) { keepsAlive = true }
            start = end + 1
        }
    }

    // MARK: Bytes

    private func find(_ byte: UInt8, _ range: Swift.Range<Int>) -> Int? {
        for place in range where bytes[place] == byte { return place }
        return nil
    }

    private static func bytes(_ text: StaticString) -> UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
    }

    /// Whether the bytes are `text`, in any case; `text` is in lower case or has no letters that could be.
    private static func equals(_ text: StaticString, _ bytes: UnsafeRawBufferPointer, _ range: Swift.Range<Int>) -> Bool
    {
        equals(
            UnsafeRawBufferPointer(Self.bytes(text)), bytes,
            Range(start: Int32(range.lowerBound), end: Int32(range.upperBound)))
    }

    private static func equals(_ text: StaticString, _ bytes: UnsafeRawBufferPointer, _ range: Range) -> Bool {
        equals(UnsafeRawBufferPointer(Self.bytes(text)), bytes, range)
    }

    private static func equals(_ text: UnsafeRawBufferPointer, _ bytes: UnsafeRawBufferPointer, _ range: Range) -> Bool
    {
        guard Int(range.end - range.start) == text.count else { return false }
        for index in 0..<text.count where lowered(bytes[Int(range.start) + index]) != lowered(text[index]) {
            return false
        }
        return true
    }

    @inline(__always) private static func lowered(_ byte: UInt8) -> UInt8 {
        (0x41...0x5A).contains(byte) ? byte | 0x20 : byte
    }

    private static func isToken(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        case 0x21, 0x23...0x27, 0x2A, 0x2B, 0x2D, 0x2E, 0x5E, 0x5F, 0x60, 0x7C, 0x7E: true
        default: false
        }
    }
}

/// The request methods that an HTTP server hands on; what is done with each is the handler's business.
package enum HTTPMethod: String, Sendable, CaseIterable {
    case get = "GET"
    case post = "POST"
    case put = "PUT"
    case delete = "DELETE"
    case head = "HEAD"
    case patch = "PATCH"
    case options = "OPTIONS"
    case trace = "TRACE"
    case query = "QUERY"

    fileprivate var name: StaticString {
        switch self {
        case .get: "GET"
        case .post: "POST"
        case .put: "PUT"
        case .delete: "DELETE"
        case .head: "HEAD"
        case .patch: "PATCH"
        case .options: "OPTIONS"
        case .trace: "TRACE"
        case .query: "QUERY"
        }
    }
}
