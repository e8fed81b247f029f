// How often an app may call: counted by the minute and by the day, in UTC.

package import Delivery
package import Wire

/// What is counted for itself.
package enum RateKind: Int, CaseIterable, Sendable, Codable {
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
    /// Calls that give tags to many devices or take them away, and calls that ask for a device's tags.
    case tagChange, tagQuery

    /// Bounded by the day, too, so the day's count must survive a restart.
    var isBoundedByDay: Bool {
        switch self {
        case .authentication, .call, .receipt: false
        case .list, .broadcast, .tagBroadcast, .fastTagBroadcast, .tagChange, .tagQuery: true
        }
    }

    /// The kind whose bound it counts against.
    var counted: RateKind { self == .tagBroadcast ? .broadcast : self }
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
        // The operator's limits, the same for all apps.
        case .tagChange, .tagQuery: 0
        }
    }

    package func perDay(_ kind: RateKind) -> Int {
        switch kind {
        case .authentication, .call, .receipt, .tagChange, .tagQuery: 0
        case .list: listsPerDay
        case .broadcast, .tagBroadcast: broadcastsPerDay
        case .fastTagBroadcast: fastTagBroadcastsPerDay
        }
    }
}

/// What one kind of call of one app is held to; 0: no bound.
package struct RateBound: Sendable, Equatable {
    package var perMinute: Int
    package var perDay: Int
    package init(perMinute: Int, perDay: Int) { (self.perMinute, self.perDay) = (perMinute, perDay) }
}

extension RateLimits {
    package func bound(_ kind: RateKind) -> RateBound { RateBound(perMinute: perMinute(kind), perDay: perDay(kind)) }
}

