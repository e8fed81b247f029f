internal import Wire

/// Reports of sessions that are not durable yet, and the frames queued behind them.
///
/// A session has a *lane* from its first report until all of the lane is durable. A Ping is queued in the lane, so its Pong
/// confirms the reports before it. Without a lane a Ping is answered immediately.
struct ReportLanes {
    enum Entry {
        case report(DeviceReport)
        case ping(UInt64)
        /// The device has half-closed its connection; the session ends after all earlier entries are answered.
        case end
    }

    struct Lane {
        var waiting: [Entry] = []
        /// Whether the lane's entries are being recorded, or wait for their device.
        var isUnderWay = false
        /// The earliest time of the next attempt to record the first entry.
        var restsUntil: GatewayTime = 0
        /// The number of handled entries that wait for their commit.
        var undurable = 0
        var owedPongs = 0
        /// The time of the last keep-alive Ping; initially the time of the device's first unanswered Ping.
        var pingedAt: GatewayTime = 0
        /// The results of the last search of the device's queue, for the messages of the reports that waited then.
        var findings: [MessageID: Found<ReportedMessage>] = [:]
    }

    /// The maximum number of waiting entries; a client keeps fewer: 256 opens, 256 other reports and a Ping.
    static let waitingPerSession = 1_024
    static let waitingInAll = 65_536
    /// Sessions below this number of entries are not refused when the total is reached.
    static let waitingInAnyCase = 16
    /// The number of entries per turn of a device; other commands of the device run in between.
    static let sliceCount = 8
    /// The retry delay in ms of a report that could not be read or written.
    static let rest: Int64 = 1_000
    /// The interval in ms of keep-alive Pings; a client times out after 10 s without a frame.
    static let keepAlivePause: Int64 = 4_000

    private var lanes: [SessionRef: Lane] = [:]
    private var waitingCount = 0
    /// A lower bound of the next retry or keep-alive Ping.
    private(set) var nextDue = GatewayTime.max

    @inline(__always)
    func has(_ session: SessionRef) -> Bool { !lanes.isEmpty && lanes[session] != nil }

    /// Appends an entry; returns false if too many entries wait.
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
            // An open ends its message, which frees room in a full store. It is therefore tried before the waiting reports.
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

    func messages(of session: SessionRef) -> Set<MessageID> {
        var messages: Set<MessageID> = []
        for case .report(let report) in lanes[session]?.waiting ?? [] { messages.insert(report.message) }
        return messages
    }

    mutating func keep(_ findings: [MessageID: Found<ReportedMessage>], of session: SessionRef) {
        if has(session) { lanes[session]?.findings = findings }
    }

    /// Returns the last search result for a message; `nil` if it was not searched for.
    func finding(_ message: MessageID, of session: SessionRef) -> Found<ReportedMessage>? {
        has(session) ? lanes[session]?.findings[message] : nil
    }

    /// Begins the lane's turn; returns false if the lane is running, empty or delayed.
    mutating func begin(_ session: SessionRef, at now: GatewayTime) -> Bool {
        guard let lane = lanes[session], !lane.isUnderWay, !lane.waiting.isEmpty, lane.restsUntil <= now else {
            return false
        }
        lanes[session]?.isUnderWay = true
        return true
    }

    /// Ends the turn; returns true if more entries are due.
    mutating func end(_ session: SessionRef, at now: GatewayTime) -> Bool {
        guard var lane = lanes.removeValue(forKey: session) else { return false }
        lane.isUnderWay = false
        keep(lane, of: session)
        return !lane.waiting.isEmpty && lane.restsUntil <= now
    }

    mutating func rest(_ session: SessionRef, at now: GatewayTime) {
        guard lanes[session] != nil else { return }
        lanes[session]?.restsUntil = now + Self.rest
        nextDue = min(nextDue, now + Self.rest)
    }

    /// Counts a write that the next Pong must wait for, and creates the lane if needed.
    mutating func awaitDisk(_ session: SessionRef) { lanes[session, default: Lane()].undurable += 1 }

    mutating func durable(_ session: SessionRef, isPong: Bool) {
        guard var lane = lanes.removeValue(forKey: session) else { return }
        lane.undurable -= 1
        if isPong { lane.owedPongs -= 1 }
        keep(lane, of: session)
    }

    private mutating func keep(_ lane: Lane, of session: SessionRef) {
        if lane.undurable > 0 || lane.isUnderWay || !lane.waiting.isEmpty { lanes[session] = lane }
    }

    /// Removes the lane of an ended session; the device repeats reports that no Pong has confirmed.
    mutating func forget(_ session: SessionRef) {
        guard !lanes.isEmpty, let lane = lanes.removeValue(forKey: session) else { return }
        waitingCount -= lane.waiting.count
    }

    /// Returns sessions whose retry is due, and sessions that need a keep-alive Ping.
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
        // Sorted, because dictionaries have no order and a simulation must be reproducible.
        return (rested.sorted { $0.slot < $1.slot }, keepAlives.sorted { $0.slot < $1.slot })
    }
}
