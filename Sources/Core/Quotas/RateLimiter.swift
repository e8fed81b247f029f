// Rate limits of apps, by UTC minute and UTC day.

package import Delivery
package import Wire

package enum RateKind: Int, CaseIterable, Sendable, Codable {
    /// Authentications, and calls of any kind.
    case authentication = 0, call
    /// Created list messages, and calls of `push/list/alias`.
    case list
    /// Broadcasts to all devices, and to tags.
    case broadcast, tagBroadcast
    case fastTagBroadcast
    case receipt
    case tagChange, tagQuery

    /// Whether a daily limit exists, so that the day's count must survive a restart.
    var isBoundedByDay: Bool {
        switch self {
        case .authentication, .call, .receipt: false
        case .list, .broadcast, .tagBroadcast, .fastTagBroadcast, .tagChange, .tagQuery: true
        }
    }

    /// The kind whose limit applies to this kind.
    var counted: RateKind { self == .tagBroadcast ? .broadcast : self }
}

/// An app's limits; 0 means no limit.
package struct RateLimits: Sendable, Equatable {
    /// The default is far above Getui's 100, because Getui's PHP SDK authenticates with every request.
    package var authenticationsPerMinute = 60_000
    package var callsPerMinute = 0
    /// An alert to a million devices causes a million receipts within a few minutes.
    package var receiptsPerMinute = 600_000
    /// The limit of one network address: a tenth, so that one address cannot use up the limit of all devices.
    package var receiptsPerMinuteOfNetwork = 60_000
    /// Getui's value.
    package var listsPerDay = 2_000_000
    package var listsPerMinute = 0
    /// Getui's values, for `push/all` and `push/tag` together.
    package var broadcastsPerMinute = 5
    package var broadcastsPerDay = 100
    /// The limits of `push/fast_custom_tag`; Getui documents error codes for them, but no values.
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
        // The operator limits tag calls equally for all apps, outside of `RateLimits`.
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

/// The limits of one kind of call of one app; 0 means no limit.
package struct RateBound: Sendable, Equatable {
    package var perMinute: Int
    package var perDay: Int
    package init(perMinute: Int, perDay: Int) { (self.perMinute, self.perDay) = (perMinute, perDay) }
}

extension RateLimits {
    package func bound(_ kind: RateKind) -> RateBound { RateBound(perMinute: perMinute(kind), perDay: perDay(kind)) }
}

/// The rate limit counts of every app, as one gateway knows them.
///
/// A single gateway counts exactly. In a cluster, each gateway counts its own uses and reports them to the *counter*
/// (`RateLedger`, on the owner of partition 0). The counter replies with the uses of all gateways. Between two exchanges a
/// gateway grants at most its share of the remaining uses. No call waits for the counter. All gateways together can exceed a
/// limit by the shares outstanding when it was reached. An exchange is due after half a share, or at the first use a second after
/// the last exchange.
package struct RateLimiter: Sendable {
    package enum Verdict: Sendable, Equatable { case granted, minuteExceeded, dayExceeded }

    /// The minimum share of a gateway that reaches the counter, so that a small limit is not refused early.
    package static let leastShare = 4
    /// The age of the last exchange after which a granted use requests another one.
    package static let exchangeMilliseconds: Int64 = 1_000
    /// The maximum number of entries per exchange; the remaining ones follow with the next exchange.
    package static let exchangeLimit = 4_096

    private struct Span: Sendable {
        /// The number of the minute or day since 1970.
        var number: Int64 = 0
        /// The uses of all gateways, by the counter's last reply.
        var told = 0
        /// The uses of this gateway since that reply; `sent` of them are in flight to the counter.
        var own = 0
        var sent = 0

        var used: Int { told + own }

        /// Moves forward only: loops read the time once a turn, so another loop's time may be slightly earlier.
        mutating func turn(to now: Int64) { if now > number { self = Span(number: now) } }

        mutating func hear(_ count: RateCount, isAnswer: Bool) {
            if count.span == number {
                // A counter that has just started may have a lower count.
                told = max(told, count.used)
                if isAnswer { own -= sent }
            }
            if isAnswer { sent = 0 }
        }
    }

    private struct Use: Sendable {
        var minute = Span()
        var day = Span()
        var exchangedAt: GatewayTime = 0

        mutating func turn(_ now: GatewayTime) {
            minute.turn(to: now / RateCount.minute)
            day.turn(to: now / RateCount.day)
        }
    }

    private var uses: [RateKey: Use] = [:]
    package var gatewayCount = 1
    /// Whether the counter is unreachable; this gateway then grants only its even share.
    package private(set) var isCutOff = false
    /// Whether a use was granted that should be reported soon; cleared by `nextExchange`.
    package private(set) var isExchangeDue = false

    package init() {}

    /// Counts one use if both limits allow it; a refused use is not counted.
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
        // The use also counts under the kind itself, for reports. Only `kind.counted` has a limit.
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

    /// Returns whether a use would be refused; counts nothing.
    package func isSpent(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> Bool {
        var use = uses[RateKey(app: app, kind: kind.counted)] ?? Use()
        use.turn(now)
        return verdict(use, limits.bound(kind)) != .granted
    }

    package func usedToday(_ kind: RateKind, app: AppKey, now: GatewayTime) -> Int {
        guard let use = uses[RateKey(app: app, kind: kind)], use.day.number == now / RateCount.day else { return 0 }
        return use.day.used
    }

    // MARK: The counter

    /// Returns the reports for the counter; empty if there is nothing to report.
    ///
    /// The same uses are not sent again until `learn` or `exchangeFailed` is called.
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

    /// Applies the counter's reply to `nextExchange`: the reports were counted.
    package mutating func learn(_ totals: [RateTotal], now: GatewayTime) {
        isCutOff = false
        hear(totals, isAnswer: true, now: now)
    }

    /// Applies the counter's reply to `question`, which reported no uses.
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

    /// Handles a failed exchange; the uses will be sent again.
    package mutating func exchangeFailed() {
        isCutOff = true
        isExchangeDue = false
        for key in uses.keys {
            uses[key]?.minute.sent = 0
            uses[key]?.day.sent = 0
        }
    }

    /// Returns a query for the uses of all gateways that reports no uses.
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
            // Below the limit in total, other gateways still have unused shares. A retry after a minute may then get a new share.
            return use.day.used >= bound.perDay ? .dayExceeded : .minuteExceeded
        }
        if bound.perMinute > 0, use.minute.own >= share(of: use.minute, bound.perMinute) { return .minuteExceeded }
        return .granted
    }
}

package struct NetworkLimits: Sendable {
    /// The maximum number of counted networks per minute; further ones are not limited.
    package static let networkLimit = 65_536

    private struct Key: Hashable, Sendable {
        var app: AppKey
        var network: UInt64
    }

    private var minute: Int64 = 0
    private var uses: [Key: Int] = [:]

    package init() {}

    /// Counts one use; returns false if the network has used `limit` in this minute (0 means no limit).
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
