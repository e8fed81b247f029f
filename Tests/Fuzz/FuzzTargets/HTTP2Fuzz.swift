internal import EventLoops
internal import Glibc
internal import HTTP2

/// An HTTP/2 connection with a hostile peer, as client and as server, with requests in flight.
///
/// Input: the side, the mode, then a script of bytes, frames, calls and cuts, or a byte stream and its division. Invariants: each
/// request ends exactly once and receives no event after that. Every limit holds. The result does not depend on the division into
/// pieces.
enum HTTP2Fuzz {
    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        let choices = script.byte()
        let side: HTTP2Session.Side = choices & 1 == 0 ? .client : .server
        if choices & 2 == 0 {
            var world = try HTTP2World(side)
            try world.play(&script)
        } else {
            try comparePieces(side, isBegun: choices & 4 == 0, &script)
        }
    }

    static var settings: HTTP2Session.Settings {
        var settings = HTTP2Session.Settings()
        // Small enough for short inputs to reach the limits.
        (settings.concurrentStreams, settings.headerByteLimit) = (4, 256)
        return settings
    }

    // MARK: Pieces

    private static func comparePieces(
        _ side: HTTP2Session.Side, isBegun: Bool, _ script: inout Script
    ) throws {
        let pieces = (0..<script.choice(16)).map { _ in Int(script.byte()) }
        let stream = script.rest()
        let whole = try transcript(side, isBegun, stream, pieces: [])
        let split = try transcript(side, isBegun, stream, pieces: pieces)
        try require(whole == split, "pieces change what is read: \(whole) and \(split)")
    }

    private static func transcript(
        _ side: HTTP2Session.Side, _ isBegun: Bool, _ stream: [UInt8], pieces: [Int]
    ) throws -> [String] {
        let hand = HTTP2Hand()
        let session = try HTTP2Session(side, settings: settings, observer: hand)
        if side == .client {
            for count in [0, 10] { hand.ask(session, bodyByteCount: count) }
        }
        if isBegun {
            // The preface of a correct peer, so that the following bytes are processed.
            let other = HTTP2Hand()
            let peer = try HTTP2Session(side == .client ? .server : .client, observer: other)
            while let bytes = session.nextOutput() { try peer.receive(bytes) }
            while let bytes = peer.nextOutput() { try session.receive(bytes) }
        }
        var failure = "none"
        var offset = 0
        for piece in pieces + [stream.count] where failure == "none" {
            let end = min(stream.count, offset + piece)
            guard end > offset else { continue }
            // A separate allocation lets AddressSanitizer detect a read past the received bytes.
            let arrived = Array(stream[offset..<end])
            offset = end
            do throws(HTTP2Failure) { try receive(arrived, session) } catch { failure = error.description }
        }
        var count = 0
        while let bytes = session.nextOutput() { count += bytes.count }
        session.endStreams(HTTP2Code.internalError)
        try hand.checkEnd()
        return hand.requests.map(\.text) + ["\(hand.goodbyes) \(hand.pongs) \(hand.settings) \(failure)"]
    }

    private static func receive(_ bytes: [UInt8], _ session: HTTP2Session) throws(HTTP2Failure) {
        let result = bytes.withUnsafeBytes { bytes in
            Result { () throws(HTTP2Failure) in try session.receive(bytes) }
        }
        try result.get()
    }
}

/// The observed events of one request.
private final class HTTP2Facts {
    /// Weak: only the session retains the request, so AddressSanitizer detects a use after its end.
    weak var exchange: HTTP2Exchange?
    var id: Int32 = 0
    var endCount = 0
    var code: UInt32?
    var closedCount = 0
    var toldTooLate = false
    var headerByteCount = 0
    var bodyByteCount = 0
    var bodySum: UInt64 = 0
    var fields: [String] = []

    /// The request while it is in flight.
    var pending: HTTP2Exchange? { closedCount == 0 ? exchange.flatMap { $0.id > 0 ? $0 : nil } : nil }

