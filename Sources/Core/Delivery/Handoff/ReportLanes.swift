internal import Wire

/// Reports of devices' sessions that are not recorded durably yet, and what stands behind them.
///
/// A session has a *lane* from its first report until everything in it is durable. A Ping of such a session takes its place in
/// the lane, so its Pong says that what came before is recorded. A session without a lane has nothing that a Pong could
/// confirm too early.
struct ReportLanes {
    enum Entry {
        case report(DeviceReport)
        /// A Ping, by its nonce.
        case ping(UInt64)
        /// The device sends no more: the session ends when all before it is answered.
        case end
    }

    struct Lane {
        var waiting: [Entry] = []
        /// The device's turn has begun, or is waited for.
        var isUnderWay = false
        /// The first entry is tried again at this time.
        var restsUntil: GatewayTime = 0
        /// Entries that are taken and wait for the disk.
        var undurable = 0
        /// Pongs that are owed, in `waiting` or behind the disk.
        var owedPongs = 0
        /// When the device last got a keep-alive Ping, or began to wait for a Pong.
        var pingedAt: GatewayTime = 0
        /// Results of the last search of the device's queue, for the messages that reports waited for then.
        var findings: [MessageID: Found<ReportedMessage>] = [:]
    }

    /// More than a client keeps: 256 opens and 256 other reports, and the Ping behind them.
    static let waitingPerSession = 1_024
    static let waitingInAll = 65_536
    /// Sessions with so few are not refused for what others have waiting.
    static let waitingInAnyCase = 16
    /// Entries that one turn of a device takes; other commands of the device get theirs in between.
    static let sliceCount = 8
    /// How long a report waits that could not be read or written.
    static let rest: Int64 = 1_000
    /// Between two keep-alive Pings: a client that waits for a Pong gives up after 10 s without any frame.
    static let keepAlivePause: Int64 = 4_000

    private var lanes: [SessionRef: Lane] = [:]
    private var waitingCount = 0
    /// When the lanes are to be looked at again.
    private(set) var nextDue = GatewayTime.max

    @inline(__always)
    func has(_ session: SessionRef) -> Bool { !lanes.isEmpty && lanes[session] != nil }

    /// False: too many wait.
    mutating func append(_ entry: Entry, of session: SessionRef, at now: GatewayTime) -> Bool {
        var lane = lanes.removeValue(forKey: session) ?? Lane()
        defer { lanes[session] = lane }
        guard lane.waiting.count < Self.waitingPerSession,
            waitingCount < Self.waitingInAll || lane.waiting.count < Self.waitingInAnyCase
        else { return false }
        if case .ping = entry {
            if lane.owedPongs == 0 { lane.pingedAt = now }
            lane.owedPongs += 1
            nextDue = min(nextDue, lane.pingedAt + Self.keepAlivePause)
        }
        waitingCount += 1
        if case .report(let report) = entry, report.kind == .opened, !lane.isUnderWay, lane.restsUntil > now {
            // An open ends its message, which makes room where a full store keeps the others waiting.
            lane.waiting.insert(entry, at: 0)
            lane.restsUntil = now
        } else {
            lane.waiting.append(entry)
        }
        return true
    }

    func first(_ session: SessionRef) -> Entry? { lanes[session]?.waiting.first }

    mutating func removeFirst(_ session: SessionRef) {
        guard lanes[session] != nil else { return }
        lanes[session]?.waiting.removeFirst()
        waitingCount -= 1
    }

    /// The messages that the session's waiting reports are about.
    func messages(of session: SessionRef) -> Set<MessageID> {
        var messages: Set<MessageID> = []
        for case .report(let report) in lanes[session]?.waiting ?? [] { messages.insert(report.message) }
        return messages
    }

    /// Keeps what a search of the queue found, in place of an earlier one's, as long as the session has a lane.
    mutating func keep(_ findings: [MessageID: Found<ReportedMessage>], of session: SessionRef) {
        if has(session) { lanes[session]?.findings = findings }
    }

    /// The last search's result for a message; `nil`: it was not looked for.
    func finding(_ message: MessageID, of session: SessionRef) -> Found<ReportedMessage>? {
        has(session) ? lanes[session]?.findings[message] : nil
    }

    /// Whether the session's lane is to be given the device's turn now; then it is under way.
    mutating func begin(_ session: SessionRef, at now: GatewayTime) -> Bool {
        guard let lane = lanes[session], !lane.isUnderWay, !lane.waiting.isEmpty, lane.restsUntil <= now else {
            return false
        }
        lanes[session]?.isUnderWay = true
        return true
    }

    /// Ends the device's turn; true when more entries wait and are due.
    mutating func end(_ session: SessionRef, at now: GatewayTime) -> Bool {
        guard var lane = lanes.removeValue(forKey: session) else { return false }
        lane.isUnderWay = false
        keep(lane, of: session)
        return !lane.waiting.isEmpty && lane.restsUntil <= now
    }

    /// The first entry could not be taken: it is tried again after a while.
    mutating func rest(_ session: SessionRef, at now: GatewayTime) {
        guard lanes[session] != nil else { return }
        lanes[session]?.restsUntil = now + Self.rest
        nextDue = min(nextDue, now + Self.rest)
    }

    /// Something of the session waits for the disk from now on; it makes the lane if there is none.
    mutating func awaitDisk(_ session: SessionRef) { lanes[session, default: Lane()].undurable += 1 }

    /// That is durable now.
    mutating func durable(_ session: SessionRef, isPong: Bool) {
        guard var lane = lanes.removeValue(forKey: session) else { return }
        lane.undurable -= 1
        if isPong { lane.owedPongs -= 1 }
        keep(lane, of: session)
    }

    private mutating func keep(_ lane: Lane, of session: SessionRef) {
        if lane.undurable > 0 || lane.isUnderWay || !lane.waiting.isEmpty { lanes[session] = lane }
    }

    /// The session is over: the device reports again what got no Pong.
    mutating func forget(_ session: SessionRef) {
        guard !lanes.isEmpty, let lane = lanes.removeValue(forKey: session) else { return }
        waitingCount -= lane.waiting.count
    }

    /// Sessions whose retry is due, and sessions that need a keep-alive Ping while their Pong waits.
    mutating func takeDue(at now: GatewayTime) -> (rested: [SessionRef], keepAlives: [SessionRef]) {
        guard nextDue <= now else { return ([], []) }
        nextDue = .max
        var (rested, keepAlives): ([SessionRef], [SessionRef]) = ([], [])
        for (session, var lane) in lanes {
            if !lane.isUnderWay, !lane.waiting.isEmpty {
                if lane.restsUntil <= now { rested.append(session) } else { nextDue = min(nextDue, lane.restsUntil) }
            }
            guard lane.owedPongs > 0 else { continue }
            if lane.pingedAt + Self.keepAlivePause <= now {
                lane.pingedAt = now
                lanes[session] = lane
                keepAlives.append(session)
            }
            nextDue = min(nextDue, lane.pingedAt + Self.keepAlivePause)
        }
        // Dictionaries have no order, and a simulation is to repeat itself.
        return (rested.sorted { $0.slot < $1.slot }, keepAlives.sorted { $0.slot < $1.slot })
    }
}
