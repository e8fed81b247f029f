internal import Configuration
package import Quotas
package import PushAPI

/// The limits of an app's pushes: `apps[].push`.
package struct PushConfiguration: Sendable, Equatable {
    package var defaultTTL = Limits.defaultTimeToLive
    package var longestTTL = Limits.timeToLive
    package var transmissionCharacters = Limits.transmissionCharacterCount
    package var scheduleDays = Int(ScheduleRules.horizon / 86_400_000)
    package var timestampToleranceSeconds = Int(Limits.timestampTolerance / 1_000)
    package var bounds = CallBounds()
    package var rates = RateLimits()

    package init() {}

    /// Reads the object; missing keys keep their defaults.
    init(_ object: ConfigurationObject) {
        if let value = object.integer("longestTtlMilliseconds", in: 1_000...2_592_000_000) { longestTTL = value }
        if let value = object.integer("defaultTtlMilliseconds", in: 1_000...2_592_000_000) { defaultTTL = value }
        if defaultTTL > longestTTL {
            object.report(
                "defaultTtlMilliseconds", "\(defaultTTL) exceeds longestTtlMilliseconds, which is \(longestTTL)")
        }
        Self.read(object, "transmissionCharacters", 1...16_384, &transmissionCharacters)
        Self.read(object, "batchItems", 1...1_000, &bounds.batchItems)
        Self.read(object, "listTargets", 1...1_800, &bounds.listTargets)
        Self.read(object, "reportedTasks", 1...1_000, &bounds.reportedTasks)
        Self.read(object, "scheduleDays", 1...365, &scheduleDays)
        Self.read(object, "timestampToleranceSeconds", 1...86_400, &timestampToleranceSeconds)
        let most: ClosedRange<Int64> = 0...1_000_000_000
        Self.read(object, "authenticationsPerMinute", most, &rates.authenticationsPerMinute)
        Self.read(object, "callsPerMinute", most, &rates.callsPerMinute)
        Self.read(object, "receiptsPerMinute", most, &rates.receiptsPerMinute)
        Self.read(object, "receiptsPerMinuteOfNetwork", most, &rates.receiptsPerMinuteOfNetwork)
        Self.read(object, "listsPerMinute", most, &rates.listsPerMinute)
        Self.read(object, "listsPerDay", most, &rates.listsPerDay)
        Self.read(object, "broadcastsPerMinute", most, &rates.broadcastsPerMinute)
        Self.read(object, "broadcastsPerDay", most, &rates.broadcastsPerDay)
        Self.read(object, "fastTagBroadcastsPerMinute", most, &rates.fastTagBroadcastsPerMinute)
        Self.read(object, "fastTagBroadcastsPerDay", most, &rates.fastTagBroadcastsPerDay)
        object.finish()
    }

    private static func read(
        _ object: ConfigurationObject, _ key: String, _ range: ClosedRange<Int64>, _ value: inout Int
    ) {
        if let number = object.integer(key, in: range) { value = Int(number) }
    }
}

extension AppQuotas {
    /// Reads `apps[].quotas`; 0 or a missing key means unlimited.
    init(_ object: ConfigurationObject) {
        self.init()
        for quota in Quota.allCases {
            if let number = object.integer(quota.key, in: 0...quota.largest) { self[quota] = Int(number) }
        }
        object.finish()
    }
}
