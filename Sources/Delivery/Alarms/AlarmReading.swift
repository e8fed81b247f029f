internal import Wire

/// When the shard asks for alarms of cold rows, and in which order; and alarms whose row a reader could not read.
///
/// The shard asks for one batch of alarms at a time. After a failed read it waits a second. The store's next alarm
/// stays in the past then, and the shard must not ask a failing disk as fast as it answers. A failed read of a pile
/// keeps no other alarm waiting.
struct AlarmReading {
    enum Turn {
        /// Alarms that no pile has.
        case main
        case pile(AlarmPile)
    }

    private static let retryDelay: Int64 = 1_000

    private var isAsked = false
    private var pausedUntil: GatewayTime = 0
    private var pausedPiles: [AlarmPile: GatewayTime] = [:]
    /// Rows that the store reported and the shard is working on.
    private var underWay = 0
    private var isPilesTurn = false
    /// The place of the pile that the shard looked at last.
    private var hand = 0
    /// Alarms whose row a reader could not read; the store does not repeat them.
    private var failed: [(key: StoreKey, at: GatewayTime)] = []

    func mayAsk(_ now: GatewayTime) -> Bool { !isAsked && now >= pausedUntil && underWay == 0 }

    mutating func asked() { isAsked = true }

    /// - Parameters:
    ///   - pile: what was asked for; `nil`: alarms of no pile.
    ///   - hasFailed: something of it could not be read.
    ///   - now: the time.
    mutating func answered(_ pile: AlarmPile?, hasFailed: Bool, now: GatewayTime) {
        isAsked = false
        guard hasFailed else {
            if let pile { pausedPiles[pile] = nil }
            return
        }
        if let pile { pausedPiles[pile] = now + Self.retryDelay } else { pausedUntil = now + Self.retryDelay }
    }

    /// The time before which a pile is not asked for.
    func pause(of pile: AlarmPile) -> GatewayTime { pausedPiles.isEmpty ? 0 : pausedPiles[pile] ?? 0 }

    /// Work on a row begins; the shard asks for nothing more until all of it has ended.
    mutating func begin() { underWay += 1 }
    mutating func end() { underWay -= 1 }

    /// The next to ask for: alarms of no pile and the piles alternate; the piles take turns among themselves.
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

    /// Takes out the failed alarms that are due again.
    mutating func takeFailed(now: GatewayTime) -> [StoreKey] {
        guard !failed.isEmpty else { return [] }
        let due = failed.filter { $0.at <= now }.map(\.key)
        failed.removeAll { $0.at <= now }
        return due
    }
}