/// What every app has used, as one gateway knows it.
///
/// A gateway alone counts exactly. Of several, each counts its own uses and tells the *counter* of them (`RateLedger`, at the
/// owner of part 0). The counter tells what all have used. Between two such exchanges a gateway grants no more than its share
/// of what the counter had left. So no call waits for the counter, and all gateways together pass a bound by the shares that
/// were out when it was reached. An exchange is due after half a share, and at a use a second after the last.
package struct RateLimiter: Sendable {
    package enum Verdict: Sendable, Equatable { case granted, minuteExceeded, dayExceeded }

    /// The least share of a gateway that reaches the counter: a caller with a small bound is not refused early.
    package static let leastShare = 4
    /// How old the counter's word may be when a use is granted, without an exchange.
    package static let exchangeMilliseconds: Int64 = 1_000
    /// Entries of one exchange; the rest comes with the next.
    package static let exchangeLimit = 4_096

    /// The uses of one minute, or one day.
    private struct Span: Sendable {
        /// Which one.
        var number: Int64 = 0
        /// What all gateways had used, as the counter told.
        var told = 0
        /// What this gateway has used since; `sent` of it is on its way to the counter.
        var own = 0
        var sent = 0

        var used: Int { told + own }

        /// Forward only: loops read the time once a turn, so another one may be a moment behind.
        mutating func turn(to now: Int64) { if now > number { self = Span(number: now) } }

        mutating func hear(_ count: RateCount, isAnswer: Bool) {
            if count.span == number {
                // A counter that has just begun may know less.
                told = max(told, count.used)
                if isAnswer { own -= sent }
            }
            if isAnswer { sent = 0 }
        }
    }

    private struct Use: Sendable {
        var minute = Span()
        var day = Span()
        /// When these uses last went to the counter.
        var exchangedAt: GatewayTime = 0

        mutating func turn(_ now: GatewayTime) {
            minute.turn(to: now / RateCount.minute)
            day.turn(to: now / RateCount.day)
        }
    }

    private var uses: [RateKey: Use] = [:]
    /// The gateways that share the bounds, this one included.
    package var gatewayCount = 1
    /// The counter could not be reached: an even share is all that this gateway grants until it can.
    package private(set) var isCutOff = false
    /// A use was granted that the counter is to know of soon; `nextExchange` clears it.
    package private(set) var isExchangeDue = false

    package init() {}

    /// Counts one use if both bounds allow it; a refused one is not counted.
    package mutating func take(_ kind: RateKind, app: AppKey, bound: RateBound, now: GatewayTime) -> Verdict {
        let key = RateKey(app: app, kind: kind.counted)
        var use = uses[key] ?? Use()
        use.turn(now)
        let verdict = verdict(use, bound)
        guard verdict == .granted else { return verdict }
        use.minute.own += 1
        use.day.own += 1
        if gatewayCount > 1, !isCutOff, !isExchangeDue { isExchangeDue = isDue(use, bound, now) }
        uses[key] = use
        // Told apart in reports; its bound is the other one's.
        if kind != kind.counted {
            let part = RateKey(app: app, kind: kind)
            var use = uses[part] ?? Use()
            use.turn(now)
            use.minute.own += 1
            use.day.own += 1
            uses[part] = use
        }
        return .granted
    }

    package mutating func take(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> Verdict {
        take(kind, app: app, bound: limits.bound(kind), now: now)
    }

    /// True when a use would be refused; counts nothing.
    package func isSpent(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> Bool {
        var use = uses[RateKey(app: app, kind: kind.counted)] ?? Use()
        use.turn(now)
        return verdict(use, limits.bound(kind)) != .granted
    }

    /// Uses on the day of `now`, as far as they are known here.
    package func usedToday(_ kind: RateKind, app: AppKey, now: GatewayTime) -> Int {
        guard let use = uses[RateKey(app: app, kind: kind)], use.day.number == now / RateCount.day else { return 0 }
        return use.day.used
    }

    // MARK: The counter

    /// What the counter is to know; empty when there is nothing.
    ///
    /// Until `learn` or `exchangeFailed` none of it is sent again.
    package mutating func nextExchange(now: GatewayTime) -> [RateReport] {
        isExchangeDue = false
        var reports: [RateReport] = []
        for (key, use) in uses where use.minute.own > 0 || use.day.own > 0 {
            guard reports.count < Self.exchangeLimit else {
                isExchangeDue = true
                break
            }
            var use = use
            use.turn(now)
            use.exchangedAt = now
            (use.minute.sent, use.day.sent) = (use.minute.own, use.day.own)
            uses[key] = use
            guard use.minute.own > 0 || use.day.own > 0 else { continue }
            reports.append(
                RateReport(
                    key: key, minute: RateCount(span: use.minute.number, used: use.minute.told),
                    inMinute: use.minute.own, day: RateCount(span: use.day.number, used: use.day.told),
                    inDay: use.day.own))
        }
        return reports
    }

    /// The counter has taken what `nextExchange` gave, and tells what all gateways have used.
    package mutating func learn(_ totals: [RateTotal], now: GatewayTime) {
        isCutOff = false
        hear(totals, isAnswer: true, now: now)
    }

    /// The counter was only asked.
    package mutating func hear(_ totals: [RateTotal], now: GatewayTime) { hear(totals, isAnswer: false, now: now) }

    private mutating func hear(_ totals: [RateTotal], isAnswer: Bool, now: GatewayTime) {
        for total in totals {
            var use = uses[total.key] ?? Use()
            use.turn(now)
            use.minute.hear(total.minute, isAnswer: isAnswer)
            use.day.hear(total.day, isAnswer: isAnswer)
            uses[total.key] = use
        }
    }

    /// What `nextExchange` gave did not reach the counter, or its answer did not come: it is sent again.
    package mutating func exchangeFailed() {
        isCutOff = true
        isExchangeDue = false
        for key in uses.keys {
            uses[key]?.minute.sent = 0
            uses[key]?.day.sent = 0
        }
    }

    /// Asks what all gateways have used of these kinds, and tells of nothing that is used here.
    package func question(_ kinds: [RateKind], app: AppKey, now: GatewayTime) -> [RateReport] {
        kinds.map { kind in
            let key = RateKey(app: app, kind: kind)
            var use = uses[key] ?? Use()
            use.turn(now)
            return RateReport(
                key: key, minute: RateCount(span: use.minute.number, used: use.minute.told), inMinute: 0,
                day: RateCount(span: use.day.number, used: use.day.told), inDay: 0)
        }
    }

    /// What this gateway may use before the counter's next word.
    private func share(of span: Span, _ limit: Int) -> Int {
        let rest = max(0, limit - span.told)
        guard gatewayCount > 1 else { return rest }
        return min(rest, max(isCutOff ? 1 : Self.leastShare, (rest + gatewayCount - 1) / gatewayCount))
    }

    private func isDue(_ use: Use, _ bound: RateBound, _ now: GatewayTime) -> Bool {
        func isHalf(_ span: Span, _ limit: Int) -> Bool {
            limit > 0 && 2 * (span.own - span.sent) >= share(of: span, limit)
        }
        return now - use.exchangedAt >= Self.exchangeMilliseconds || isHalf(use.minute, bound.perMinute)
            || isHalf(use.day, bound.perDay)
    }

    private func verdict(_ use: Use, _ bound: RateBound) -> Verdict {
        if bound.perDay > 0, use.day.own >= share(of: use.day, bound.perDay) {
            // A share that is used up is another one in a moment.
            return use.day.used >= bound.perDay ? .dayExceeded : .minuteExceeded
        }
        if bound.perMinute > 0, use.minute.own >= share(of: use.minute, bound.perMinute) { return .minuteExceeded }
        return .granted
    }
}

/// What each network address has used of an app's receipts in this minute.
package struct NetworkLimits: Sendable {
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
