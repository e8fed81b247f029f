internal import Glibc

/// Cuts one connection's bytes into requests, one at a time: no socket, no clock.
package struct HTTPReader: ~Copyable {
    private enum Place {
        /// Gathers a head; `searched` of its bytes were looked through.
        case head(searched: Int)
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
        /// A head is here and not all of its body: call `allow(byteLimit:)`, or end the connection.
        case needsJudgement
        /// A whole request is here; nothing further is taken before `next()`.
        case complete
    }

    private let headerByteLimit: Int
    /// Of the request under way.
    private var bodyByteLimit: Int
    private let isJudged: Bool
    private var place = Place.head(searched: 0)
    private var head = HTTPHead()
    private var chunks = HTTPChunks()
    private var buffer: HTTPRequestBuffer
    /// Bytes of the whole head; 0 until its end has come.
    private(set) var headByteCount = 0
    /// Something of a request has come.
    package private(set) var hasBegun = false

    /// With `isJudged` a body that does not come together with its head is asked about before it is kept.
    package init(
        headerByteLimit: Int, bodyByteLimit: Int, isJudged: Bool = false, memory: HTTPRequestMemory? = nil
    ) {
        (self.headerByteLimit, self.bodyByteLimit, self.isJudged) = (headerByteLimit, bodyByteLimit, isJudged)
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
            case .head(let searched):
                let count = try takeHead(rest, searched: searched)
                guard count > 0 else { return (offset, step) }
                offset += count
                if head.expectsContinue { step = .expectsContinue }
            case .judging:
                // A body that is whole here takes no more memory than this read did.
                guard case .length(let count) = head.body, count <= rest.count else { return (offset, .needsJudgement) }
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
        case .judging: return (offset, .needsJudgement)
        case .head, .body, .chunks: return (offset, step)
        }
    }

    /// After `needsJudgement`: the body is wanted, up to `byteLimit` bytes.
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
        place = .head(searched: 0)
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

    package var target: UnsafeRawBufferPointer { part(head.target) }

    package func value(_ name: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        head.value(name, in: buffer.bytes).map { part($0) }
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
        _ bytes: UnsafeRawBufferPointer, searched: Int
    ) throws(HTTPHead.Refusal) -> Int {
        hasBegun = true
        // An empty line before a request, which old clients send behind a body, is passed over.
        if searched == 0, bytes[0] == 0x0D {
            guard bytes.count > 1 else { return 0 }
            if bytes[1] == 0x0A { return 2 }
        }
        if searched == 0, let end = Self.endOfHead(bytes, from: 0) {
            guard end <= headerByteLimit else { throw Self.tooLarge }
            buffer.append(UnsafeRawBufferPointer(rebasing: bytes[..<end]))
            try readHead()
            return end
        }
        let before = buffer.count
        buffer.append(bytes)
        if let end = Self.endOfHead(buffer.bytes, from: max(0, searched - 3)) {
            guard end <= headerByteLimit else { throw Self.tooLarge }
            buffer.removeLast(to: end)
            try readHead()
            return end - before
        }
        guard buffer.count <= headerByteLimit else { throw Self.tooLarge }
        place = .head(searched: buffer.count)
        return bytes.count
    }

    private static let tooLarge = HTTPHead.Refusal(status: 431, reason: "the headers are too large")

    private static func endOfHead(_ bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        guard let base = bytes.baseAddress else { return nil }
        var place = start
        // From line end to line end: the one that has another right before it is the empty line's.
        while place < bytes.count, let found = memchr(base + place, 0x0A, bytes.count - place) {
            let end = UnsafeRawPointer(found) - base + 1
            if end >= 4, bytes[end - 2] == 0x0D, bytes[end - 3] == 0x0A, bytes[end - 4] == 0x0D { return end }
            place = end
        }
        return nil
    }

    private mutating func readHead() throws(HTTPHead.Refusal) {
        headByteCount = buffer.count
        try head.read(buffer.bytes, bodyLimit: isJudged ? .max : bodyByteLimit)
        switch head.body {
        case .length(0): complete()
        case .length where isJudged, .chunks where isJudged: place = .judging
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
