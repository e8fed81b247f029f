internal import Glibc

/// An incremental parser of a connection's requests, one at a time, without sockets and clocks.
package struct HTTPReader: ~Copyable {
    private enum Place {
        /// Reads a head; `searched` bytes were already searched for its end, and its last line begins at `line`.
        case head(searched: Int, line: Int)
        /// The head is complete, and the caller must decide about the body.
        case judging
        case body(missing: Int)
        case chunks
        case complete
    }

    package enum Step {
        case incomplete
        /// More bytes are needed, and the client waits for a 100 response before it sends them.
        case expectsContinue
        /// The head is complete, its body large or incomplete; the caller must call `allow(byteLimit:)` or end the connection.
        case needsPolicy
        /// The request is complete; no more bytes are consumed before `next()`.
        case complete
    }

    private let headerByteLimit: Int
    private var bodyByteLimit: Int
    private let hasBodyPolicy: Bool
    private let acceptsCodings: Bool
    private var place = Place.head(searched: 0, line: 0)
    private var head = HTTPHead()
    private var chunks = HTTPChunks()
    private var buffer: HTTPRequestBuffer
    /// The size of the head, or 0 while it is incomplete.
    private(set) var headByteCount = 0
    package private(set) var hasBegun = false

    /// Creates a parser; with `hasBodyPolicy` it returns `needsPolicy` before it stores a body that is large or incomplete.
    ///
    /// With `acceptsCodings` a body may have a content coding, which is not decoded.
    package init(
        headerByteLimit: Int, bodyByteLimit: Int, hasBodyPolicy: Bool = false, acceptsCodings: Bool = false,
        memory: HTTPRequestMemory? = nil
    ) {
        (self.headerByteLimit, self.bodyByteLimit, self.hasBodyPolicy) = (headerByteLimit, bodyByteLimit, hasBodyPolicy)
        self.acceptsCodings = acceptsCodings
        buffer = HTTPRequestBuffer(memory)
    }

    /// Consumes received bytes.
    ///
    /// - Returns: the number of consumed bytes, which never include a following request. Unconsumed bytes of an incomplete
    ///   request are part of a line and must be passed again with the bytes that follow.
    /// - Throws: the response to an invalid request. The connection ends after it.
    package mutating func take(
        _ bytes: UnsafeRawBufferPointer
    ) throws(HTTPHead.Refusal) -> (byteCount: Int, step: Step) {
        var offset = 0
        var step = Step.incomplete
        while offset < bytes.count {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
            switch place {
            case .complete: return (offset, .complete)
            case .head(let searched, let line):
                let count = try takeHead(rest, searched: searched, line: line)
                guard count > 0 else { return (offset, step) }
                offset += count
                if head.expectsContinue { step = .expectsContinue }
            case .judging:
                // A small body that is completely received needs no more memory than this read.
                guard case .length(let count) = head.body, count <= min(rest.count, Limits.freeBodyByteCount) else {
                    return (offset, .needsPolicy)
                }
                place = .body(missing: count)
            case .body(let missing):
                let count = min(missing, rest.count)
                buffer.append(UnsafeRawBufferPointer(rebasing: rest[..<count]))
                offset += count
                place = .body(missing: missing - count)
                if missing == count { complete() }
            case .chunks:
                let count = try chunks.take(rest, into: &buffer, bodyStart: headByteCount, limit: bodyByteLimit)
                offset += count
                if chunks.isDone {
                    complete()
                } else if count < rest.count {
                    return (offset, step)
                }
            }
        }
        switch place {
        case .complete: return (offset, .complete)
        case .judging: return (offset, .needsPolicy)
        case .head, .body, .chunks: return (offset, step)
        }
    }

    /// Accepts the body after `needsPolicy`, up to `byteLimit` bytes.
    package mutating func allow(byteLimit: Int) {
        guard case .judging = place else { return }
        bodyByteLimit = byteLimit
        switch head.body {
        case .length(let count):
            buffer.expect(headByteCount + count)
            place = .body(missing: count)
        case .chunks: beginChunks()
        }
    }

    package mutating func next() {
        buffer.removeAll()
        head.removeAll()
        headByteCount = 0
        hasBegun = false
        place = .head(searched: 0, line: 0)
    }

    /// Whether the parser holds no memory for request bytes, as between requests.
    package var isBare: Bool { buffer.isBare }

    // MARK: The request, good until `next()`

    package var method: HTTPMethod { head.method }
    var keepsAlive: Bool { head.keepsAlive }
    var isHTTP10: Bool { head.isHTTP10 }
    var expectsContinue: Bool { head.expectsContinue }
    /// The announced length of the body, or `nil` for chunks.
    package var announcedByteCount: Int? {
        if case .length(let count) = head.body { count } else { nil }
    }
    /// The received size of an incomplete head, or 0.
    var unfinishedHeadByteCount: Int { if case .head = place { buffer.count } else { 0 } }
    var receivedByteCount: Int { max(0, buffer.count - headByteCount) }

    /// The path and query, or `*`, without the scheme and host of an absolute URI.
    package var target: UnsafeRawBufferPointer { part(head.target) }
    package var host: UnsafeRawBufferPointer { part(head.host) }

    enum Field {
        case absent
        case one(UnsafeRawBufferPointer)
        /// The header has several lines with different values.
        case several
    }

    func field(_ name: StaticString) -> Field { field(Self.bytes(name)) }

    private func field(_ name: UnsafeRawBufferPointer) -> Field {
        switch head.field(name, in: buffer.bytes) {
        case .absent: .absent
        case .one(let range): .one(part(range))
        case .several: .several
        }
    }

    /// Returns a header's value, or `nil` without the header or if several lines differ.
    package func value(_ name: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        if case .one(let value) = field(name) { value } else { nil }
    }

    func elements(of name: StaticString) -> [UnsafeRawBufferPointer] { head.elements(of: name, buffer.bytes) }

    func lists(_ word: StaticString, in name: StaticString, inAnyCase: Bool = true) -> Bool {
        head.lists(word, in: name, buffer.bytes, inAnyCase: inAnyCase)
    }

    private static func bytes(_ text: StaticString) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
    }

    /// The body; `Limits.bodyPaddingByteCount` zeros follow it.
    package var body: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: buffer.bytes[headByteCount...]) }

    private func part(_ range: HTTPHead.Range) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: buffer.bytes[Int(range.start)..<Int(range.end)])
    }

    // MARK: Reading

    /// Consumes bytes of a head up to its end; returns their number, or 0 if more bytes are needed first.
    private mutating func takeHead(
        _ bytes: UnsafeRawBufferPointer, searched: Int, line: Int
    ) throws(HTTPHead.Refusal) -> Int {
        hasBegun = true
        var line = line
        // An empty line before a request is skipped, because old clients send one after a body.
        if searched == 0, bytes[0] == 0x0D {
            guard bytes.count > 1 else { return 0 }
            if bytes[1] == 0x0A { return 2 }
        }
        if searched == 0, let end = try endOfHead(bytes, from: 0, line: &line) {
            buffer.append(UnsafeRawBufferPointer(rebasing: bytes[..<end]))
            try readHead()
            return end
        }
        let before = buffer.count
        buffer.append(bytes)
        if searched > 0, let end = try endOfHead(buffer.bytes, from: searched, line: &line) {
            buffer.removeLast(to: end)
            try readHead()
            return end - before
        }
        place = .head(searched: buffer.count, line: line)
        return bytes.count
    }

    /// Returns the end of the head, if `bytes` contains it.
    ///
    /// The first `searched` bytes are already validated. A fault is refused as soon as its last byte arrives, however the bytes
    /// are split. A client with other line ends therefore gets a response instead of a timeout.
    private func endOfHead(
        _ bytes: UnsafeRawBufferPointer, from searched: Int, line: inout Int
    ) throws(HTTPHead.Refusal) -> Int? {
        guard let base = bytes.baseAddress else { return nil }
        let known = min(bytes.count, headerByteLimit)
        // A CR at the end of the previous bytes is checked again with the byte that follows.
        var start = max(line, searched - 1)
        while start < known {
            let end = memchr(base + start, 0x0A, known - start).map { UnsafeRawPointer($0) - base } ?? known
            let first = memchr(base + start, 0x0D, end - start).map { UnsafeRawPointer($0) - base }
            // CR and LF must occur together.
            guard first == end - 1 || end == known && first == nil else { throw firstRefusal(in: bytes, line: line) }
            if end == known { break }
            if first == line { return end + 1 }
            line = end + 1
            start = line
        }
        let requestLine = memchr(base, 0x0A, known).map { UnsafeRawPointer($0) - base + 1 }
        if let requestLine, requestLine > searched {
            try HTTPHead.check(requestLine: UnsafeRawBufferPointer(rebasing: bytes[..<requestLine]))
        }
        guard bytes.count <= headerByteLimit else {
            throw requestLine == nil
                ? HTTPHead.Refusal(status: 414, reason: "the request line is too long")
                : HTTPHead.Refusal(status: 431, reason: "the headers are too large")
        }
        return nil
    }

    /// Returns the fault of the request line, or else the refusal of a line that does not end with CRLF.
    private func firstRefusal(in bytes: UnsafeRawBufferPointer, line: Int) -> HTTPHead.Refusal {
        if line > 0, let end = bytes.firstIndex(of: 0x0A) {
            do throws(HTTPHead.Refusal) {
                try HTTPHead.check(requestLine: UnsafeRawBufferPointer(rebasing: bytes[...end]))
            } catch {
                return error
            }
        }
        return HTTPHead.Refusal(status: 400, reason: "a line does not end with CR and LF")
    }

    private mutating func readHead() throws(HTTPHead.Refusal) {
        headByteCount = buffer.count
        try head.read(
            buffer.bytes, bodyLimit: hasBodyPolicy ? .max : bodyByteLimit, acceptsCodings: acceptsCodings)
        switch head.body {
        case .length(0): complete()
        case .length where hasBodyPolicy, .chunks where hasBodyPolicy: place = .judging
        case .length(let count): place = .body(missing: count)
        case .chunks: beginChunks()
        }
    }

    private mutating func beginChunks() {
        place = .chunks
        chunks = HTTPChunks()
    }

    private mutating func complete() {
        buffer.pad()
        place = .complete
    }
}
