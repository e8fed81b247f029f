internal import Wire

/// When alarms of cold rows are asked for, and in which turn; and those whose row could not be read.
///
/// One batch of alarms is under way at a time. After a failed read none is asked for during a second: the store's next alarm
/// stays in the past then, and a failing disk must not be asked as fast as it can answer.
struct AlarmReading {
    enum Turn {
        /// What no pile has.
        case main
        case pile(AlarmPile)
    }

    private static let retryDelay: Int64 = 1_000

    private var isAsked = false
    private var pausedUntil: GatewayTime = 0
    /// Rows that were told of and are being worked on.
    private var underWay = 0
    private var isPilesTurn = false
    /// The place of the pile that was looked at last.
    private var hand = 0
    /// Alarms whose row could not be read; the store does not repeat them.
    private var failed: [(key: StoreKey, at: GatewayTime)] = []

    func mayAsk(_ now: GatewayTime) -> Bool { !isAsked && now >= pausedUntil && underWay == 0 }

    mutating func asked() { isAsked = true }

    mutating func answered(hasFailed: Bool, now: GatewayTime) {
        isAsked = false
        if hasFailed { pausedUntil = now + Self.retryDelay }
    }

    /// The work on a row begins; nothing more is asked for until all of it has ended.
    mutating func begin() { underWay += 1 }
    mutating func end() { underWay -= 1 }

    /// Whose turn it is: what no pile has and the piles alternate; the piles take turns among themselves.
    mutating func nextTurn(_ piles: [AlarmPile], isMainDue: Bool, isDue: (AlarmPile) -> Bool) -> Turn? {
        isPilesTurn.toggle()
        if !piles.isEmpty, isPilesTurn || !isMainDue {
            for step in 1...piles.count {
                let place = (hand + step) % piles.count
                guard isDue(piles[place]) else { continue }
                hand = place
                return .pile(piles[place])
            }
        }
        return isMainDue ? .main : nil
    }

    /// Looks at the row again in a second.
    mutating func retry(_ key: StoreKey, now: GatewayTime) { failed.append((key, now + Self.retryDelay)) }

    /// Takes out the failed ones that are due again.
    mutating func takeFailed(now: GatewayTime) -> [StoreKey] {
        guard !failed.isEmpty else { return [] }
        let due = failed.filter { $0.at <= now }.map(\.key)
        failed.removeAll { $0.at <= now }
        return due
    }
}
