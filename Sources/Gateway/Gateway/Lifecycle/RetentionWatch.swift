package import MessageStore

/// Logs when request ids or traces are about to be removed before their day has passed, and when some were removed.
package struct RetentionWatch: Sendable {
    package enum Notice: Equatable, Sendable { case near, cut }

    private let name: String
    private let limitName: String
    private var isNear = false
    private var cutCount = 0

    package init(_ name: String, limitName: String) { (self.name, self.limitName) = (name, limitName) }

    /// Returns the changes since the last call.
    package mutating func notices(_ retention: StoreStatistics.Retention) -> [Notice] {
        var notices: [Notice] = []
        let share = Double(retention.byteCount) / Double(max(1, retention.byteLimit))
        if share >= 0.8, !isNear { notices.append(.near) }
        // Removing a period frees about 1/16, so the notice repeats only after the usage falls below 70 %.
        isNear = share >= (isNear ? 0.7 : 0.8)
        if retention.cutCount > cutCount { notices.append(.cut) }
        cutCount = retention.cutCount
        return notices
    }

    mutating func look(at retention: StoreStatistics.Retention, _ log: Log) {
        for notice in notices(retention) {
            switch notice {
            case .near:
                log.write(
                    .warning, .storeBudgetNear,
                    [
                        .name: .text(name), .key: .text("limits." + limitName), .bytes: LogValue(retention.byteCount),
                        .limit: LogValue(retention.byteLimit), .milliseconds: LogValue(retention.milliseconds),
                    ])
            case .cut:
                log.write(
                    .error, .storeBudgetCut,
                    [
                        .name: .text(name), .key: .text("limits." + limitName), .limit: LogValue(retention.byteLimit),
                        .count: LogValue(retention.cutCount), .milliseconds: LogValue(retention.cutMilliseconds),
                    ])
            }
        }
    }
}
