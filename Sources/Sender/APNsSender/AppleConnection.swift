internal import APNs
internal import EventLoops
internal import HTTP2
internal import Structures

/// One connection to Apple, of one lane.
final class AppleConnection: HTTP2Connection {
    unowned let lane: Lane
    private let loop: EventLoop
    /// The server's first settings came; before them nobody knows how many streams it takes.
    private(set) var hasSettings = false
    /// Apple takes no more on this connection.
    private(set) var isLeaving = false
    /// A request had no answer in time: the connection may be half-open, and gets no more until the peer is heard.
    private(set) var isSuspect = false
    /// Some request on it was answered: the way and the credential work.
    private(set) var hasAnswered = false
    /// Requests in the order in which they were sent; some are over.
    private var attempts = Ring<Attempt>()
    /// Those among them that are over, or more.
    private var overCount = 0
    private var lastHeardAt: UInt64
    private var pingedAt: UInt64 = 0
    /// When the provider token of the newest request was signed, in Unix seconds; 0: none.
    private(set) var tokenIssuedAt: Int64 = 0
    let openedAt: UInt64

    init(_ lane: Lane, on loop: EventLoop) {
        (self.lane, self.loop) = (lane, loop)
        (lastHeardAt, openedAt) = (loop.now, loop.now)
        super.init()
    }

    /// How many more requests it takes now.
    var room: Int {
        guard hasSettings, !isLeaving, !isSuspect, let session, session.takesRequests else { return 0 }
        return min(session.peerConcurrentStreams, lane.limits.streams) - session.streamCount
    }

    var isIdle: Bool { (session?.streamCount ?? 0) == 0 }

    /// Sends a request; false when the connection takes none any more.
    func send(_ headers: borrowing HTTP2Headers, _ job: HandoffJob, tokenIssuedAt: Int64) -> Bool {
        let attempt = Attempt(job, on: self, sentAt: loop.now, tokenIssuedAt: tokenIssuedAt)
        guard session?.request(headers, attempt) == true else { return false }
        attempts.append(attempt)
        self.tokenIssuedAt = tokenIssuedAt
        return true
    }

    /// When the oldest request under way was sent; `nil`: there is none.
    var oldestSentAt: UInt64? {
        while let first = attempts.first, first.isOver { _ = attempts.popFirst() }
        return attempts.first?.sentAt
    }

    /// Sends no more requests on it; those under way may end.
    func leave() { isLeaving = true }

    // MARK: What Apple says

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

    /// An answer is complete.
    func answered(_ attempt: Attempt) {
        isHeard()
        guard !attempt.isOver else { return }
        isOver(attempt)
        hasAnswered = true
        lane.answered(attempt)
    }

    /// A request is over; without its answer, Apple may have it or not.
    func ended(_ attempt: Attempt, _ code: UInt32) {
        guard !attempt.isOver else { return }
        isOver(attempt)
        lane.lost(attempt, isUntouched: code == HTTP2Code.refusedStream)
    }

    /// Notes the end of a request; one that waits for long must not keep those behind it.
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

    /// Gives up requests that wait too long, and a peer that answers no ping.
    func tick(_ now: UInt64) {
        // TLS is there, or its own timeout tells; a server without settings takes nothing.
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
            // The connection may be half-open: a ping tells.
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
