internal import APNs
internal import EventLoops
internal import HTTP2
internal import Structures

final class AppleConnection: HTTP2Connection {
    unowned let lane: Lane
    private let loop: EventLoop
    /// Whether Apple's first SETTINGS arrived; the stream limit is unknown before that.
    private(set) var hasSettings = false
    private(set) var isLeaving = false
    /// Whether a request timed out; the connection may be half-open and gets no requests until the peer sends something.
    private(set) var isSuspect = false
    /// Whether a request was answered, so that the network path and the credential work.
    private(set) var hasAnswered = false
    /// Requests in the order of sending; some have ended.
    private var attempts = Ring<Attempt>()
    /// An upper bound of the ended requests in `attempts`.
    private var overCount = 0
    private var lastHeardAt: UInt64
    private var pingedAt: UInt64 = 0
    /// The time when the newest request's provider token was signed, in Unix seconds, or 0.
    private(set) var tokenIssuedAt: Int64 = 0
    let openedAt: UInt64

    init(_ lane: Lane, on loop: EventLoop) {
        (self.lane, self.loop) = (lane, loop)
        (lastHeardAt, openedAt) = (loop.now, loop.now)
        super.init()
    }

    /// The number of further requests that the connection accepts now.
    var room: Int {
        guard hasSettings, !isLeaving, !isSuspect, let session, session.takesRequests else { return 0 }
        return min(session.peerConcurrentStreams, lane.limits.streams) - session.streamCount
    }

    var isIdle: Bool { (session?.streamCount ?? 0) == 0 }

    /// Sends a request; returns false when the connection accepts no more.
    func send(_ headers: borrowing HTTP2Headers, _ job: AppleJob, tokenIssuedAt: Int64) -> Bool {
        let attempt = Attempt(job, on: self, sentAt: loop.now, tokenIssuedAt: tokenIssuedAt)
        guard session?.request(headers, attempt) == true else { return false }
        attempts.append(attempt)
        self.tokenIssuedAt = tokenIssuedAt
        return true
    }

    /// The send time of the oldest request in flight, in the loop's milliseconds, or `nil`.
    var oldestSentAt: UInt64? {
        while let first = attempts.first, first.isOver { _ = attempts.popFirst() }
        return attempts.first?.sentAt
    }

    /// Stops sending requests on this connection; requests in flight may finish.
    func leave() { isLeaving = true }

    // MARK: Callbacks

    override func settingsChanged() {
        lastHeardAt = loop.now
        guard !hasSettings else { return }
        hasSettings = true
        lane.opened(self)
    }

    override func pongReceived() { isHeard() }

    private func isHeard() {
        lastHeardAt = loop.now
        pingedAt = 0
        guard isSuspect else { return }
        isSuspect = false
        lane.opened(self)
    }

    override func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) {
        isLeaving = true
        lane.goneAway(self, debug: debug)
    }

    func answered(_ attempt: Attempt) {
        isHeard()
        guard !attempt.isOver else { return }
        isOver(attempt)
        hasAnswered = true
        lane.answered(attempt)
    }

    /// Ends a request without an answer; Apple may have processed it.
    func ended(_ attempt: Attempt, _ code: UInt32) {
        guard !attempt.isOver else { return }
        isOver(attempt)
        lane.lost(attempt, isUntouched: code == HTTP2Code.refusedStream)
    }

    /// Marks a request as ended, and compacts `attempts` if a slow request at the front retains too many ended ones.
    private func isOver(_ attempt: Attempt) {
        attempt.isOver = true
        overCount += 1
        guard overCount > 64, overCount > attempts.count / 2 else { return }
        for _ in 0..<attempts.count {
            if let first = attempts.popFirst(), !first.isOver { attempts.append(first) }
        }
        overCount = 0
    }

    override func ended(_ reason: String) {
        isLeaving = true
        lane.ended(self, reason)
    }

    // MARK: Time

    func tick(_ now: UInt64) {
        // The TLS handshake has its own timeout. A connection without SETTINGS is closed here.
        if !hasSettings, now >= openedAt + lane.limits.settingsMilliseconds {
            isLeaving = true
            return close()
        }
        while let first = attempts.first {
            if first.isOver {
                _ = attempts.popFirst()
                continue
            }
            guard now >= first.sentAt + lane.limits.requestMilliseconds else { break }
            _ = attempts.popFirst()
            session?.reset(first, HTTP2Code.cancel)
            isSuspect = true
            if pingedAt == 0 { ping(now) }
            ended(first, HTTP2Code.cancel)
        }
        if pingedAt > 0, now >= pingedAt + lane.limits.pongMilliseconds {
            isLeaving = true
            return close()
        }
        if hasSettings, pingedAt == 0 {
            let isQuiet = now >= lastHeardAt + lane.limits.pingMilliseconds
            let isSilent = oldestSentAt.map { now >= max($0, lastHeardAt) + lane.limits.silenceMilliseconds } ?? false
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
