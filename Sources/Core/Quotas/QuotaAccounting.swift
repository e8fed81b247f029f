// What an app may have and do in all, beside its rates by the minute and by the day: so that one app does not crowd out others.

internal import Delivery
package import Wire

/// What is bound.
///
/// A case's name is its key in the configuration and on the page of an app, and what refusals and metrics name. A new one is a line here,
/// and what the compiler then asks for: what it counts.
package enum Quota: Int, Sendable, CaseIterable {
    /// Devices connected at once.
    case devices
    /// Messages that calls and frames ask for, one for each device named, whether or not they are accepted.
    case publishesPerSecond
    /// Bodies of these calls.
    case requestBytesPerSecond
    /// Messages that are accepted and have not ended.
    case queuedMessages
    /// Their bytes, as they count in their devices' queues.
    case queuedBytes
    /// These bytes, and what the app has on disk besides (`RetainedBytes`).
    case storedBytes

    /// A rate is used up in a moment and there again in the next; the others are numbers of what there is.
    package var isRate: Bool {
        switch self {
        case .publishesPerSecond, .requestBytesPerSecond: true
        case .devices, .queuedMessages, .queuedBytes, .storedBytes: false
        }
    }

    /// What the app has in the store: all gateways of a cluster count together, and no gateway has a share (`QueueLedger`).
    package var isOfStore: Bool {
        switch self {
        case .queuedMessages, .queuedBytes, .storedBytes: true
        case .devices, .publishesPerSecond, .requestBytesPerSecond: false
        }
    }

    /// The largest bound that the configuration takes.
    package var largest: Int64 {
        switch self {
        case .devices, .publishesPerSecond, .requestBytesPerSecond, .queuedMessages: 1_000_000_000
        // Half of what the rows of counts can tell, so that what passes the bound for a moment does not wrap.
        case .queuedBytes: 64 << 30
        // A sixteenth of what gateways tell each other at most.
        case .storedBytes: 16 << 40
        }
    }

    /// After how long a caller looks again whether there is room, in seconds: queues may be empty in a moment, a day's rows are not.
    fileprivate var roomSeconds: Int { self == .storedBytes ? 60 : 5 }

    package var key: String { Self.keys[rawValue] }
    private static let keys = allCases.map { String(describing: $0) }
}

/// An app's bounds; 0: none.
package struct AppQuotas: Sendable, Equatable {
    private var limits = Array(repeating: 0, count: Quota.allCases.count)

    package init() {}

    package subscript(quota: Quota) -> Int {
        get { limits[quota.rawValue] }
        set { limits[quota.rawValue] = newValue }
    }

    package var isEmpty: Bool { limits.allSatisfy { $0 == 0 } }
    /// Some bound is on what the shards have.
    package var boundsHoldings: Bool { Quota.allCases.contains { !$0.isRate && self[$0] > 0 } }
    /// Some bound is on what all gateways have together.
    package var boundsStore: Bool { Quota.allCases.contains { $0.isOfStore && self[$0] > 0 } }
}

/// Which bound refused a call, and when to come again.
package struct QuotaRefusal: Error, Sendable, Equatable {
    package var quota: Quota
    package var retryAfterSeconds: Int
    /// What this gateway of several may grant; `nil`: all of it.
    package var share: Int?
    package init(quota: Quota, retryAfterSeconds: Int, share: Int? = nil) {
        (self.quota, self.retryAfterSeconds, self.share) = (quota, retryAfterSeconds, share)
    }

    /// For a person.
    package var reason: String {
        let part = share.map { " at this gateway, whose share is \($0)" } ?? ""
        return "the app's quota \(quota.key) is used up\(part), retry in \(retryAfterSeconds) s"
    }
}

/// One bound of an app, and how much of it is used.
package struct QuotaUse: Sendable, Equatable {
    package var quota: Quota
    package var limit: Int
    /// What this gateway of several may grant; `nil`: all of it.
    package var share: Int?
    /// Of a rate: in the last whole second.
    package var used: Int
    /// Refusals since the start.
    package var refused: Int
}

/// What a part has of an app.
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

