// What all gateways of a cluster have used of their apps' rates; and what they tell each other of it.

package import Delivery
package import Wire

/// What is counted for itself.
package struct RateKey: Hashable, Sendable, Codable {
    package var app: AppKey
    package var kind: RateKind
    package init(app: AppKey, kind: RateKind) { (self.app, self.kind) = (app, kind) }
}

/// Uses of one minute or one day, by its number since 1970 in UTC.
package struct RateCount: Sendable, Equatable, Codable {
    package static let minute: Int64 = 60_000
    package static let day: Int64 = 86_400_000

    package var span: Int64
    package var used: Int
    package init(span: Int64, used: Int) { (self.span, self.used) = (span, used) }
}

/// What a gateway tells the counter: what it knew all gateways had used, and what it has used itself since.
package struct RateReport: Sendable, Equatable, Codable {
    package var key: RateKey
    package var minute: RateCount
    package var inMinute: Int
    package var day: RateCount
    package var inDay: Int

    package init(key: RateKey, minute: RateCount, inMinute: Int, day: RateCount, inDay: Int) {
        (self.key, self.minute, self.inMinute, self.day, self.inDay) = (key, minute, inMinute, day, inDay)
    }

    /// Its numbers can be added up, whatever gateway sent them.
    package var isSound: Bool { [minute.used, inMinute, day.used, inDay].allSatisfy { 0...Int(Int32.max) ~= $0 } }
}

/// The counter's answer: what all gateways have used.
package struct RateTotal: Sendable, Equatable, Codable {
    package var key: RateKey
    package var minute: RateCount
    package var day: RateCount

    package init(key: RateKey, minute: RateCount, day: RateCount) {
        (self.key, self.minute, self.day) = (key, minute, day)
    }

    package var isSound: Bool { 0...Int(Int32.max) ~= minute.used && 0...Int(Int32.max) ~= day.used }
}

/// The counter: what all gateways have used, as they reported it.
///
/// It is the owner of part 0 that counts. The day's uses are rows; a minute's are not. A counter that has just begun
/// learns them from the reports, each of which says what the one before had told: so nothing that a gateway was told of is
/// forgotten, and what was not answered comes again. A report whose answer was lost is counted twice.
package struct RateLedger: Sendable {
    private struct Use: Sendable {
        var minute = RateCount(span: 0, used: 0)
        var day = RateCount(span: 0, used: 0)
    }

    private var uses: [RateKey: Use] = [:]

    package init() {}

    /// Takes a gateway's reports in.
    ///
    /// - Returns: what all have used, for each report.
    package mutating func take(_ reports: [RateReport], now: GatewayTime) -> [RateTotal] {
        reports.map { report in
            var use = uses[report.key] ?? Use()
            Self.add(report.inMinute, to: &use.minute, known: report.minute, now / RateCount.minute)
            Self.add(report.inDay, to: &use.day, known: report.day, now / RateCount.day)
            // A question alone leaves no entry behind.
            if use.minute.used > 0 || use.day.used > 0 { uses[report.key] = use }
            return RateTotal(key: report.key, minute: use.minute, day: use.day)
        }
    }

    /// The counter's own clock says which minute it is: uses of another one, by a clock a little off, are left out.
    private static func add(_ count: Int, to use: inout RateCount, known: RateCount, _ now: Int64) {
        if now > use.span { use = RateCount(span: now, used: 0) }
        guard known.span == use.span else { return }
        use.used = min(Int(Int32.max), max(use.used, known.used) + count)
    }

    /// Takes over what was counted before a restart.
    package mutating func restore(_ kind: RateKind, app: AppKey, day: Int64, count: Int) {
        let day = RateCount(span: day, used: min(Int(Int32.max), max(0, count)))
        uses[RateKey(app: app, kind: kind)] = Use(day: day)
    }

    /// What must survive a restart: the day's uses of what is bounded by the day.
    package func dayCounts() -> [(app: AppKey, kind: RateKind, day: Int64, count: Int)] {
        uses.filter { $0.key.kind.isBoundedByDay }
            .map { ($0.key.app, $0.key.kind, $0.value.day.span, $0.value.day.used) }
    }

    /// Forgets uses of days before the last one; returns whose day's uses have rows.
    package mutating func takeOld(now: GatewayTime) -> [(app: AppKey, kind: RateKind)] {
        let old = uses.filter { use in
            use.value.day.span < now / RateCount.day - 1 && use.value.minute.span < now / RateCount.minute - 1
        }
        for key in old.keys { uses[key] = nil }
        return old.keys.filter(\.kind.isBoundedByDay).map { ($0.app, $0.kind) }
    }

    /// All that is counted, as a gateway is told of it.
    package var totals: [RateTotal] {
        uses.map { RateTotal(key: $0.key, minute: $0.value.minute, day: $0.value.day) }
    }
}
