/// The longest silence that one network tolerates, as learnt from its connections.
///
/// A router drops the state of a silent connection without a notice to either side. If a Ping after a silence gets no answer, the
/// heartbeat is halved, down to 30 s. Answered Pings raise it by half, in steps, up to the app's or the gateway's heartbeat. A
/// length that failed is tried again only after 32 answers.
struct HeartbeatPlan: Equatable, Sendable {
    /// The learnt heartbeat in seconds, or `nil` if the usual one works.
    private(set) var learnt: UInt32?
    /// The usual heartbeat in seconds, which is the maximum.
    private(set) var ceiling: UInt32 = 0
    /// The shortest heartbeat that failed, in seconds.
    private(set) var failed: UInt32?
    private var answerCount = 0

    init() {}

    /// Restores a learnt plan; 0 stands for none.
    init(learnt: UInt32, ceiling: UInt32, failed: UInt32) {
        self.ceiling = ceiling
        // A value below the gateway's minimum or above the ceiling is ignored.
        if (Limits.leastHeartbeatSeconds...max(ceiling, Limits.leastHeartbeatSeconds)).contains(learnt) {
            self.learnt = learnt
        }
        self.failed = failed > 0 ? failed : nil
    }

    /// Records the heartbeat that the gateway chose for the session.
    mutating func agreed(_ seconds: UInt32) {
        if learnt == nil { ceiling = seconds }
    }

    /// Records that a connection died in a silence of this length.
    mutating func lost(after seconds: UInt32) {
        learnt = max(Limits.leastHeartbeatSeconds, min(learnt ?? seconds, seconds) / 2)
        failed = min(failed ?? .max, seconds)
        answerCount = 0
    }

    /// Records that a Ping after a silence was answered.
    ///
    /// - Returns: a longer heartbeat to request, or `nil` to keep the current one.
    mutating func answered() -> UInt32? {
        guard let learnt else { return nil }
        answerCount += 1
        let next = min(ceiling, learnt + learnt / 2)
        let isRisky = failed.map { next >= $0 } ?? false
        guard answerCount >= (isRisky ? Limits.answersBeforeRetrial : Limits.answersBeforeLonger) else { return nil }
        answerCount = 0
        if isRisky { failed = nil }
        self.learnt = next < ceiling ? next : nil
        return next > learnt ? next : nil
    }

    /// Resets the plan, for another network or another requested heartbeat.
    mutating func forget() { (learnt, failed, answerCount) = (nil, nil, 0) }
}
