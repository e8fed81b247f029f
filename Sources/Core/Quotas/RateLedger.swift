// The cluster-wide counts of apps' rate limits, and the messages between gateways and the counter.

package import Delivery
package import Wire

package struct RateKey: Hashable, Sendable, Codable {
    package var app: AppKey
    package var kind: RateKind
    package init(app: AppKey, kind: RateKind) { (self.app, self.kind) = (app, kind) }
}

/// The uses of one UTC minute or day, by its number since 1970.
package struct RateCount: Sendable, Equatable, Codable {
    package static let minute: Int64 = 60_000
    package static let day: Int64 = 86_400_000

    package var span: Int64
    package var used: Int
    package init(span: Int64, used: Int) { (self.span, self.used) = (span, used) }
}

/// A gateway's report: the last known uses of all gateways, and its own uses since then.
package struct RateReport: Sendable, Equatable, Codable {
    package var key: RateKey
    package var minute: RateCount
    package var inMinute: Int
    package var day: RateCount
    package var inDay: Int

    package init(key: RateKey, minute: RateCount, inMinute: Int, day: RateCount, inDay: Int) {
        (self.key, self.minute, self.inMinute, self.day, self.inDay) = (key, minute, inMinute, day, inDay)
    }

    /// Whether the numbers are in a range that can be added safely, whichever gateway sent them.
    package var isSound: Bool { [minute.used, inMinute, day.used, inDay].allSatisfy { 0...Int(Int32.max) ~= $0 } }
}

package struct RateTotal: Sendable, Equatable, Codable {
    package var key: RateKey
    package var minute: RateCount
    package var day: RateCount

    package init(key: RateKey, minute: RateCount, day: RateCount) {
        (self.key, self.minute, self.day) = (key, minute, day)
    }

    package var isSound: Bool { 0...Int(Int32.max) ~= minute.used && 0...Int(Int32.max) ~= day.used }
}

/// The counter: the uses of all gateways, as they reported them.
///
/// The owner of partition 0 is the counter. Uses of the day are stored as rows; uses of the minute are not. A new counter
/// restores the minute's uses from the reports, each of which contains the previous counter's last reply. No acknowledged use is
/// lost, and unacknowledged uses are sent again. If a reply is lost, its report is counted twice.
package struct RateLedger: Sendable {
    private struct Use: Sendable {
        var minute = RateCount(span: 0, used: 0)
        var day = RateCount(span: 0, used: 0)
    }

    private var uses: [RateKey: Use] = [:]

    package init() {}

    /// Counts a gateway's reports.
    ///
    /// - Returns: The uses of all gateways, for each report.
    package mutating func take(_ reports: [RateReport], now: GatewayTime) -> [RateTotal] {
        reports.map { report in
            var use = uses[report.key] ?? Use()
            Self.add(report.inMinute, to: &use.minute, known: report.minute, now / RateCount.minute)
            Self.add(report.inDay, to: &use.day, known: report.day, now / RateCount.day)
            // A query alone must not create an entry.
            if use.minute.used > 0 || use.day.used > 0 { uses[report.key] = use }
            return RateTotal(key: report.key, minute: use.minute, day: use.day)
        }
    }

    /// Adds uses of the current minute or day by the counter's clock.
    ///
    /// Uses of another minute or day, from a gateway with a different clock, are ignored.
    private static func add(_ count: Int, to use: inout RateCount, known: RateCount, _ now: Int64) {
        if now > use.span { use = RateCount(span: now, used: 0) }
        guard known.span == use.span else { return }
        use.used = min(Int(Int32.max), max(use.used, known.used) + count)
    }

    package mutating func restore(_ kind: RateKind, app: AppKey, day: Int64, count: Int) {
        let day = RateCount(span: day, used: min(Int(Int32.max), max(0, count)))
        uses[RateKey(app: app, kind: kind)] = Use(day: day)
    }

    /// Returns the counts that must survive a restart: today's uses of kinds with a daily limit.
    package func dayCounts() -> [(app: AppKey, kind: RateKind, day: Int64, count: Int)] {
        uses.filter { $0.key.kind.isBoundedByDay }
            .map { ($0.key.app, $0.key.kind, $0.value.day.span, $0.value.day.used) }
    }

    /// Removes uses older than the previous day; returns the keys of those stored as rows.
    package mutating func takeOld(now: GatewayTime) -> [(app: AppKey, kind: RateKind)] {
        let old = uses.filter { use in
            use.value.day.span < now / RateCount.day - 1 && use.value.minute.span < now / RateCount.minute - 1
        }
        for key in old.keys { uses[key] = nil }
        return old.keys.filter(\.kind.isBoundedByDay).map { ($0.app, $0.kind) }
    }

    package var totals: [RateTotal] {
        uses.map { RateTotal(key: $0.key, minute: $0.value.minute, day: $0.value.day) }
    }
}
