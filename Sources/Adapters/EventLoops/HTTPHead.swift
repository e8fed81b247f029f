internal import Glibc

/// The validated request line and headers of a request, stored as offsets into the bytes.
///
/// The parser is strict where two parsers could disagree (RFC 9112, sections 3, 5.1, 6.3 and 11.2). Lines end with CRLF only,
/// folded lines are refused, and a header's name is directly followed by the colon. A length is given once, in digits, and not
/// together with chunks. A request names its host once.
package struct HTTPHead {
    /// The rejection of a request; the connection ends after the response.
    package struct Refusal: Error {
        package var status: Int
        package var reason: StaticString
    }

    struct Range: Equatable {
        var start: Int32
        var end: Int32
    }

    enum Body: Equatable {
        case length(Int)
        case chunks
    }

    enum Field {
        case absent
        /// The value of one line, or of several identical ones.
        case one(Range)
        case several
    }

    private(set) var method = HTTPMethod.get
    /// The path and query, or `*` for the whole server; empty for an absolute URI without a path.
    private(set) var target = Range(start: 0, end: 0)
    /// The requested host and port, from the absolute URI or the header `Host`; empty in HTTP/1.0 without either.
    private(set) var host = Range(start: 0, end: 0)
    private(set) var body = Body.length(0)
    private(set) var keepsAlive = true
    private(set) var isHTTP10 = false
    /// Whether the client waits for a 100 response before it sends the body.
    private(set) var expectsContinue = false
    private var saidClose = false
    private var isAbsolute = false
    private var fields: [(name: Range, value: Range)] = []

    mutating func removeAll() {
        fields.removeAll(keepingCapacity: true)
        (method, target, body) = (.get, Range(start: 0, end: 0), .length(0))
        (host, isAbsolute) = (Range(start: 0, end: 0), false)
        (keepsAlive, saidClose, isHTTP10, expectsContinue) = (true, false, false, false)
    }

    /// Returns a single-valued header, ignoring the name's case; `bytes` must begin with the parsed head.
    func field(_ name: UnsafeRawBufferPointer, in bytes: UnsafeRawBufferPointer) -> Field {
        var found: Range?
        for field in fields where Self.equals(name, bytes, field.name) {
            guard let first = found else {
                found = field.value
                continue
            }
            guard Self.areSame(first, field.value, bytes) else { return .several }
        }
        return found.map { .one($0) } ?? .absent
    }

    /// Returns the elements of a list header, of all its lines in order.
    func elements(of name: StaticString, _ bytes: UnsafeRawBufferPointer) -> [UnsafeRawBufferPointer] {
        var found: [UnsafeRawBufferPointer] = []
        for field in fields where Self.equals(name, bytes, field.name) {
            var elements = Elements(field.value)
            while let element = elements.next(bytes) {
                found.append(UnsafeRawBufferPointer(rebasing: bytes[Int(element.start)..<Int(element.end)]))
            }
        }
        return found
    }

    /// Returns whether a list header contains `word` in any of its lines.
    func lists(
        _ word: StaticString, in name: StaticString, _ bytes: UnsafeRawBufferPointer, inAnyCase: Bool = true
    ) -> Bool {
        for field in fields where Self.equals(name, bytes, field.name) {
            var elements = Elements(field.value)
            while let element = elements.next(bytes) {
                guard Self.equals(word, bytes, element) else { continue }
                if inAnyCase || Self.isExactly(word, bytes, element) { return true }
            }
        }
        return false
    }

    /// The elements of a list (RFC 9110, section 5.6.1) without empty ones.
    private struct Elements {
        private var place: Int32
        private let end: Int32

        init(_ value: Range) { (place, end) = (value.start, value.end) }

        mutating func next(_ bytes: UnsafeRawBufferPointer) -> Range? {
            while place < end {
                var (first, last) = (place, place)
                while last < end, bytes[Int(last)] != 0x2C { last += 1 }
                place = last + 1
                while first < last, HTTPHead.isBlank(bytes[Int(first)]) { first += 1 }
                while last > first, HTTPHead.isBlank(bytes[Int(last) - 1]) { last -= 1 }
                if first < last { return Range(start: first, end: last) }
            }
            return nil
        }
    }

    // MARK: Reading

    /// The head during parsing; its bytes may move afterwards.
    private var bytes = UnsafeRawBufferPointer(start: nil, count: 0)

    /// Parses a complete head, including its final empty line.
    mutating func read(
        _ head: UnsafeRawBufferPointer, bodyLimit: Int, acceptsCodings: Bool = false
    ) throws(Refusal) {
        removeAll()
        bytes = head
        defer { bytes = UnsafeRawBufferPointer(start: nil, count: 0) }
        guard head.count <= Int32.max else { throw Refusal(status: 431, reason: "the headers are too large") }
        var place = try readRequestLine()
        // The last two bytes are the empty line.
        while place < head.count - 2 { place = try readField(at: place) }
        try interpret(bodyLimit: bodyLimit)
        if !acceptsCodings { try checkContentCoding() }
    }

    /// Validates only a request line, including its CRLF.
    static func check(requestLine: UnsafeRawBufferPointer) throws(Refusal) {
        var head = HTTPHead()
        head.bytes = requestLine
        _ = try head.readRequestLine()
    }

    /// Refuses a body with a content coding (RFC 9110, section 15.5.16); the body's parsers would report it as bad UTF-8.
    private func checkContentCoding() throws(Refusal) {
        guard body != .length(0) else { return }
        for field in fields where Self.equals("content-encoding", bytes, field.name) {
            guard field.value.start < field.value.end, !Self.equals("identity", bytes, field.value) else { continue }
            let known = Self.contentCodings.first { Self.equals($0.name, bytes, field.value) }
            throw Refusal(
                status: 415, reason: known?.reason ?? "the body's Content-Encoding is not taken, send it without one")
        }
    }

    private static let contentCodings: [(name: StaticString, reason: StaticString)] = [
        ("gzip", "Content-Encoding gzip is not taken, send the body without one"),
        ("x-gzip", "Content-Encoding x-gzip is not taken, send the body without one"),
        ("deflate", "Content-Encoding deflate is not taken, send the body without one"),
        ("br", "Content-Encoding br is not taken, send the body without one"),
        ("zstd", "Content-Encoding zstd is not taken, send the body without one"),
    ]

    /// Returns the offset of the line's CR; control characters other than a tab are refused.
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
        throw Refusal(status: 400, reason: "a line of the head has invalid characters")
    }

    private mutating func readRequestLine() throws(Refusal) -> Int {
        let malformed = Refusal(status: 400, reason: "the request line cannot be read")
        let end = try endOfLine(from: 0)
        guard let first = find(0x20, 0..<end), first > 0, let second = find(0x20, first + 1..<end), second > first + 1
        else { throw malformed }
        let version = second + 1..<end
        // The version has eight characters: "HTTP/" in capitals, a digit, a dot, a digit.
        let name: StaticString = "HTTP/"
        guard version.count == 8, (0..<5).allSatisfy({ bytes[version.lowerBound + $0] == name.utf8Start[$0] }),
            bytes[end - 2] == 0x2E, (0x30...0x39).contains(bytes[end - 1]), (0x30...0x39).contains(bytes[end - 3])
        else { throw malformed }
        guard bytes[end - 3] == 0x31 else { throw Refusal(status: 505, reason: "the server speaks HTTP/1.1") }
        isHTTP10 = bytes[end - 1] == 0x30
        keepsAlive = !isHTTP10
        for place in first + 1..<second where bytes[place] == 0x09 || bytes[place] == 0x23 { throw malformed }
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
        try readTarget()
        return end + 2
    }

    /// Parses the target: a path, an absolute URI, or `*` for the whole server (RFC 9112, section 3.2).
    private mutating func readTarget() throws(Refusal) {
        if bytes[Int(target.start)] == 0x2F { return }
        if method == .options, Self.equals("*", bytes, target) { return }
        let schemes: [StaticString] = ["http://", "https://"]
        for scheme in schemes {
            let start = target.start + Int32(scheme.utf8CodeUnitCount)
            guard start < target.end, Self.equals(scheme, bytes, Range(start: target.start, end: start)) else {
                continue
            }
            var end = start
            while end < target.end, bytes[Int(end)] != 0x2F, bytes[Int(end)] != 0x3F { end += 1 }
            (host, isAbsolute) = (Range(start: start, end: end), true)
            guard isHost(host) else { break }
            target.start = end
            return
        }
        throw Refusal(status: 400, reason: "the target is neither a path nor an http URI")
    }

    /// Returns whether a range is a name or address with an optional port (RFC 9110, section 7.2; RFC 3986, section 3.2.2).
    private func isHost(_ range: Range) -> Bool {
        var place = Int(range.start)
        let end = Int(range.end)
        guard place < end else { return false }
        if bytes[place] == 0x5B {
            guard let close = find(0x5D, place..<end) else { return false }
            var address = [UInt8](repeating: 0, count: 16)
            let text = String(decoding: bytes[place + 1..<close], as: UTF8.self)
            guard inet_pton(AF_INET6, text, &address) == 1 else { return false }
            place = close + 1
        } else {
            while place < end, bytes[place] != 0x3A {
                if bytes[place] == 0x25 {
                    guard place + 2 < end, Self.isHexDigit(bytes[place + 1]), Self.isHexDigit(bytes[place + 2]) else {
                        return false
                    }
                    place += 3
                } else {
                    guard Self.isHostByte(bytes[place]) else { return false }
                    place += 1
                }
            }
            guard place > Int(range.start) else { return false }
        }
        guard place < end else { return true }
        guard bytes[place] == 0x3A else { return false }
        var port = 0
        for place in place + 1..<end {
            guard (0x30...0x39).contains(bytes[place]) else { return false }
            port = port * 10 + Int(bytes[place] - 0x30)
            guard port <= 65_535 else { return false }
        }
        return true
    }

    private mutating func readField(at start: Int) throws(Refusal) -> Int {
        let end = try endOfLine(from: start)
        guard let colon = find(0x3A, start..<end), colon > start else {
            throw Refusal(status: 400, reason: "a header has no name")
        }
        for place in start..<colon where !Self.isToken(bytes[place]) {
            throw Refusal(status: 400, reason: "a header's name has invalid characters")
        }
        var (first, last) = (colon + 1, end)
        while first < last, Self.isBlank(bytes[first]) { first += 1 }
        while last > first, Self.isBlank(bytes[last - 1]) { last -= 1 }
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
        var codings = Codings()
        var (named, origin, authorization): (Range?, Range?, Range?)
        for field in fields {
            let value = Int(field.value.start)..<Int(field.value.end)
            switch field.name.end - field.name.start {
            case 4 where Self.equals("host", bytes, field.name):
                guard named == nil else { throw Refusal(status: 400, reason: "Host is given more than once") }
                guard isHost(field.value) else {
                    throw Refusal(status: 400, reason: "Host is not a name or address with or without a port")
                }
                named = field.value
            case 14 where Self.equals("content-length", bytes, field.name):
                guard length == nil else {
                    throw Refusal(status: 400, reason: "Content-Length is given more than once")
                }
                length = try number(value)
            case 17 where Self.equals("transfer-encoding", bytes, field.name): read(field.value, into: &codings)
            case 10 where Self.equals("connection", bytes, field.name): readConnection(field.value)
            case 6 where Self.equals("expect", bytes, field.name): try readExpectation(field.value)
            case 6 where Self.equals("origin", bytes, field.name): try note(field.value, in: &origin)
            case 13 where Self.equals("authorization", bytes, field.name): try note(field.value, in: &authorization)
            default: break
            }
        }
        guard named != nil || isHTTP10 else { throw Refusal(status: 400, reason: "the request names no host") }
        // The host of an absolute URI takes precedence over the header `Host`.
        if !isAbsolute, let named { host = named }
        if saidClose { keepsAlive = false }
        if codings.isGiven {
            // Content-Length and Transfer-Encoding may disagree about the end of the request, and a proxy may use the other
            // header (request smuggling).
            guard length == nil else {
                throw Refusal(status: 400, reason: "Content-Length and Transfer-Encoding are both given")
            }
            guard !isHTTP10 else { throw Refusal(status: 400, reason: "HTTP/1.0 has no chunks") }
            guard codings.endsInChunks, codings.chunkedCount == 1 else {
                throw Refusal(status: 400, reason: "the last transfer encoding is chunked, which is given once")
            }
            guard !codings.hasOthers else {
                throw Refusal(status: 501, reason: "the only transfer encoding is chunked")
            }
        }
        guard method != .head || !codings.isGiven && (length ?? 0) == 0 else {
            throw Refusal(status: 400, reason: "this method takes no body")
        }
        guard (length ?? 0) <= bodyLimit else { throw Refusal(status: 413, reason: "the body is too large") }
        body = codings.isGiven ? .chunks : .length(length ?? 0)
    }

    private struct Codings {
        var isGiven = false
        var chunkedCount = 0
        var endsInChunks = false
        var hasOthers = false
    }

    private func read(_ value: Range, into codings: inout Codings) {
        codings.isGiven = true
        var elements = Elements(value)
        while let element = elements.next(bytes) {
            codings.endsInChunks = Self.equals("chunked", bytes, element)
            if codings.endsInChunks { codings.chunkedCount += 1 } else { codings.hasOthers = true }
        }
    }

    private mutating func readExpectation(_ value: Range) throws(Refusal) {
        var elements = Elements(value)
        while let element = elements.next(bytes) {
            guard Self.equals("100-continue", bytes, element) else {
                throw Refusal(status: 417, reason: "the only expectation is 100-continue")
            }
            expectsContinue = !isHTTP10
        }
    }

    /// Stores a credential or an origin; several different values are refused as ambiguous.
    private func note(_ value: Range, in first: inout Range?) throws(Refusal) {
        guard let known = first else {
            first = value
            return
        }
        guard Self.areSame(known, value, bytes) else {
            throw Refusal(status: 400, reason: "Authorization or Origin is given with several values")
        }
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

    /// Parses Connection: `close` ends the connection in any version, `keep-alive` keeps it open in HTTP/1.0.
    private mutating func readConnection(_ value: Range) {
        var elements = Elements(value)
        while let element = elements.next(bytes) {
            if Self.equals("close", bytes, element) { saidClose = true }
            if Self.equals("keep-alive", bytes, element) { keepsAlive = true }
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

    /// Returns whether the bytes equal `text`, ignoring case.
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

    private static func isExactly(_ text: StaticString, _ bytes: UnsafeRawBufferPointer, _ range: Range) -> Bool {
        UnsafeRawBufferPointer(rebasing: bytes[Int(range.start)..<Int(range.end)]).elementsEqual(Self.bytes(text))
    }

    private static func areSame(_ one: Range, _ other: Range, _ bytes: UnsafeRawBufferPointer) -> Bool {
        bytes[Int(one.start)..<Int(one.end)].elementsEqual(bytes[Int(other.start)..<Int(other.end)])
    }

    @inline(__always) private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

    private static func isHexDigit(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x46).contains(byte & 0xDF)
    }

    /// Returns whether a byte may occur in a host: unreserved characters and sub-delimiters of URIs.
    private static func isHostByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: true
        case 0x21, 0x24, 0x26...0x2C, 0x3B, 0x3D: true
        default: false
        }
    }

    @inline(__always) private static func lowered(_ byte: UInt8) -> UInt8 {
        (0x41...0x5A).contains(byte) ? byte | 0x20 : byte
    }

    static func isToken(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        case 0x21, 0x23...0x27, 0x2A, 0x2B, 0x2D, 0x2E, 0x5E, 0x5F, 0x60, 0x7C, 0x7E: true
        default: false
        }
    }
}

/// The supported request methods; the handler decides about each.
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
