// How often an app may call: counted by the minute and by the day, in UTC.

package import Delivery
package import Wire

/// What is counted for itself.
package enum RateKind: Int, CaseIterable, Sendable {
    /// Authentications, and calls of any kind.
    case authentication = 0, call
    /// List messages made and calls of `push/list/alias`.
    case list
    /// Broadcasts to all, and to tags.
    case broadcast, tagBroadcast
    /// Broadcasts to one tag.
    case fastTagBroadcast
    /// Calls of `receipt`, which devices make.
    case receipt

    /// Bounded by the day, too, so the day's count must survive a restart.
    var isBoundedByDay: Bool {
        switch self {
        case .authentication, .call, .receipt: false
        case .list, .broadcast, .tagBroadcast, .fastTagBroadcast: true
        }
    }
}

/// An app's bounds; 0: none.
package struct RateLimits: Sendable, Equatable {
    /// Getui allows 100; its PHP SDK authenticates with every request, so ours is far higher.
    package var authenticationsPerMinute = 60_000
    package var callsPerMinute = 0
    /// An alert to a million devices brings a million receipts within a few minutes.
    package var receiptsPerMinute = 600_000
    /// Those from one network address: a tenth, so that no one address uses up what all devices have.
    package var receiptsPerMinuteOfNetwork = 60_000
    /// Getui's.
    package var listsPerDay = 2_000_000
    package var listsPerMinute = 0
    /// Getui's, for `push/all` and `push/tag` together.
    package var broadcastsPerMinute = 5
    package var broadcastsPerDay = 100
    /// For `push/fast_custom_tag` by itself; Getui names codes, but no numbers.
    package var fastTagBroadcastsPerMinute = 5
    package var fastTagBroadcastsPerDay = 100
    package init() {}

    package func perMinute(_ kind: RateKind) -> Int {
        switch kind {
        case .authentication: authenticationsPerMinute
        case .call: callsPerMinute
        case .list: listsPerMinute
        case .broadcast, .tagBroadcast: broadcastsPerMinute
        case .fastTagBroadcast: fastTagBroadcastsPerMinute
        case .receipt: receiptsPerMinute
        }
    }

    package func perDay(_ kind: RateKind) -> Int {
        switch kind {
        case .authentication, .call, .receipt: 0
        case .list: listsPerDay
        case .broadcast, .tagBroadcast: broadcastsPerDay
        case .fastTagBroadcast: fastTagBroadcastsPerDay
        }
    }
}

/// What every app has used.
package struct RateBook: Sendable {
    package enum Verdict: Sendable, Equatable { case granted, minuteExceeded, dayExceeded }

    private struct Key: Hashable, Sendable {
        var app: AppKey
        var kind: RateKind
    }

    fileprivate struct Use: Sendable {
        var minute: Int64 = 0
        var inMinute = 0
        var day: Int64 = 0
        var inDay = 0
    }

    private var uses: [Key: Use] = [:]

    package init() {}

    /// Counts one use if both bounds allow it; a refused one is not counted.
    package mutating func take(
        _ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime
    ) -> Verdict {
        let key = Key(app: app, kind: kind == .tagBroadcast ? .broadcast : kind)
        var use = uses[key] ?? Use()
        Self.turn(&use, now)
        let verdict = Self.verdict(use, kind, limits)
        guard verdict == .granted else { return verdict }
        use.inMinute += 1
        use.inDay += 1
        uses[key] = use
        if kind == .tagBroadcast { uses[Key(app: app, kind: .tagBroadcast), default: Use()].count(now) }
        return .granted
    }

    /// True when a use would be refused; counts nothing.
    package func isSpent(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> Bool {
        var use = uses[Key(app: app, kind: kind == .tagBroadcast ? .broadcast : kind)] ?? Use()
        Self.turn(&use, now)
        return Self.verdict(use, kind, limits) != .granted
    }

    /// Uses on the day of `now`.
    package func usedToday(_ kind: RateKind, app: AppKey, now: GatewayTime) -> Int {
        guard let use = uses[Key(app: app, kind: kind)], use.day == now / 86_400_000 else { return 0 }
        return use.inDay
    }

    /// Takes over what was counted before a restart.
    package mutating func restore(_ kind: RateKind, app: AppKey, day: Int64, count: Int) {
        var use = Use()
        (use.day, use.inDay) = (day, count)
        uses[Key(app: app, kind: kind)] = use
    }

    /// What must survive a restart: the day's uses of what is bounded by the day.
    package func dayCounts() -> [(app: AppKey, kind: RateKind, day: Int64, count: Int)] {
        uses.filter { $0.key.kind.isBoundedByDay }
            .map { ($0.key.app, $0.key.kind, $0.value.day, $0.value.inDay) }
    }

    private static func verdict(_ use: Use, _ kind: RateKind, _ limits: RateLimits) -> Verdict {
        let perMinute = limits.perMinute(kind), perDay = limits.perDay(kind)
        if perDay > 0, use.inDay >= perDay { return .dayExceeded }
        if perMinute > 0, use.inMinute >= perMinute { return .minuteExceeded }
        return .granted
    }

    fileprivate static func turn(_ use: inout Use, _ now: GatewayTime) {
        if use.minute != now / 60_000 { (use.minute, use.inMinute) = (now / 60_000, 0) }
        if use.day != now / 86_400_000 { (use.day, use.inDay) = (now / 86_400_000, 0) }
    }
}

/// What each network address has used of an app's receipts in this minute.
package struct NetworkBook: Sendable {
    /// Networks of one minute that are counted; further ones are not.
    package static let networkLimit = 65_536

    private struct Key: Hashable, Sendable {
        var app: AppKey
        var network: UInt64
    }

    private var minute: Int64 = 0
    private var uses: [Key: Int] = [:]

    package init() {}

    /// Counts one use; false when the network has had `limit` (0: no bound) in this minute.
    package mutating func take(_ network: UInt64, app: AppKey, limit: Int, now: GatewayTime) -> Bool {
        guard limit > 0 else { return true }
        if minute != now / 60_000 {
            minute = now / 60_000
            uses.removeAll(keepingCapacity: uses.count < Self.networkLimit / 16)
        }
        let key = Key(app: app, network: network)
        let used = uses[key] ?? 0
        guard used < limit else { return false }
        if used > 0 || uses.count < Self.networkLimit { uses[key] = used + 1 }
        return true
    }
}

extension RateBook.Use {
    fileprivate mutating func count(_ now: GatewayTime) {
        RateBook.turn(&self, now)
        inMinute += 1
        inDay += 1
    }
}
