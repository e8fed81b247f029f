/// Times as people write them: `90s`, `2h`, `1d`, `500ms`; a number alone is milliseconds.
enum Durations {
    private static let units: [(String, Int64)] = [
        ("ms", 1), ("s", 1_000), ("min", 60_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
    ]

    /// `nil` for anything else, and for what no number of milliseconds holds.
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

/// The word that a caller may have meant.
enum Suggestion {
    /// The nearest of the words, if it is near enough to be a slip of the fingers.
    static func nearest(to word: String, among words: some Sequence<String>) -> String? {
        let bound = word.count < 5 ? 1 : 2
        let ranked = words.map { (word: $0, distance: distance(word, $0)) }
        let best = ranked.min { ($0.distance, $0.word) < ($1.distance, $1.word) }
        guard let best, best.distance <= bound, best.distance > 0 else { return nil }
        return best.word
    }

    /// Letters to put in, leave out, change, or exchange with their neighbour.
    static func distance(_ left: String, _ right: String) -> Int {
        let (a, b) = (Array(left), Array(right))
        // Only words of about one length are compared.
        guard abs(a.count - b.count) <= 2, a.count < 64 else { return .max }
        var rows = [Array(0...b.count)]
        for i in 0..<a.count {
            var row = [i + 1]
            for j in 0..<b.count {
                var cost = min(rows[i][j + 1] + 1, row[j] + 1, rows[i][j] + (a[i] == b[j] ? 0 : 1))
                if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { cost = min(cost, rows[i - 1][j - 1] + 1) }
                row.append(cost)
            }
            rows.append(row)
        }
        return rows[a.count][b.count]
    }
}