/// What the apps with quotas have and do, as one gateway knows it.
///
/// **Rates** are exact over all loops, with a second's worth at once; the last call of a second may ask for more than is left, and the
/// app pays for it before its next one, for a minute at most. A bound that changes prices anew what is not paid. **Numbers of what
/// there is** come from the parts, which tell theirs every 50 ms: so a gateway passes such a bound by what all parts accept in that
/// time. A device is asked about when its Hello comes and again before its Welcome, when the Hellos before it have been settled. Of several gateways each grants an even share, of devices somewhat more, since a
/// device belongs to one part. What all have queued each learns some times a second (`QueueLedger`), and passes that bound by what all accept until then.
package struct QuotaAccounting: Sendable {
    /// What one app has used; changed where it lies, since each publish of the app counts here.
    private struct Use: Sendable {
        struct Tally: Sendable {
            /// When what was granted is paid for, in nanoseconds of the caller's clock, and the rate that it is paid at.
            var paidAt: Int64 = 0
            var paidWith = 0
            /// What was granted in this second, and in the one before.
            var granted = 0
            var before = 0
            /// Refusals since the start, and how many of them were reported.
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

        /// Prices what is not paid at this rate; says how far ahead of now that is.
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
            // No call asks for so much that the product would not fit.
            let price = QuotaAccounting.second * Int64(min(amount, 1 << 32)) / Int64(rate)
            let began = now * 1_000_000
            self[quota].paidAt = min(max(self[quota].paidAt, began) + price, began + QuotaAccounting.longestDebt)
            self[quota].granted += amount
        }

        /// Counts amounts of two rates, of which 0 is no bound; or says which of them is used up, and for how many seconds.
        mutating func take(
            _ first: (quota: Quota, amount: Int, rate: Int), _ second: (quota: Quota, amount: Int, rate: Int),
            now: Int64
        ) -> (Quota, Int)? {
            turn(to: now)
            // Until less than a second's worth is unpaid of either: the caller is told of the longer wait.
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

        /// For how many whole seconds the caller waits; 0: not at all.
        private mutating func wait(_ quota: Quota, at rate: Int, now: Int64) -> Int {
            Int(max(0, price(quota, at: rate, now: now)) / QuotaAccounting.second)
        }
    }

    private static let second: Int64 = 1_000_000_000
    /// So long at most an app pays for one call.
    private static let longestDebt = 60 * second

    private var uses: [AppKey: Use] = [:]
    /// What each part has.
    private var holdings: [Int: [AppKey: QuotaHolding]] = [:]
    /// Their sums: each publish looks at them.
    private var totals: [AppKey: QuotaHolding] = [:]
    /// The gateways that share the bounds, this one included.
    package var gatewayCount = 1
    /// Of several gateways: what the others have queued; nothing of an app that no answer was about.
    private var queuedElsewhere: [AppKey: AppQueue] = [:]
    /// When that was told, in milliseconds of the caller's clock.
    private var heardAt: Int64 = 0
    /// Parts whose loops tell theirs here.
    private var partsHere: Set<Int> = []
    /// Answers until one holds: after a move a part may stand in the last answer and here, or in neither.
    private var awaitedAnswers = 0

    package init() {}

    /// What this gateway grants of a bound.
    private func share(_ quota: Quota, of quotas: AppQuotas) -> Int {
        let limit = quotas[quota]
        guard gatewayCount > 1, !quota.isOfStore else { return limit }
        let share = (limit + gatewayCount - 1) / gatewayCount
        // Devices are where their parts are, and no gateway can take them for another.
        return quota == .devices ? min(limit, share + max(4, share / 4)) : share
    }

    private func shown(_ quota: Quota, of quotas: AppQuotas) -> Int? {
        gatewayCount > 1 && !quota.isOfStore ? share(quota, of: quotas) : nil
    }

    private func devices(of app: AppKey) -> Int { totals[app]?.devices ?? 0 }
    /// Below 0 where other gateways' parts count what this one's have ended.
    private func here(_ app: AppKey) -> AppQueue {
        let holding = totals[app] ?? .none
        return AppQueue(
            app: app, count: holding.queued, bytes: holding.queuedBytes, retainedBytes: holding.retainedBytes)
    }
    /// What the other gateways have, if there are any; `nil`: nothing is known of it.
    private func lastWord(of app: AppKey, now: Int64) -> AppQueue? {
        guard gatewayCount > 1 else { return AppQueue(app: app, count: 0) }
        guard awaitedAnswers == 0 else { return nil }
        // A word that nobody renews would refuse an app for ever whose queues are empty by now.
        return now - heardAt < QueueLedger.silenceMilliseconds ? queuedElsewhere[app] : nil
    }
    /// How much of such a quota all gateways use; `nil`: not known, or not what the gateway that adds up counts.
    private func used(_ quota: Quota, of app: AppKey, now: Int64) -> Int? {
        guard let elsewhere = lastWord(of: app, now: now) else { return nil }
        let here = here(app)
        // A part may have ended what another had accepted before a restart.
        let queuedBytes = max(0, here.bytes + elsewhere.bytes)
        switch quota {
        case .queuedMessages: return max(0, here.count + elsewhere.count)
        case .queuedBytes: return queuedBytes
        case .storedBytes: return queuedBytes + max(0, here.retainedBytes + elsewhere.retainedBytes)
        case .devices, .publishesPerSecond, .requestBytesPerSecond: return nil
        }
    }
    /// The same as far as it is known: without the others' word what is here.
    private func shownUse(_ quota: Quota, of app: AppKey, now: Int64) -> Int {
        if let used = used(quota, of: app, now: now) { return used }
        let here = here(app)
        guard quota != .queuedMessages else { return max(0, here.count) }
        return max(0, here.bytes) + (quota == .storedBytes ? max(0, here.retainedBytes) : 0)
    }

    /// What this gateway has of these apps, for the one that adds up.
    package func queues(of apps: [AppKey]) -> [AppQueue] { apps.map(here) }

    /// What the other gateways have; it holds for `QueueLedger.silenceMilliseconds`.
    package mutating func hear(_ elsewhere: [AppQueue], now: Int64) {
        queuedElsewhere = Dictionary(elsewhere.map { ($0.app, $0) }) { $1 }
        heardAt = now
        awaitedAnswers = max(0, awaitedAnswers - 1)
    }

    /// Forgets every other app: one that is made anew under its name begins anew.
    package mutating func keep(where isKnown: (AppKey) -> Bool) {
        uses = uses.filter { isKnown($0.key) }
        totals = totals.filter { isKnown($0.key) || $0.value != .none }
    }

    // MARK: Calls

    /// Counts a call that asks for `publishes` messages, unless a bound is used up; then nothing of it is counted.
    ///
    /// The time is in milliseconds of one clock.
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

    /// Whether the app has as much in the store as it may; also for a broadcast, which no other bound refuses.
    package mutating func storeRefusal(app: AppKey, quotas: AppQuotas, now: Int64) -> QuotaRefusal? {
        for quota in Self.quotasOfStore {
            if let refusal = refusal(quota, of: app, quotas, now: now) { return refusal }
        }
        return nil
    }
    /// In the order in which they refuse: who has several used up is told of the longest wait.
    private static let quotasOfStore = Quota.allCases.filter(\.isOfStore).sorted { $0.roomSeconds > $1.roomSeconds }

    /// Whether a device may register that the app does not have yet: one more row that stays.
    package mutating func registrationRefusal(app: AppKey, quotas: AppQuotas, now: Int64) -> QuotaRefusal? {
        refusal(.storedBytes, of: app, quotas, now: now)
    }

    private mutating func refusal(_ quota: Quota, of app: AppKey, _ quotas: AppQuotas, now: Int64) -> QuotaRefusal? {
        // Without word from the others nothing is known of what there is.
        guard quotas[quota] > 0, let used = used(quota, of: app, now: now), used >= quotas[quota] else { return nil }
        uses[app, default: Use()][quota].refused += 1
        return QuotaRefusal(quota: quota, retryAfterSeconds: quota.roomSeconds)
    }

    // MARK: What there is

    /// What a part has now of all apps whose holdings are bound.
    package mutating func note(part: Int, _ holdings: [AppKey: QuotaHolding]) {
        if partsHere.insert(part).inserted { awaitedAnswers = Self.answersAfterMove }
        remove(part)
        for (app, holding) in holdings { totals[app, default: .none].add(holding, times: 1) }
        self.holdings[part] = holdings
    }

    /// A part is another gateway's now.
    package mutating func forget(part: Int) {
        if partsHere.remove(part) != nil { awaitedAnswers = Self.answersAfterMove }
        remove(part)
    }

    /// The first answer may have what its gateway told last before the move, the second has not.
    private static let answersAfterMove = 2

    private mutating func remove(_ part: Int) {
        for (app, holding) in holdings.removeValue(forKey: part) ?? [:] {
            totals[app, default: .none].add(holding, times: -1)
        }
    }

    /// What a part has connected of an app's by now.
    private mutating func note(part: Int, app: AppKey, connected: Int) {
        let change = connected - (holdings[part]?[app]?.devices ?? 0)
        holdings[part, default: [:]][app, default: .none].devices = connected
        totals[app, default: .none].devices += change
    }

    /// Whether one more device of a part may be welcomed, which has `connected` of the app's.
    package mutating func admitsDevice(app: AppKey, part: Int, connected: Int, quotas: AppQuotas) -> Bool {
        guard quotas[.devices] > 0 else { return true }
        note(part: part, app: app, connected: connected)
        guard devices(of: app) >= share(.devices, of: quotas) else { return true }
        uses[app, default: Use()][.devices].refused += 1
        return false
    }

    /// Whether the devices that a part has connected by now are more than may be: others were let in while their Hellos waited.
    ///
    /// The one that is too many counts no longer: another part's device may have its place.
    package mutating func hasSurplusDevice(app: AppKey, part: Int, connected: Int, quotas: AppQuotas) -> Bool {
        guard quotas[.devices] > 0 else { return false }
        note(part: part, app: app, connected: connected)
        guard devices(of: app) > share(.devices, of: quotas) else { return false }
        note(part: part, app: app, connected: max(0, connected - 1))
        uses[app, default: Use()][.devices].refused += 1
        return true
    }

    // MARK: Figures

    /// Every bound of an app, in order.
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

    /// What was refused since the last call.
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