    var text: String { "\(id) \(fields) \(bodyByteCount) \(bodySum) \(endCount) \(code.map { "\($0)" } ?? "open")" }
}

private final class HTTP2Exchange: HTTP2Stream {
    private unowned let hand: HTTP2Hand
    let facts: HTTP2Facts

    init(_ hand: HTTP2Hand, _ facts: HTTP2Facts) {
        (self.hand, self.facts) = (hand, facts)
        super.init()
        facts.exchange = self
    }

    override func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        isTold()
        facts.headerByteCount += name.count + value.count + 32
        facts.fields.append(String(decoding: name, as: UTF8.self) + ": " + String(decoding: value, as: UTF8.self))
    }

    override func received(body bytes: UnsafeBufferPointer<UInt8>) {
        isTold()
        facts.bodyByteCount += bytes.count
        for byte in bytes { facts.bodySum = facts.bodySum &* 31 &+ UInt64(byte) }
    }

    override func receivedEnd() {
        isTold()
        facts.endCount += 1
        hand.ended?(self)
    }

    override func closed(_ code: UInt32) {
        facts.id = id
        facts.closedCount += 1
        facts.code = code
        hand.closed?(self)
    }

    private func isTold() {
        facts.id = id
        if facts.closedCount > 0 { facts.toldTooLate = true }
    }
}

/// An observer of a session that keeps its requests.
private class HTTP2Hand: HTTP2Connection {
    private(set) var requests: [HTTP2Facts] = []
    private(set) var goodbyes = 0
    private(set) var pongs = 0
    private(set) var settings = 0
    private(set) var endings = 0
    var refuses = false
    /// The owner's reactions when an answer is complete and when the request has ended.
    var ended: ((HTTP2Exchange) -> Void)?
    var closed: ((HTTP2Exchange) -> Void)?

    func exchange(bodyByteCount: Int) -> HTTP2Exchange {
        let facts = HTTP2Facts()
        let exchange = HTTP2Exchange(self, facts)
        exchange.body = [UInt8](repeating: 7, count: bodyByteCount)
        requests.append(facts)
        return exchange
    }

    /// Starts a request as a client; a refused request leaves no trace.
    func ask(_ session: HTTP2Session, bodyByteCount: Int, more: [UInt8]? = nil) {
        var headers = request()
        if let more { headers.add("x-long", more) }
        if !session.request(headers, exchange(bodyByteCount: bodyByteCount)) { requests.removeLast() }
    }

    var pending: [HTTP2Exchange] { requests.compactMap(\.pending) }
    func request() -> HTTP2Headers {
        var headers = HTTP2Headers()
        headers.add(":method", "POST")
        headers.add(":scheme", "https")
        headers.add(":path", "/3/device/00")
        headers.add(":authority", "a")
        return headers
    }

    override func settingsChanged() { settings += 1 }
    override func pongReceived() { pongs += 1 }
    override func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) { goodbyes += 1 }
    override func opened() -> HTTP2Stream? { refuses ? nil : exchange(bodyByteCount: 0) }
    override func ended(_ reason: String) { endings += 1 }

    /// Checks after the session that each request ended once and kept its limits.
    func checkEnd() throws(FuzzFailure) {
        for request in requests {
            try require(
                request.closedCount == 1, "stream \(request.id) was closed \(request.closedCount) times")
            try require(request.endCount <= 1, "stream \(request.id) had \(request.endCount) ends")
            try require(!request.toldTooLate, "stream \(request.id) was told something after its end")
            try require(
                request.headerByteCount <= HTTP2Fuzz.settings.headerByteLimit,
                "stream \(request.id) got \(request.headerByteCount) bytes of fields")
        }
    }
}

/// A connection on a loop, the other end of its socket, and a correct peer whose bytes may be altered in transit.
private struct HTTP2World {
    private static let requestLimit = 64
    private static let bodyByteCounts = [0, 1, 100, 70_000]

