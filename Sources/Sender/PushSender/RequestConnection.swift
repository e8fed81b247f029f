internal import EventLoops
internal import HTTP2
internal import Structures

/// A request on a `RequestConnection`.
class SentRequest: HTTP2Stream {
    private(set) unowned var connection: RequestConnection
    /// The send time, in the loop's milliseconds.
    let sentAt: UInt64
    /// The time at which the request ends without an answer, in the loop's milliseconds.
    let deadline: UInt64
    /// Whether nothing waits for this request any more.
    fileprivate(set) var isOver = false

    init(on connection: RequestConnection, sentAt: UInt64, deadline: UInt64) {
        (self.connection, self.sentAt, self.deadline) = (connection, sentAt, deadline)
        super.init()
    }

    final override func receivedEnd() { connection.finished(self) }
    final override func closed(_ code: UInt32) { connection.ended(self, code) }
}

/// An HTTP/2 connection of the sender to a push service.
///
/// It checks with PING whether a silent server is still there. Subclasses override the functions of the section "Reports".
class RequestConnection: HTTP2Connection {
    /// The limits of a connection; times are in milliseconds.
    struct Limits: Sendable, Equatable {
        /// The maximum of concurrent requests; the server's SETTINGS may allow fewer.
        var streams: Int
        /// The timeout from the start of a connection to the server's SETTINGS.
        var settingsMilliseconds: UInt64 = 15_000
        /// The time without received data after which a connection is pinged.
        var pingMilliseconds: UInt64 = 60_000
        var pongMilliseconds: UInt64 = 5_000
        /// The time without received data after which a connection with requests is pinged.
        var silenceMilliseconds: UInt64 = 5_000
    }

    let loop: EventLoop
    private let limits: Limits
    /// Whether the server's first SETTINGS arrived; the stream limit is unknown before that.
    private(set) var hasSettings = false
    private(set) var isLeaving = false
    /// Whether a request timed out; the connection may be half-open and gets no requests until the server sends something.
    private(set) var isSuspect = false
    /// Whether a request was answered, so that the network path and the credential work.
    private(set) var hasAnswered = false
    /// Requests in the order of sending; some have ended.
    private var requests = Ring<SentRequest>()
    /// An upper bound of the ended requests in `requests`.
    private var overCount = 0
    private(set) var lastHeardAt: UInt64
    private var pingedAt: UInt64 = 0
    let openedAt: UInt64

    init(on loop: EventLoop, limits: Limits) {
        (self.loop, self.limits) = (loop, limits)
        (lastHeardAt, openedAt) = (loop.now, loop.now)
        super.init()
    }

    // MARK: Reports

    /// Reports that the connection accepts requests: after its start, and after it was suspect.
    func becameReady() {}
    /// Reports a complete answer.
    func answered(_ request: SentRequest) {}
    /// Reports that a request ended without a complete answer; if `isUntouched` is true, the server has not processed it.
    func lost(_ request: SentRequest, isUntouched: Bool) {}

    // MARK: Requests

    /// The number of further requests that the connection accepts now.
    var room: Int {
        guard hasSettings, !isLeaving, !isSuspect, let session, session.takesRequests else { return 0 }
        return min(session.peerConcurrentStreams, limits.streams) - session.streamCount
    }

    var isIdle: Bool { (session?.streamCount ?? 0) == 0 }

    /// Sends a request; returns false when the connection accepts no more.
    func send(_ headers: borrowing HTTP2Headers, _ request: SentRequest) -> Bool {
        guard session?.request(headers, request) == true else { return false }
        requests.append(request)
        return true
    }

    /// The send time of the oldest request in flight, in the loop's milliseconds, or `nil`.
    var oldestSentAt: UInt64? {
        while let first = requests.first, first.isOver { _ = requests.popFirst() }
        return requests.first?.sentAt
    }

    /// Stops sending requests on this connection; requests in flight may finish.
    func leave() { isLeaving = true }

    /// Ends a request whose answer is not wanted; it is reported as lost.
    func cancel(_ request: SentRequest) {
        session?.reset(request, HTTP2Code.cancel)
        ended(request, HTTP2Code.cancel)
    }

    // MARK: Callbacks

    override func settingsChanged() {
        lastHeardAt = loop.now
        guard !hasSettings else { return }
        hasSettings = true
        becameReady()
    }

    override func pongReceived() { isHeard() }

    private func isHeard() {
        lastHeardAt = loop.now
        pingedAt = 0
        guard isSuspect else { return }
        isSuspect = false
        becameReady()
    }

    override func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) { isLeaving = true }

    fileprivate func finished(_ request: SentRequest) {
        isHeard()
        // Without the reset, the stream would occupy its place until the server has received the whole body.
        if request.hasUnsentBody { session?.reset(request, HTTP2Code.cancel) }
        guard !request.isOver else { return }
        isOver(request)
        hasAnswered = true
        answered(request)
    }

    /// Ends a request without an answer; the server may have processed it.
    fileprivate func ended(_ request: SentRequest, _ code: UInt32) {
        guard !request.isOver else { return }
        isOver(request)
        lost(request, isUntouched: code == HTTP2Code.refusedStream)
    }

    /// Marks a request as ended, and compacts `requests` if a slow request at the front retains too many ended ones.
    private func isOver(_ request: SentRequest) {
        request.isOver = true
        overCount += 1
        guard overCount > 64, overCount > requests.count / 2 else { return }
        for _ in 0..<requests.count {
            if let first = requests.popFirst(), !first.isOver { requests.append(first) }
        }
        overCount = 0
    }

    override func ended(_ reason: String) { isLeaving = true }

    // MARK: Time

    /// Ends requests without an answer, and checks a silent connection; called at each tick of the loop.
    func tick(_ now: UInt64) {
        // The TLS handshake has its own timeout. A connection without SETTINGS is closed here.
        if !hasSettings, now >= openedAt + limits.settingsMilliseconds {
            isLeaving = true
            return close()
        }
        while let first = requests.first {
            if first.isOver {
                _ = requests.popFirst()
                continue
            }
            guard now >= first.deadline else { break }
            _ = requests.popFirst()
            isSuspect = true
            if pingedAt == 0 { ping(now) }
            cancel(first)
        }
        if pingedAt > 0, now >= pingedAt + limits.pongMilliseconds {
            isLeaving = true
            return close()
        }
        if hasSettings, pingedAt == 0 {
            let isQuiet = now >= lastHeardAt + limits.pingMilliseconds
            let isSilent = oldestSentAt.map { now >= max($0, lastHeardAt) + limits.silenceMilliseconds } ?? false
            if isQuiet || isSilent { ping(now) }
        }
        if isLeaving, isIdle { closeAfterFlush() }
        flush()
    }

    private func ping(_ now: UInt64) {
        pingedAt = now
        session?.ping()
    }
}
