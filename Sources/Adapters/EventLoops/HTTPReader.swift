internal import Glibc

/// Cuts one connection's bytes into requests, one at a time: no socket, no clock.
package struct HTTPReader: ~Copyable {
    private enum Place {
        /// Gathers a head; `searched` of its bytes were looked through, and its last line begins at `line`.
        case head(searched: Int, line: Int)
        /// The head is here, and the caller must say whether its body is wanted.
        case judging
        case body(missing: Int)
        case chunks
        case complete
    }

    package enum Step {
        /// More bytes are needed.
        case incomplete
        /// More bytes are needed, and the client waits to be told to send them.
        case expectsContinue
        /// A head is here, and not all of its body or a large one: call `allow(byteLimit:)`, or end the connection.
        case needsPolicy
        /// A whole request is here; nothing further is taken before `next()`.
        case complete
    }

    private let headerByteLimit: Int
    /// Of the request under way.
    private var bodyByteLimit: Int
    private let hasBodyPolicy: Bool
    private var place = Place.head(searched: 0, line: 0)
    private var head = HTTPHead()
    private var chunks = HTTPChunks()
    private var buffer: HTTPRequestBuffer
    /// Bytes of the whole head; 0 until its end has come.
    private(set) var headByteCount = 0
    /// Something of a request has come.
    package private(set) var hasBegun = false

    /// With `hasBodyPolicy` the reader asks the server before it keeps a body that is large or arrives after its head.
    package init(
        headerByteLimit: Int, bodyByteLimit: Int, hasBodyPolicy: Bool = false, memory: HTTPRequestMemory? = nil
    ) {
        (self.headerByteLimit, self.bodyByteLimit, self.hasBodyPolicy) = (headerByteLimit, bodyByteLimit, hasBodyPolicy)
        buffer = HTTPRequestBuffer(memory)
    }

    /// Takes received bytes.
    ///
    /// - Returns: how many from the front are done with, never all of a next request's. What is left without a complete
    ///   request is part of a line and must come again with what follows it.
    /// - Throws: the answer to a request that cannot be taken; the connection ends with it.
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
                // A small body that is whole here takes no more memory than this read did.
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

    /// After `needsPolicy`: the body is wanted, up to `byteLimit` bytes.
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

    /// Forgets the request, to begin the next.
    package mutating func next() {
        buffer.removeAll()
        head.removeAll()
        headByteCount = 0
        hasBegun = false
        place = .head(searched: 0, line: 0)
    }

    /// Between requests it holds no memory for their bytes.
    package var isBare: Bool { buffer.isBare }

    // MARK: The request, good until `next()`

    package var method: HTTPMethod { head.method }
    var keepsAlive: Bool { head.keepsAlive }
    var isHTTP10: Bool { head.isHTTP10 }
    var expectsContinue: Bool { head.expectsContinue }
    /// What the head announces; `nil` for chunks.
    package var announcedByteCount: Int? {
        if case .length(let count) = head.body { count } else { nil }
    }
    /// What has come of a head whose end has not; 0 behind it.
    var unfinishedHeadByteCount: Int { if case .head = place { buffer.count } else { 0 } }
    /// What has come of the body.
    var receivedByteCount: Int { max(0, buffer.count - headByteCount) }

    /// Path and query, or `*`; without the scheme and the host of an absolute URI.
    package var target: UnsafeRawBufferPointer { part(head.target) }
    /// The host and port that the request is for.
    package var host: UnsafeRawBufferPointer { part(head.host) }

    /// The value of a header that has one.
    enum Field {
        case absent
        case one(UnsafeRawBufferPointer)
        /// Several lines that differ.
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

    /// The one value of a header; `nil` if there is none, or several that differ.
    package func value(_ name: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        if case .one(let value) = field(name) { value } else { nil }
    }

    /// Whether a header that is a list names `word`, in any of its lines.
    func lists(_ word: StaticString, in name: StaticString, inAnyCase: Bool = true) -> Bool {
        head.lists(word, in: name, buffer.bytes, inAnyCase: inAnyCase)
    }

    private static func bytes(_ text: StaticString) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
    }

    /// `Limits.bodyPaddingByteCount` zeros stand behind it.
    package var body: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: buffer.bytes[headByteCount...]) }

    private func part(_ range: HTTPHead.Range) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: buffer.bytes[Int(range.start)..<Int(range.end)])
    }

    // MARK: Reading

    /// Takes bytes of a head, and all that belongs to it if its end is among them; says how many those were, 0 when it
    /// takes more to know.
    private mutating func takeHead(
        _ bytes: UnsafeRawBufferPointer, searched: Int, line: Int
    ) throws(HTTPHead.Refusal) -> Int {
        hasBegun = true
        var line = line
        // An empty line before a request, which old clients send behind a body, is passed over.
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

    /// The end of the head that `bytes` begin with, if it is there; up to `searched` all is in order.
    ///
    /// The first thing that is wrong is refused as soon as its last byte is here, however the bytes were cut. So a client that
    /// ends its lines otherwise is answered at once, and does not wait for a timeout.
    private func endOfHead(
        _ bytes: UnsafeRawBufferPointer, from searched: Int, line: inout Int
    ) throws(HTTPHead.Refusal) -> Int? {
        guard let base = bytes.baseAddress else { return nil }
        let known = min(bytes.count, headerByteLimit)
        // A CR that was the last byte is looked at again, with what follows it.
        var start = max(line, searched - 1)
        while start < known {
            let end = memchr(base + start, 0x0A, known - start).map { UnsafeRawPointer($0) - base } ?? known
            let first = memchr(base + start, 0x0D, end - start).map { UnsafeRawPointer($0) - base }
            // CR and LF come together: neither stands alone.
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

    /// A line that does not end with CRLF is refused, unless the request line before it is wrong already.
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
        try head.read(buffer.bytes, bodyLimit: hasBodyPolicy ? .max : bodyByteLimit)
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
