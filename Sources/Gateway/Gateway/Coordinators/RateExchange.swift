internal import Quotas
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// The use of apps' rate limits: one limiter for all loops and, at the owner of partition 0, the counter of all gateways.
final class SharedRates: RateLimiting, Sendable {
    fileprivate struct State {
        var limiter = RateLimiter()
        var ledger = RateLedger()
        /// The time at which the exchange in flight times out; `nil` if none is in flight.
        var answerDueAt: GatewayTime?
        /// Whether an exchange was requested but has not started.
        var isCalled = false
        /// The function that requests an exchange; set only in a cluster.
        var call: (@Sendable () -> Void)?
    }

    private let state = Lock(State())
    private let networks = Lock(NetworkLimits())
    /// The timeout of an exchange, in milliseconds; a broken link answers much earlier.
    private static let answerMilliseconds: Int64 = 10_000

    // MARK: Uses

    func take(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> RateLimiter.Verdict {
        take(kind, app: app, bound: limits.bound(kind), now: now)
    }

    func take(_ kind: RateKind, app: AppKey, bound: RateBound, now: GatewayTime) -> RateLimiter.Verdict {
        let (verdict, call) = state.withLock { state in
            let verdict = state.limiter.take(kind, app: app, bound: bound, now: now)
            return (verdict, state.calling())
        }
        call?()
        return verdict
    }

    func isSpent(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> Bool {
        state.withLock { $0.limiter.isSpent(kind, app: app, limits: limits, now: now) }
    }

    func takeReceipt(from network: UInt64, app: AppKey, limit: Int, now: GatewayTime) -> Bool {
        networks.withLock { $0.take(network, app: app, limit: limit, now: now) }
    }

    func usedToday(_ kind: RateKind, app: AppKey, now: GatewayTime) -> Int {
        state.withLock { $0.limiter.usedToday(kind, app: app, now: now) }
    }

    // MARK: The exchange

    func setGatewayCount(_ count: Int) { state.withLock { $0.limiter.gatewayCount = max(1, count) } }

    /// Sets the function that schedules `exchangeRates`; it must be callable from any thread.
    func onExchangeDue(_ call: @escaping @Sendable () -> Void) { state.withLock { $0.call = call } }

    /// Returns the next report for the counter; `nil` if nothing changed or a report is in flight.
    func beginExchange(now: GatewayTime) -> [RateReport]? {
        state.withLock { state in
            state.isCalled = false
            if let due = state.answerDueAt {
                guard now >= due else { return nil }
                state.limiter.exchangeFailed()
                state.answerDueAt = nil
            }
            let reports = state.limiter.nextExchange(now: now)
            guard !reports.isEmpty else { return nil }
            state.answerDueAt = now + Self.answerMilliseconds
            return reports
        }
    }

    /// Applies the counter's answer; `totals` is `nil` if the exchange failed.
    func endExchange(_ totals: [RateTotal]?, now: GatewayTime) {
        let call = state.withLock { state -> (@Sendable () -> Void)? in
            guard state.answerDueAt != nil else { return nil }
            state.answerDueAt = nil
            if let totals { state.limiter.learn(totals, now: now) } else { state.limiter.exchangeFailed() }
            return state.calling()
        }
        call?()
    }

    func question(_ kinds: [RateKind], app: AppKey, now: GatewayTime) -> [RateReport] {
        state.withLock { $0.limiter.question(kinds, app: app, now: now) }
    }

    func hear(_ totals: [RateTotal], now: GatewayTime) { state.withLock { $0.limiter.hear(totals, now: now) } }

    // MARK: The counter, at the owner of part 0

    func count(_ reports: [RateReport], now: GatewayTime) -> [RateTotal] {
        state.withLock { $0.ledger.take(reports, now: now) }
    }

    func dayCounts() -> [(app: AppKey, kind: RateKind, day: Int64, count: Int)] {
        state.withLock { $0.ledger.dayCounts() }
    }

    /// Removes the counts of days before yesterday.
    ///
    /// - Returns: The counts whose rows must be removed.
    func takeOld(now: GatewayTime) -> [(app: AppKey, kind: RateKind)] {
        state.withLock { $0.ledger.takeOld(now: now) }
    }

    func restore(_ rows: [(app: AppKey, kind: UInt64, day: Int64, count: Int)], now: GatewayTime) {
        state.withLock { state in
            state.ledger = RateLedger()
            for row in rows {
                guard let kind = RateKind(rawValue: Int(truncatingIfNeeded: row.kind)) else { continue }
                state.ledger.restore(kind, app: row.app, day: row.day, count: row.count)
            }
            state.limiter.hear(state.ledger.totals, now: now)
        }
    }
}

extension SharedRates.State {
    /// Returns the function to call after unlocking, if an exchange is due and not yet requested.
    mutating func calling() -> (@Sendable () -> Void)? {
        guard limiter.isExchangeDue, !isCalled, answerDueAt == nil, let call else { return nil }
        isCalled = true
        return call
    }
}

extension EventLoopHost {
    /// Reports this gateway's uses to the counter and applies the totals of all gateways; does nothing except on host 0.
    func exchangeRates() {
        guard index == 0 else { return }
        if let cluster = context.cluster {
            context.usage.rates.setGatewayCount(cluster.gatewayCount)
            context.usage.quotas.setGatewayCount(cluster.gatewayCount)
        }
        guard let reports = context.usage.rates.beginExchange(now: now) else { return }
        guard servingPartition(0) == nil else {
            return context.usage.rates.endExchange(context.usage.rates.count(reports, now: now), now: now)
        }
        ask(CountRates(reports: reports), of: Bucket(0)) { [self] totals in
            context.usage.rates.endExchange(totals, now: now)
        }
    }
}