    private let side: HTTP2Session.Side
    private let loop: EventLoop
    private let subject = HTTP2Hand()
    private let otherHand = HTTP2Hand()
    /// The correct peer; `nil` once it fails to parse the subject's bytes.
    private var other: HTTP2Session?
    private var end: StreamEnd
    private var now: UInt64 = 1_000
    private var deliveredByteCount = 0
    private var askedByteCount = 0
    private var receivedByteCount = 0

    init(_ side: HTTP2Session.Side) throws {
        self.side = side
        loop = try EventLoop(index: 0)
        other = try HTTP2Session(side == .client ? .server : .client, observer: otherHand)
        var ends: (CInt, CInt) = (-1, -1)
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let result = withUnsafeMutableBytes(of: &ends) { bytes in
            bytes.withMemoryRebound(to: CInt.self) { socketpair(AF_UNIX, kind, 0, $0.baseAddress) }
        }
        guard result == 0 else { throw FuzzFailure(description: "no pair of sockets") }
        end = StreamEnd(ends.1)
        let connection = DetachedConnection(adopting: ends.0)
        switch side {
        case .client:
            try subject.connect(connection, on: loop, tls: nil, serverName: "a", settings: HTTP2Fuzz.settings)
        case .server: try subject.accept(connection, on: loop, tls: nil, settings: HTTP2Fuzz.settings)
        }
    }

    mutating func play(_ script: inout Script) throws {
        // The owner of a request may call the session within a callback.
        let deeds = script.byte()
        let subject = subject
        if deeds & 1 != 0 { subject.ended = { subject.session?.reset($0, HTTP2Code.cancel) } }
        if deeds & 2 != 0, side == .client {
            subject.closed = { _ in
                guard subject.requests.count < Self.requestLimit, let session = subject.session else { return }
                subject.ask(session, bodyByteCount: 1)
            }
        }
        if deeds & 4 != 0 { subject.refuses = true }
        if side == .server, deeds & 1 == 0 {
            subject.ended = { exchange in
                exchange.body = [UInt8](repeating: 9, count: 10)
                subject.session?.respond(Self.answer(), exchange)
            }
        }
        while !script.isAtEnd {
            try act(&script)
            try check()
        }
        subject.close()
        for _ in 0..<3 { step() }
        subject.ended = nil
        subject.closed = nil
        try require(subject.endings == 1, "the connection ended \(subject.endings) times")
        try subject.checkEnd()
        end.close()
        loop.stop()
    }

    private static func answer() -> HTTP2Headers {
        var headers = HTTP2Headers()
        headers.add(":status", "200")
        return headers
    }

