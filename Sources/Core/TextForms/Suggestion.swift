package enum Suggestion {
    /// Returns the closest word within an edit distance of 1 for up to four letters and 2 for longer words, ignoring case.
    package static func nearest(to word: String, among words: some Sequence<String>) -> String? {
        let bound = word.count < 5 ? 1 : 2
        let ranked = words.map { (word: $0, distance: distance(word.lowercased(), $0.lowercased())) }
        let best = ranked.min { ($0.distance, $0.word) < ($1.distance, $1.word) }
        guard let best, best.distance <= bound, best.word != word else { return nil }
        return best.word
    }

    /// Returns the end of an error message, "; did you mean X?", or an empty string.
    package static func hint(for word: String, among words: some Sequence<String>) -> String {
        nearest(to: word, among: words).map { "; did you mean \($0)?" } ?? ""
    }

    /// Returns the edit distance, where exchanging two adjacent letters counts as one edit.
    package static func distance(_ left: String, _ right: String) -> Int {
        let (a, b) = (Array(left), Array(right))
        // Words whose lengths differ by more than two are never suggested.
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
