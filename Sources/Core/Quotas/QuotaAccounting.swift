// The quotas of apps: limits of holdings and of rates per second, which keep one app from displacing others.

internal import Delivery
package import Wire

/// A quota of an app.
///
/// A case's name is its key in the configuration, on an app's page, in refusals and in metrics. A new case also needs the code
/// that counts it; the compiler reports the places.
package enum Quota: Int, Sendable, CaseIterable {
    case devices
    /// Messages requested by calls and frames, one for each named device, whether or not they are accepted.
    case publishesPerSecond
    /// The body bytes of calls and frames that publish.
    case requestBytesPerSecond
    /// Messages that are accepted and not ended.
    case queuedMessages
    /// The bytes of queued messages, as counted in the device queues.
    case queuedBytes
    /// `queuedBytes`, plus the app's other bytes on disk (`RetainedBytes`).
    case storedBytes

    /// Whether the quota limits a rate per second; all other quotas limit a current amount.
    package var isRate: Bool {
        switch self {
        case .publishesPerSecond, .requestBytesPerSecond: true
        case .devices, .queuedMessages, .queuedBytes, .storedBytes: false
        }
    }

    /// Whether the quota limits the app's data in the store; such a quota counts all gateways together and is not split into
    /// shares (`QueueLedger`).
    package var isOfStore: Bool {
        switch self {
        case .queuedMessages, .queuedBytes, .storedBytes: true
        case .devices, .publishesPerSecond, .requestBytesPerSecond: false
        }
    }

    package var largest: Int64 {
        switch self {
        case .devices, .publishesPerSecond, .requestBytesPerSecond, .queuedMessages: 1_000_000_000
        // Half of the range of a counter row, so that an overrun does not wrap.
        case .queuedBytes: 64 << 30
        // A sixteenth of the maximum that gateways report to each other.
        case .storedBytes: 16 << 40
        }
    }

    /// The retry delay in seconds after a refusal.
    ///
    /// Queues may drain quickly; stored rows take longer.
    fileprivate var roomSeconds: Int { self == .storedBytes ? 60 : 5 }

    package var key: String { Self.keys[rawValue] }
    private static let keys = allCases.map { String(describing: $0) }
}

/// An app's quotas; 0 means no limit.
package struct AppQuotas: Sendable, Equatable {
    private var limits = Array(repeating: 0, count: Quota.allCases.count)

    package init() {}

    package subscript(quota: Quota) -> Int {
        get { limits[quota.rawValue] }
        set { limits[quota.rawValue] = newValue }
    }

    package var isEmpty: Bool { limits.allSatisfy { $0 == 0 } }
    /// Whether some quota limits an amount that the shards hold.
    package var boundsHoldings: Bool { Quota.allCases.contains { !$0.isRate && self[$0] > 0 } }
    /// Whether some quota limits an amount that all gateways count together.
    package var boundsStore: Bool { Quota.allCases.contains { $0.isOfStore && self[$0] > 0 } }
}

package struct QuotaRefusal: Error, Sendable, Equatable {
    package var quota: Quota
    package var retryAfterSeconds: Int
    /// This gateway's share of the quota; `nil` if the quota is not split.
    package var share: Int?
    package init(quota: Quota, retryAfterSeconds: Int, share: Int? = nil) {
        (self.quota, self.retryAfterSeconds, self.share) = (quota, retryAfterSeconds, share)
    }

    package var reason: String {
        let part = share.map { " at this gateway, whose share is \($0)" } ?? ""
        return "the app's quota \(quota.key) is used up\(part), retry in \(retryAfterSeconds) s"
    }
}

package struct QuotaUse: Sendable, Equatable {
    package var quota: Quota
    package var limit: Int
    /// This gateway's share of the quota; `nil` if the quota is not split.
    package var share: Int?
    /// The used amount; for a rate: the amount in the last full second.
    package var used: Int
    package var refused: Int
}

/// The holdings of an app in one partition.
package struct QuotaHolding: Sendable, Equatable {
    package var devices: Int
    package var queued: Int
    package var queuedBytes: Int
    package var retainedBytes: Int
    package init(devices: Int, queued: Int, queuedBytes: Int = 0, retainedBytes: Int = 0) {
        (self.devices, self.queued, self.queuedBytes) = (devices, queued, queuedBytes)
        self.retainedBytes = retainedBytes
    }

    fileprivate static let none = QuotaHolding(devices: 0, queued: 0)
    fileprivate mutating func add(_ other: QuotaHolding, times sign: Int) {
        devices += sign * other.devices
        queued += sign * other.queued
        queuedBytes += sign * other.queuedBytes
        retainedBytes += sign * other.retainedBytes
    }
}

