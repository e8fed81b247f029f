internal import Wire

/// When the shard asks for alarms of cold rows, and in which order; and alarms whose row a reader could not read.
///
/// The shard asks for one batch of alarms at a time. After a failed read it waits a second. The store's next alarm
/// stays in the past then, and the shard must not ask a failing disk as fast as it answers. A failed read of a group
/// keeps no other alarm waiting.
struct AlarmReading {
    enum Turn {
        /// Alarms that no group has.
        case main
        case group(AlarmGroup)
    }

    private static let retryDelay: Int64 = 1_000

    private var isAsked = false
    private var pausedUntil: GatewayTime = 0
    private var pausedGroups: [AlarmGroup: GatewayTime] = [:]
    /// Rows that the store reported and the shard is working on.
    private var underWay = 0
    private var isGroupsTurn = false
    /// The place of the group that the shard looked at last.
    private var hand = 0
    /// Alarms whose row a reader could not read; the store does not repeat them.
    private var failed: [(key: StoreKey, at: GatewayTime)] = []

    func mayAsk(_ now: GatewayTime) -> Bool { !isAsked && now >= pausedUntil && underWay == 0 }

    mutating func asked() { isAsked = true }

    /// - Parameters:
    ///   - group: what was asked for; `nil`: alarms of no group.
    ///   - hasFailed: something of it could not be read.
    ///   - now: the time.
    mutating func answered(_ group: AlarmGroup?, hasFailed: Bool, now: GatewayTime) {
        isAsked = false
        guard hasFailed else {
            if let group { pausedGroups[group] = nil }
            return
        }
        if let group { pausedGroups[group] = now + Self.retryDelay } else { pausedUntil = now + Self.retryDelay }
    }

    /// The time before which a group is not asked for.
    func pause(of group: AlarmGroup) -> GatewayTime { pausedGroups.isEmpty ? 0 : pausedGroups[group] ?? 0 }

    /// Work on a row begins; the shard asks for nothing more until all of it has ended.
    mutating func begin() { underWay += 1 }
    mutating func end() { underWay -= 1 }

    /// The next to ask for: alarms of no group and the groups alternate; the groups take turns among themselves.
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

    /// Looks at the row again in a second.
    mutating func retry(_ key: StoreKey, now: GatewayTime) { failed.append((key, now + Self.retryDelay)) }

    /// Takes out the failed alarms that are due again.
    mutating func takeFailed(now: GatewayTime) -> [StoreKey] {
        guard !failed.isEmpty else { return [] }
        let due = failed.filter { $0.at <= now }.map(\.key)
        failed.removeAll { $0.at <= now }
        return due
    }
}
