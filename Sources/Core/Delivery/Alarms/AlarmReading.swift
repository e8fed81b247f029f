internal import Wire

/// The schedule of the shard's alarm reads, and the alarms whose row could not be read.
///
/// The shard requests one batch of alarms at a time. The shard waits a second after a failed read. The next alarm is then still
/// in the past, and an immediate retry would busy-loop on a failing disk. A failed read of one group does not delay other alarms.
struct AlarmReading {
    enum Turn {
        /// Alarms outside all groups.
        case main
        case group(AlarmGroup)
    }

    private static let retryDelay: Int64 = 1_000

    private var isAsked = false
    private var pausedUntil: GatewayTime = 0
    private var pausedGroups: [AlarmGroup: GatewayTime] = [:]
    /// The number of reported rows that the shard is working on.
    private var underWay = 0
    private var isGroupsTurn = false
    private var hand = 0
    /// Alarms whose row could not be read; the store does not report them again.
    private var failed: [(key: StoreKey, at: GatewayTime)] = []

    func mayAsk(_ now: GatewayTime) -> Bool { !isAsked && now >= pausedUntil && underWay == 0 }

    mutating func asked() { isAsked = true }

    /// Handles the end of a read.
    ///
    /// - Parameters:
    ///   - group: the requested group; `nil`: alarms outside all groups.
    ///   - hasFailed: whether a row could not be read.
    ///   - now: the time.
    mutating func answered(_ group: AlarmGroup?, hasFailed: Bool, now: GatewayTime) {
        isAsked = false
        guard hasFailed else {
            if let group { pausedGroups[group] = nil }
            return
        }
        if let group { pausedGroups[group] = now + Self.retryDelay } else { pausedUntil = now + Self.retryDelay }
    }

    func pause(of group: AlarmGroup) -> GatewayTime { pausedGroups.isEmpty ? 0 : pausedGroups[group] ?? 0 }

    /// Begins work on a row; the shard requests no alarms until all such work has ended.
    mutating func begin() { underWay += 1 }
    mutating func end() { underWay -= 1 }

    /// Returns the next read: main alarms alternate with groups, and groups take turns.
    mutating func nextTurn(_ groups: [AlarmGroup], isMainDue: Bool, isDue: (AlarmGroup) -> Bool) -> Turn? {
        isGroupsTurn.toggle()
        if !groups.isEmpty, isGroupsTurn || !isMainDue {
            for step in 1...groups.count {
                let place = (hand + step) % groups.count
                guard isDue(groups[place]) else { continue }
                hand = place
                return .group(groups[place])
            }
        }
        return isMainDue ? .main : nil
    }

    /// Schedules a retry of the row's alarm, one second from now.
    mutating func retry(_ key: StoreKey, now: GatewayTime) { failed.append((key, now + Self.retryDelay)) }

    mutating func takeFailed(now: GatewayTime) -> [StoreKey] {
        guard !failed.isEmpty else { return [] }
        let due = failed.filter { $0.at <= now }.map(\.key)
        failed.removeAll { $0.at <= now }
        return due
    }
}