/// The quota use of apps, as one gateway knows it.
///
/// **Rates** are exact over all loops, with a burst of one second's worth. The last call of a second may take more than what is
/// left. The app then pays the debt before its next call, for one minute at most. A changed limit reprices the debt.
///
/// **Amounts** come from the partitions, which report them every 50 ms. A gateway can exceed such a quota by what all partitions
/// accept in that time. A device is checked at its Hello, and again before its Welcome, after earlier Hellos are settled.
///
/// In a cluster each gateway grants an even share. The share of devices is slightly larger, because devices are not spread evenly
/// over the partitions. Queued amounts of all gateways are exchanged several times a second (`QueueLedger`). Quotas of queued
/// amounts can be exceeded by the amounts that all gateways accept in between.
package struct QuotaAccounting: Sendable {
    /// The use of one app; it is modified in place, because each publish of the app updates it.
    private struct Use: Sendable {
        struct Tally: Sendable {
            /// The time in nanoseconds at which the granted amount is paid, and the rate at which it is paid.
            var paidAt: Int64 = 0
            var paidWith = 0
            /// The granted amount in this second, and in the previous one.
            var granted = 0
            var before = 0
            /// The number of refusals since the start, and the number already reported.
            var refused = 0
            var told = 0
        }

        private var second: Int64 = 0
        private var tallies = Array(repeating: Tally(), count: Quota.allCases.count)

        subscript(quota: Quota) -> Tally {
            get { tallies[quota.rawValue] }
            _modify { yield &tallies[quota.rawValue] }
        }

        mutating func turn(to now: Int64) {
            guard now / 1_000 > second else { return }
            let isNext = now / 1_000 == second + 1
            for place in tallies.indices {
                tallies[place].before = isNext ? tallies[place].granted : 0
                tallies[place].granted = 0
            }
            second = now / 1_000
        }

        /// Reprices the debt at this rate; returns its length in nanoseconds.
        mutating func price(_ quota: Quota, at rate: Int, now: Int64) -> Int64 {
            let began = now * 1_000_000
            let (old, paidAt) = (self[quota].paidWith, self[quota].paidAt)
            if old != 0, old != rate, paidAt > began {
                let unpaid = Double(paidAt - began) * Double(old) / Double(rate)
                self[quota].paidAt = began + Int64(min(unpaid, Double(QuotaAccounting.longestDebt)))
            }
            self[quota].paidWith = rate
            return self[quota].paidAt - began
        }

        mutating func grant(_ quota: Quota, _ amount: Int, at rate: Int, now: Int64) {
            // The bound prevents an overflow of the product.
            let price = QuotaAccounting.second * Int64(min(amount, 1 << 32)) / Int64(rate)
            let began = now * 1_000_000
            self[quota].paidAt = min(max(self[quota].paidAt, began) + price, began + QuotaAccounting.longestDebt)
            self[quota].granted += amount
        }

        /// Counts the amounts of two rates (0 means no limit), or returns the exhausted quota and the wait in seconds.
        mutating func take(
            _ first: (quota: Quota, amount: Int, rate: Int), _ second: (quota: Quota, amount: Int, rate: Int),
            now: Int64
        ) -> (Quota, Int)? {
            turn(to: now)
            // A call is granted if both debts are below one second. A refusal returns the longer wait.
            let one = first.rate > 0 ? wait(first.quota, at: first.rate, now: now) : 0
            let other = second.rate > 0 ? wait(second.quota, at: second.rate, now: now) : 0
            if max(one, other) > 0 {
                let quota = one >= other ? first.quota : second.quota
                self[quota].refused += 1
                return (quota, max(one, other))
            }
            if first.rate > 0 { grant(first.quota, first.amount, at: first.rate, now: now) }
            if second.rate > 0 { grant(second.quota, second.amount, at: second.rate, now: now) }
            return nil
        }

        /// Returns the wait in whole seconds; 0 if the call can proceed.
        private mutating func wait(_ quota: Quota, at rate: Int, now: Int64) -> Int {
            Int(max(0, price(quota, at: rate, now: now)) / QuotaAccounting.second)
        }
    }

    private static let second: Int64 = 1_000_000_000
    private static let longestDebt = 60 * second

    private var uses: [AppKey: Use] = [:]
    private var holdings: [Int: [AppKey: QuotaHolding]] = [:]
    /// The sums of `holdings`, kept because each publish reads them.
    private var totals: [AppKey: QuotaHolding] = [:]
    /// The number of gateways that share the quotas, including this one.
    package var gatewayCount = 1
    /// The queued amounts of the other gateways; an app without a reply has no entry.
    private var queuedElsewhere: [AppKey: AppQueue] = [:]
    /// The time of the last reply, in milliseconds of the caller's clock.
    private var heardAt: Int64 = 0
    /// Partitions whose loops report to this gateway.
    private var partsHere: Set<Int> = []
    /// The number of replies still needed until one is valid; after a move, two gateways or none may count a partition.
    private var awaitedAnswers = 0

    package init() {}

    /// Returns the part of a quota that this gateway grants.
    private func share(_ quota: Quota, of quotas: AppQuotas) -> Int {
        let limit = quotas[quota]
        guard gatewayCount > 1, !quota.isOfStore else { return limit }
        let share = (limit + gatewayCount - 1) / gatewayCount
        // Devices are bound to partitions, and one gateway's partitions may have more devices than an even share.
        return quota == .devices ? min(limit, share + max(4, share / 4)) : share
    }

    private func shown(_ quota: Quota, of quotas: AppQuotas) -> Int? {
        gatewayCount > 1 && !quota.isOfStore ? share(quota, of: quotas) : nil
    }

    private func devices(of app: AppKey) -> Int { totals[app]?.devices ?? 0 }
    /// Returns the holdings on this gateway; negative if its partitions ended messages that other partitions count.
    private func here(_ app: AppKey) -> AppQueue {
        let holding = totals[app] ?? .none
        return AppQueue(
            app: app, count: holding.queued, bytes: holding.queuedBytes, retainedBytes: holding.retainedBytes)
    }
    /// Returns the other gateways' holdings; zero without other gateways, `nil` if unknown.
    private func lastWord(of app: AppKey, now: Int64) -> AppQueue? {
        guard gatewayCount > 1 else { return AppQueue(app: app, count: 0) }
        guard awaitedAnswers == 0 else { return nil }
        // Ignore a stale reply: it would refuse the app permanently although its queues may have drained.
        return now - heardAt < QueueLedger.silenceMilliseconds ? queuedElsewhere[app] : nil
    }
    /// Returns the amount that all gateways use; `nil` if unknown, or if the quota is not counted by the ledger.
    private func used(_ quota: Quota, of app: AppKey, now: Int64) -> Int? {
        guard let elsewhere = lastWord(of: app, now: now) else { return nil }
        let here = here(app)
        // A partition may have ended messages that another one accepted before a restart.
        let queuedBytes = max(0, here.bytes + elsewhere.bytes)
        switch quota {
        case .queuedMessages: return max(0, here.count + elsewhere.count)
        case .queuedBytes: return queuedBytes
        case .storedBytes: return queuedBytes + max(0, here.retainedBytes + elsewhere.retainedBytes)
        case .devices, .publishesPerSecond, .requestBytesPerSecond: return nil
        }
    }
    /// Returns the amount for display; without a valid reply only this gateway's holdings count.
    private func shownUse(_ quota: Quota, of app: AppKey, now: Int64) -> Int {
        if let used = used(quota, of: app, now: now) { return used }
        let here = here(app)
        guard quota != .queuedMessages else { return max(0, here.count) }
        return max(0, here.bytes) + (quota == .storedBytes ? max(0, here.retainedBytes) : 0)
    }

    package func queues(of apps: [AppKey]) -> [AppQueue] { apps.map(here) }

    /// Stores the other gateways' holdings; they are valid for `QueueLedger.silenceMilliseconds`.
    package mutating func hear(_ elsewhere: [AppQueue], now: Int64) {
        queuedElsewhere = Dictionary(elsewhere.map { ($0.app, $0) }) { $1 }
        heardAt = now
        awaitedAnswers = max(0, awaitedAnswers - 1)
    }

    /// Removes apps that `isKnown` rejects, so that an app created again under an old name starts at zero.
    package mutating func keep(where isKnown: (AppKey) -> Bool) {
        uses = uses.filter { isKnown($0.key) }
        totals = totals.filter { isKnown($0.key) || $0.value != .none }
    }

    // MARK: Calls

    /// Counts a call that requests `publishes` messages, unless a quota is exhausted.
    ///
    /// A refused call is not counted. `now` is in milliseconds of a monotonic clock.
    package mutating func take(
        app: AppKey, publishes: Int, byteCount: Int, quotas: AppQuotas, now: Int64
    ) -> QuotaRefusal? {
        if let refusal = storeRefusal(app: app, quotas: quotas, now: now) { return refusal }
        let publishRate = share(.publishesPerSecond, of: quotas)
        let byteRate = share(.requestBytesPerSecond, of: quotas)
        guard publishRate > 0 || byteRate > 0 else { return nil }
        let refused = uses[app, default: Use()].take(
            (.publishesPerSecond, publishes, publishRate), (.requestBytesPerSecond, byteCount, byteRate), now: now)
        return refused.map { quota, seconds in
            QuotaRefusal(quota: quota, retryAfterSeconds: seconds, share: shown(quota, of: quotas))
        }
    }

    /// Refuses a call if a store quota is exhausted; broadcasts are checked by these quotas only.
    package mutating func storeRefusal(app: AppKey, quotas: AppQuotas, now: Int64) -> QuotaRefusal? {
        for quota in Self.quotasOfStore {
            if let refusal = refusal(quota, of: app, quotas, now: now) { return refusal }
        }
        return nil
    }
    /// The quotas in the order of their checks: the one with the longest retry delay first.
    private static let quotasOfStore = Quota.allCases.filter(\.isOfStore).sorted { $0.roomSeconds > $1.roomSeconds }

    /// Refuses the registration of a new device, which would add a permanent row, if `storedBytes` is exhausted.
    package mutating func registrationRefusal(app: AppKey, quotas: AppQuotas, now: Int64) -> QuotaRefusal? {
        refusal(.storedBytes, of: app, quotas, now: now)
    }

    private mutating func refusal(_ quota: Quota, of app: AppKey, _ quotas: AppQuotas, now: Int64) -> QuotaRefusal? {
        // Without a valid reply the total is unknown, so nothing is refused.
        guard quotas[quota] > 0, let used = used(quota, of: app, now: now), used >= quotas[quota] else { return nil }
        uses[app, default: Use()][quota].refused += 1
        return QuotaRefusal(quota: quota, retryAfterSeconds: quota.roomSeconds)
    }

    // MARK: Holdings of partitions

    package mutating func note(part: Int, _ holdings: [AppKey: QuotaHolding]) {
        if partsHere.insert(part).inserted { awaitedAnswers = Self.answersAfterMove }
        remove(part)
        for (app, holding) in holdings { totals[app, default: .none].add(holding, times: 1) }
        self.holdings[part] = holdings
    }

    /// Removes a partition that moved to another gateway.
    package mutating func forget(part: Int) {
        if partsHere.remove(part) != nil { awaitedAnswers = Self.answersAfterMove }
        remove(part)
    }

    /// The number of replies needed after a move: only the second is sure not to include the previous owner's last report.
    private static let answersAfterMove = 2

    private mutating func remove(_ part: Int) {
        for (app, holding) in holdings.removeValue(forKey: part) ?? [:] {
            totals[app, default: .none].add(holding, times: -1)
        }
    }

    private mutating func note(part: Int, app: AppKey, connected: Int) {
        let change = connected - (holdings[part]?[app]?.devices ?? 0)
        holdings[part, default: [:]][app, default: .none].devices = connected
        totals[app, default: .none].devices += change
    }

    /// Returns whether one more device may be welcomed; `connected` is the partition's current count for the app.
    package mutating func admitsDevice(app: AppKey, part: Int, connected: Int, quotas: AppQuotas) -> Bool {
        guard quotas[.devices] > 0 else { return true }
        note(part: part, app: app, connected: connected)
        guard devices(of: app) >= share(.devices, of: quotas) else { return true }
        uses[app, default: Use()][.devices].refused += 1
        return false
    }

    /// Returns whether a device exceeds the quota because other devices were admitted while its Hello was pending.
    ///
    /// The surplus device is no longer counted, so that another partition's device may take its place.
    package mutating func hasSurplusDevice(app: AppKey, part: Int, connected: Int, quotas: AppQuotas) -> Bool {
        guard quotas[.devices] > 0 else { return false }
        note(part: part, app: app, connected: connected)
        guard devices(of: app) > share(.devices, of: quotas) else { return false }
        note(part: part, app: app, connected: max(0, connected - 1))
        uses[app, default: Use()][.devices].refused += 1
        return true
    }

    // MARK: Figures

    package func usage(of app: AppKey, quotas: AppQuotas, now: Int64) -> [QuotaUse] {
        var use = uses[app] ?? Use()
        use.turn(to: now)
        return Quota.allCases.filter { quotas[$0] > 0 }.map { quota in
            let used =
                switch quota {
                case .devices: devices(of: app)
                case .queuedMessages, .queuedBytes, .storedBytes: shownUse(quota, of: app, now: now)
                case .publishesPerSecond, .requestBytesPerSecond: use[quota].before
                }
            return QuotaUse(
                quota: quota, limit: quotas[quota], share: shown(quota, of: quotas), used: used,
                refused: use[quota].refused)
        }
    }

    /// Returns the refusals since the last call.
    package mutating func takeReport() -> [(app: AppKey, quota: Quota, count: Int)] {
        var report: [(app: AppKey, quota: Quota, count: Int)] = []
        for (app, use) in uses {
            for quota in Quota.allCases where use[quota].refused > use[quota].told {
                report.append((app, quota, use[quota].refused - use[quota].told))
                uses[app]?[quota].told = use[quota].refused
            }
        }
        return report
    }
}
