internal import APNs
internal import EventLoops
internal import HTTP2

/// A connection of a lane to Apple.
final class AppleConnection: RequestConnection {
    unowned let lane: Lane
    /// The time when the newest request's provider token was signed, in Unix seconds, or 0.
    private(set) var tokenIssuedAt: Int64 = 0

    init(_ lane: Lane) {
        self.lane = lane
        super.init(on: lane.loop, limits: lane.limits.connection)
    }

    /// Sends a request; returns false when the connection accepts no more.
    func send(_ headers: borrowing HTTP2Headers, _ job: AppleJob, tokenIssuedAt: Int64) -> Bool {
        let attempt = Attempt(job, on: self, tokenIssuedAt: tokenIssuedAt)
        guard send(headers, attempt) else { return false }
        self.tokenIssuedAt = tokenIssuedAt
        return true
    }

    override func becameReady() { lane.opened(self) }
    override func answered(_ request: SentRequest) { lane.answered(attempt(request)) }
    override func lost(_ request: SentRequest, isUntouched: Bool) {
        lane.lost(attempt(request), isUntouched: isUntouched)
    }

    private func attempt(_ request: SentRequest) -> Attempt {
        guard let attempt = request as? Attempt else { preconditionFailure("a request of another kind") }
        return attempt
    }

    override func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) {
        super.goneAway(lastStream: lastStream, code: code, debug: debug)
        lane.goneAway(self, debug: debug)
    }

    override func ended(_ reason: String) {
        super.ended(reason)
        lane.ended(self, reason)
    }
}
