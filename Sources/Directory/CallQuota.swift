package import Delivery
package import Wire

/// Calls that Getui counts per app.
package enum CountedCall: UInt8, Sendable, CaseIterable, Codable {
    /// Tags of many devices are given or taken.
    case tagChange
    /// The tags of a device are asked for.
    case tagQuery
}

/// How many calls of one kind an app may make; 0: any number.
package struct CallQuota: Sendable, Equatable {
    package var perMinute: Int
    package var perDay: Int
    package init(perMinute: Int, perDay: Int) { (self.perMinute, self.perDay) = (perMinute, perDay) }
}

package enum QuotaVerdict: UInt8, Sendable, Codable { case granted, minuteExceeded, dayExceeded }

/// The calls of this minute and this day (UTC), by app and kind.
///
/// Refused calls are not counted. Bounded by the number of apps.
package struct CallCounts: Sendable {
    private struct Key: Hashable {
        var app: AppKey
        var call: CountedCall
    }
    private struct Count {
        var minute: Int64 = -1
        var inMinute = 0
        var day: Int64 = -1
        var inDay = 0
    }

    private var counts: [Key: Count] = [:]

    package init() {}

    package mutating func charge(_ app: AppKey, _ call: CountedCall, _ quota: CallQuota, now: GatewayTime)
        -> QuotaVerdict
    {
        let key = Key(app: app, call: call)
        var count = counts[key] ?? Count()
        let (minute, day) = (now / 60_000, now / 86_400_000)
        if count.minute != minute { (count.minute, count.inMinute) = (minute, 0) }
        if count.day != day { (count.day, count.inDay) = (day, 0) }
        if quota.perDay > 0, count.inDay >= quota.perDay { return .dayExceeded }
        if quota.perMinute > 0, count.inMinute >= quota.perMinute { return .minuteExceeded }
        count.inMinute += 1
        count.inDay += 1
        counts[key] = count
        return .granted
    }
}