    private mutating func act(_ script: inout Script) throws {
        switch script.choice(10) {
        case 0: deliver(script.bytes(upTo: 255), &script)
        case 1: deliver(frame(&script), &script)
        case 2: deliver(words(), &script)
        case 3:
            var bent = words()
            if !bent.isEmpty {
                bent[(script.choice(256) << 8 | script.choice(256)) % bent.count] ^= 1 << script.choice(8)
            }
            deliver(bent, &script)
        case 4: peerActs(&script)
        case 5, 6: subjectActs(&script)
        case 7:
            now += UInt64(script.byte())
            step()
        case 8: deliver(Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8), &script)
        default: if script.byte() == 0 { end.close() }
        }
    }

    /// Returns a frame of any type and stream with the correct length.
    private func frame(_ script: inout Script) -> [UInt8] {
        let type = script.choice(12)
        let flags = script.byte()
        let stream = script.pick([0, 1, 3, 5, 2, 101] as [UInt8])
        let body = script.bytes(upTo: 255)
        return [0, 0, UInt8(body.count), UInt8(type), flags, 0, 0, 0, stream] + body
    }

    /// Returns the bytes that the correct peer has to send.
    private func words() -> [UInt8] {
        var words: [UInt8] = []
        while let bytes = other?.nextOutput() { words += bytes }
        return words
    }

    private mutating func deliver(_ bytes: [UInt8], _ script: inout Script) {
        let piece = script.pick([0, 1, 7, 9, 64])
        var rest = bytes[...]
        deliveredByteCount += bytes.count
        while !rest.isEmpty {
            end.write(rest.prefix(piece == 0 ? rest.count : piece))
            rest = rest.dropFirst(piece == 0 ? rest.count : piece)
            step()
        }
    }

    /// Runs the connection, then lets the peer read its bytes.
    private mutating func step() {
        _ = end.exchange(reads: false)
        loop.step(at: now, isTick: true)
        _ = end.exchange()
        let bytes = Array(end.waiting)
        end.take(bytes.count)
        receivedByteCount += bytes.count
        guard let other, !bytes.isEmpty else { return }
        let isLost = bytes.withUnsafeBytes { bytes in
            do throws(HTTP2Failure) { try other.receive(bytes) } catch { return true }
            return false
        }
        if isLost { forget() }
    }

    private mutating func forget() {
        other?.endStreams(HTTP2Code.internalError)
        other = nil
    }

    private func peerActs(_ script: inout Script) {
        guard let other else { return }
        let exchanges = otherHand.pending
        let choice = script.choice(6)
        let target = exchanges.isEmpty ? nil : exchanges[script.choice(256) % exchanges.count]
        switch (choice, target) {
        case (0, let target?): other.reset(target, UInt32(script.choice(14)))
        case (1, _): other.goAway(lastStream: script.pick([0, 1, 3, 101]), debug: script.bytes(upTo: 40))
        case (2, _): other.ping()
        case (_, let target?) where side == .client:
            target.body = [UInt8](repeating: 9, count: script.pick(Self.bodyByteCounts))
            other.respond(Self.answer(), target)
        case (_, _) where side == .server && otherHand.requests.count < Self.requestLimit:
            let more = script.flag() ? [UInt8](repeating: 65, count: script.choice(256)) : nil
            otherHand.ask(other, bodyByteCount: script.pick(Self.bodyByteCounts), more: more)
        default: break
        }
    }

    private mutating func subjectActs(_ script: inout Script) {
        guard let session = subject.session else { return }
        let exchanges = subject.pending
        let choice = script.choice(6)
        let target = exchanges.isEmpty ? nil : exchanges[script.choice(256) % exchanges.count]
        switch (choice, target) {
        case (0, let target?): session.reset(target, UInt32(script.choice(14)))
        case (1, _): session.ping()
        case (2, _) where side == .server: session.goAway(lastStream: script.flag() ? nil : 1, debug: [1, 2, 3])
        case (_, _) where side == .client && subject.requests.count < Self.requestLimit:
            let count = script.pick(Self.bodyByteCounts)
            askedByteCount += count
            subject.ask(session, bodyByteCount: count)
        case (_, let target?) where side == .server:
            target.body = [UInt8](repeating: 9, count: script.pick(Self.bodyByteCounts))
            askedByteCount += target.body.count
            session.respond(Self.answer(), target)
        default: break
        }
        subject.flush()
    }

    /// Checks the invariants that hold at any time.
    private func check() throws(FuzzFailure) {
        let streams = subject.session?.streamCount ?? 0
        let limit = side == .client ? Self.requestLimit : Int(HTTP2Fuzz.settings.concurrentStreams)
        try require(streams <= limit, "\(streams) streams are open")
        let bodies = subject.requests.reduce(0) { $0 + $1.bodyByteCount }
        try require(bodies <= deliveredByteCount, "bodies have more bytes than came")
        // The limit: a few bytes per received frame and per request, and the requested bytes.
        try require(
            receivedByteCount <= 4_096 + askedByteCount * 2 + deliveredByteCount * 8 + subject.requests.count * 256,
            "\(receivedByteCount) bytes came back for \(deliveredByteCount)")
    }
}
