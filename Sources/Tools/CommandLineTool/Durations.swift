/// Parsing of times such as `90s`, `2h`, `1d` and `500ms`; a bare number is in milliseconds.
enum Durations {
    private static let units: [(String, Int64)] = [
        ("ms", 1), ("s", 1_000), ("min", 60_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
    ]

    /// Returns milliseconds, or `nil` for anything else and on overflow.
    static func milliseconds(_ text: String) -> Int64? {
        if let number = Int64(text) { return number }
        for (unit, factor) in units where text.hasSuffix(unit) {
            guard let number = Int64(text.dropLast(unit.count)) else { continue }
            let (product, isTooLarge) = number.multipliedReportingOverflow(by: factor)
            return isTooLarge ? nil : product
        }
        return nil
    }
}
