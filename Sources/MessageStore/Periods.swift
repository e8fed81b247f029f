/// Periods of request and trace rows, named by the time at which they begin, in milliseconds since 1970.
enum Periods {
    static func current(_ now: Int64) -> Int64 { now - modulo(now, Limits.periodMilliseconds) }

    /// When every row of a period is older than rows are kept.
    static func isOver(_ period: Int64, now: Int64) -> Bool {
        now >= period + Limits.periodMilliseconds + Limits.ephemeralMilliseconds
    }

    private static func modulo(_ value: Int64, _ divisor: Int64) -> Int64 {
        let rest = value % divisor
        return rest < 0 ? rest + divisor : rest
    }
}
