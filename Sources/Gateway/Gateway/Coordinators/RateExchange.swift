internal import Quotas
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// Uses of apps' rates: one limiter for all loops, and at the owner of part 0 the counter of all gateways.
final class SharedRates: RateLimiting, Sendable {
    fileprivate struct State {
        var limiter = RateLimiter()
        var ledger = RateLedger()
        /// An exchange is under way; one that has no answer by then has failed.
        var answerDueAt: GatewayTime?
        /// The exchange has been asked for, and its loop has not come to it.
        var isCalled = false
        /// Calls the loop that exchanges; set where there are several gateways.
        var call: (@Sendable () -> Void)?
    }

    private let state = Lock(State())
    private let networks = Lock(NetworkLimits())
    /// A link answers for itself long before.
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

    /// How many gateways share each bound.
    func setGatewayCount(_ count: Int) { state.withLock { $0.limiter.gatewayCount = max(1, count) } }

    /// `call` is to have `exchangeRates` run soon; from any thread.
    func onExchangeDue(_ call: @escaping @Sendable () -> Void) { state.withLock { $0.call = call } }

    /// What the counter is to know now; `nil` when there is nothing, or its last answer is awaited.
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

    /// The counter's answer; `nil`: there was none.
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

    /// Forgets uses of earlier days than yesterday.
    ///
    /// - Returns: the counts whose rows are to be removed.
    func takeOld(now: GatewayTime) -> [(app: AppKey, kind: RateKind)] {
        state.withLock { $0.ledger.takeOld(now: now) }
    }

    /// Begins to count where the rows end.
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
    /// The call to be made once the lock is left, if an exchange is due and nobody has asked for it.
    mutating func calling() -> (@Sendable () -> Void)? {
        guard limiter.isExchangeDue, !isCalled, answerDueAt == nil, let call else { return nil }
        isCalled = true
        return call
    }
}

extension EventLoopHost {
    /// Reports this gateway's uses to the counter, and takes the uses of all gateways; on the host of partition 0's number.
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
