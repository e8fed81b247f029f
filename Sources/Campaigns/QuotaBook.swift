// What an app may have and do in all, beside its rates by the minute and by the day: so that one app does not crowd out others.

package import Wire

/// What is bound; the raw value is the key in the configuration, and what refusals name.
package enum Quota: String, Sendable, CaseIterable, Codable {
    /// Devices connected at once.
    case devices
    /// Messages that calls and frames ask for, one for each device named, whether or not they are accepted.
    case publishesPerSecond
    /// Bodies of these calls.
    case requestBytesPerSecond
    /// Messages that are accepted and have not ended.
    case queuedMessages

    /// A rate is used up in a moment and there again in the next; the others are numbers of what there is.
    package var isRate: Bool { self == .publishesPerSecond || self == .requestBytesPerSecond }
}

/// An app's bounds; 0: none.
package struct AppQuotas: Sendable, Equatable {
    private var limits = Array(repeating: 0, count: Quota.allCases.count)

    package init() {}

    package subscript(quota: Quota) -> Int {
        get { limits[Self.place(quota)] }
        set { limits[Self.place(quota)] = newValue }
    }

    package var isEmpty: Bool { limits.allSatisfy { $0 == 0 } }
    /// Some bound is on what the shards have.
    package var boundsHoldings: Bool { self[.devices] > 0 || self[.queuedMessages] > 0 }

    static func place(_ quota: Quota) -> Int {
        switch quota {
        case .devices: 0
        case .publishesPerSecond: 1
        case .requestBytesPerSecond: 2
        case .queuedMessages: 3
        }
    }
}

/// Which bound refused a call, and when to come again.
package struct QuotaRefusal: Error, Sendable, Equatable {
    package var quota: Quota
    package var retryAfterSeconds: Int
    package init(quota: Quota, retryAfterSeconds: Int) {
        (self.quota, self.retryAfterSeconds) = (quota, retryAfterSeconds)
    }

    /// For a person.
    package var reason: String { "the app's quota \(quota.rawValue) is used up, retry in \(retryAfterSeconds) s" }
}

/// One bound of an app, and how much of it is used.
package struct QuotaUse: Sendable, Equatable {
    package var quota: Quota
    package var limit: Int
    /// Of a rate: in the last whole second.
    package var used: Int
    /// Refusals since the start.
    package var refused: Int
}

