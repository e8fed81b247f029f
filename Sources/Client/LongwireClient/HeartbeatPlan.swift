/// How long this network bears a silent connection, as far as the client has found out.
///
/// A router forgets a connection that is silent for too long, and says so to neither side. So a Ping after a silence
/// that gets no answer halves the heartbeat, down to 30 s. Answered ones raise it again by half, in steps, up to what the
/// app wished or the gateway gave. A length that died once is tried again only after many answers.
struct HeartbeatPlan: Equatable, Sendable {
    /// The heartbeat that this network has taught; `nil`: none but the usual one.
    private(set) var learnt: UInt32?
    /// The usual heartbeat: the longest.
    private(set) var ceiling: UInt32 = 0
    /// The shortest that died.
    private(set) var failed: UInt32?
    private var answerCount = 0

    init() {}

    /// What was learnt before; 0: nothing.
    init(learnt: UInt32, ceiling: UInt32, failed: UInt32) {
        self.ceiling = ceiling
        // Below what a gateway grants, or without an end to grow to, it is no heartbeat of ours.
        if (Limits.leastHeartbeatSeconds...max(ceiling, Limits.leastHeartbeatSeconds)).contains(learnt) {
            self.learnt = learnt
        }
        self.failed = failed > 0 ? failed : nil
    }

    /// The gateway named the session's heartbeat.
    mutating func agreed(_ seconds: UInt32) {
        if learnt == nil { ceiling = seconds }
    }

    /// A connection died in a silence of this length.
    mutating func lost(after seconds: UInt32) {
        learnt = max(Limits.leastHeartbeatSeconds, min(learnt ?? seconds, seconds) / 2)
        failed = min(failed ?? .max, seconds)
        answerCount = 0
    }

    /// A Ping after a silence was answered.
    ///
    /// - Returns: a longer heartbeat to ask for; `nil`: stay.
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

    /// Another network, or another wish: nothing is known.
    mutating func forget() { (learnt, failed, answerCount) = (nil, nil, 0) }
}
