package import MessageStore

/// Tells the operator that request ids or traces will soon go early, and that some did.
package struct RetentionWatch: Sendable {
    /// What stands in the log.
    package enum Notice: Equatable, Sendable { case near, cut }

    private let name: String
    private let limitName: String
    private var isNear = false
    private var cutCount = 0

    package init(_ name: String, limitName: String) { (self.name, self.limitName) = (name, limitName) }

    /// What is new since the last call.
    package mutating func notices(_ retention: StoreStatistics.Retention) -> [Notice] {
        var notices: [Notice] = []
        let share = Double(retention.byteCount) / Double(max(1, retention.byteLimit))
        if share >= 0.8, !isNear { notices.append(.near) }
        // A period that went leaves a sixteenth less: the next one is no news.
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