/// What the apps with quotas have and do, as one gateway knows it.
///
/// **Rates** are exact over all loops, with a second's worth at once; the last call of a second may ask for more than is left, and the
/// app pays for it before its next one. **Numbers of what there is** come from the parts, which tell theirs every 50 ms: so a gateway
/// passes such a bound by what all parts accept in that time. Of several gateways each grants an even share; what is queued is only
/// known where one gateway has all parts.
package struct QuotaBook: Sendable {
    private struct Use: Sendable {
        /// When what was granted is paid for, in nanoseconds of the caller's clock.
        var paidAt: [Quota: Int64] = [:]
        /// What was granted in a second, and in the one before.
        var second: Int64 = 0
        var granted: [Quota: Int] = [:]
        var before: [Quota: Int] = [:]
        /// What each part has.
        var holdings: [Int: (devices: Int, queued: Int)] = [:]
        var refused: [Quota: Int] = [:]
        var told: [Quota: Int] = [:]

        mutating func turn(to now: Int64) {
            guard now / 1_000 > second else { return }
            before = now / 1_000 == second + 1 ? granted : [:]
            (second, granted) = (now / 1_000, [:])
        }

        var devices: Int { holdings.values.reduce(0) { $0 + $1.devices } }
        /// A part may have ended what another had accepted before a restart.
        var queued: Int { max(0, holdings.values.reduce(0) { $0 + $1.queued }) }
    }

    private static let second: Int64 = 1_000_000_000
    /// After how long a caller looks again whether there is room.
    private static let roomSeconds = 5

    private var uses: [AppKey: Use] = [:]
    /// The gateways that share the bounds, this one included.
    package var gatewayCount = 1

    package init() {}

    private func share(_ limit: Int) -> Int { (limit + gatewayCount - 1) / gatewayCount }

    // MARK: Calls

    /// Counts a call that asks for `publishes` messages, unless a bound is used up; then nothing of it is counted.
    ///
    /// The time is in milliseconds of one clock.
    package mutating func take(
        app: AppKey, publishes: Int, byteCount: Int, quotas: AppQuotas, now: Int64
    ) -> QuotaRefusal? {
        var use = uses[app] ?? Use()
        defer { uses[app] = use }
        use.turn(to: now)
        if let refusal = refusal(use, quotas, now) {
            use.refused[refusal.quota, default: 0] += 1
            return refusal
        }
        for (quota, amount) in [(Quota.publishesPerSecond, publishes), (.requestBytesPerSecond, byteCount)]
        where quotas[quota] > 0 {
            // No call asks for so much that the product would not fit.
            let price = Self.second * Int64(min(amount, 1 << 32)) / Int64(share(quotas[quota]))
            use.paidAt[quota] = max(use.paidAt[quota] ?? 0, now * 1_000_000) + price
            use.granted[quota, default: 0] += amount
        }
        return nil
    }

    private func refusal(_ use: Use, _ quotas: AppQuotas, _ now: Int64) -> QuotaRefusal? {
        if quotas[.queuedMessages] > 0, gatewayCount == 1, use.queued >= quotas[.queuedMessages] {
            return QuotaRefusal(quota: .queuedMessages, retryAfterSeconds: Self.roomSeconds)
        }
        for quota in Quota.allCases where quota.isRate && quotas[quota] > 0 {
            let ahead = (use.paidAt[quota] ?? 0) - now * 1_000_000
            guard ahead >= Self.second else { continue }
            // Until less than a second's worth is unpaid.
            return QuotaRefusal(quota: quota, retryAfterSeconds: max(1, Int(ahead / Self.second)))
        }
        return nil
    }

    // MARK: What there is

    /// What a part has of an app now.
    package mutating func note(app: AppKey, part: Int, devices: Int, queued: Int) {
        uses[app, default: Use()].holdings[part] = (devices, queued)
    }

    /// A part is another gateway's now.
    package mutating func forget(part: Int) {
        for app in uses.keys { uses[app]?.holdings[part] = nil }
    }

    /// Whether one more device of a part may be welcomed, which has `connected` of the app's.
    package mutating func admitsDevice(app: AppKey, part: Int, connected: Int, quotas: AppQuotas) -> Bool {
        guard quotas[.devices] > 0 else { return true }
        var use = uses[app] ?? Use()
        defer { uses[app] = use }
        use.holdings[part] = (connected, use.holdings[part]?.queued ?? 0)
        guard use.devices >= share(quotas[.devices]) else { return true }
        use.refused[.devices, default: 0] += 1
        return false
    }

    // MARK: Figures

    /// Every bound of an app, in order.
    package func usage(of app: AppKey, quotas: AppQuotas, now: Int64) -> [QuotaUse] {
        var use = uses[app] ?? Use()
        use.turn(to: now)
        return Quota.allCases.filter { quotas[$0] > 0 }.map { quota in
            let used =
                switch quota {
                case .devices: use.devices
                case .queuedMessages: use.queued
                case .publishesPerSecond, .requestBytesPerSecond: use.before[quota] ?? 0
                }
            return QuotaUse(quota: quota, limit: quotas[quota], used: used, refused: use.refused[quota] ?? 0)
        }
    }

    /// What was refused since the last call.
    package mutating func takeReport() -> [(app: AppKey, quota: Quota, count: Int)] {
        var report: [(app: AppKey, quota: Quota, count: Int)] = []
        for (app, use) in uses where use.refused != use.told {
            for quota in Quota.allCases {
                let count = (use.refused[quota] ?? 0) - (use.told[quota] ?? 0)
                if count > 0 { report.append((app, quota, count)) }
            }
            uses[app]?.told = use.refused
        }
        return report
    }
}
