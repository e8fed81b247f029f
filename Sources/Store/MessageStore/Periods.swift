internal import Delivery

/// What request and trace rows lie in until they are dropped together: a column family.
///
/// Request ids and traces have periods of their own, so that many traces cost no request id. A period is closed when it is
/// four hours old or has its share of the budget; the one after it begins at that moment. A day after that every row in it
/// is older than rows are kept.
struct Period: Hashable, Sendable {
    enum Kind: String, Sendable, CaseIterable {
        /// What makes a publish idempotent, and which message a single push became.
        case requests
        case traces

        init(of table: StoreKey.Table) { self = table == .trace ? .traces : .requests }
    }

    var kind: Kind
    /// Periods in the order in which they were written.
    var number: Int64
    /// Gateway time in milliseconds; `undated` when it was not known.
    ///
    /// No row written before a later period of the kind began is in that one. So the successor's begin is the end of a
    /// period: one whose date is wrong ends with the next one all the same.
    var begin: Int64

    static let undated = Int64.max

    var name: String {
        "\(kind.rawValue)-\(number)-\(begin == Self.undated ? "undated" : "\(begin)")"
    }

    init(_ kind: Kind, number: Int64, begin: Int64) { (self.kind, self.number, self.begin) = (kind, number, begin) }

    /// The period that a column family's name tells; `nil` for other families.
    init?(name: String) {
        let words = name.split(separator: "-", maxSplits: 2, omittingEmptySubsequences: false)
        guard words.count == 3, let kind = Kind(rawValue: String(words[0])), let number = Int64(words[1]),
            let begin = words[2] == "undated" ? Self.undated : Int64(words[2])
        else { return nil }
        self.init(kind, number: number, begin: begin)
    }

    /// Whether a period takes no more rows, since it is old enough or its begin lies ahead of the clock.
    func isFull(now: Int64, byteCount: Int, budget: Int) -> Bool {
        begin > now || now - begin >= Limits.periodMilliseconds || byteCount >= budget / Limits.periodsInBudget
    }
}

extension [Period] {
    /// When the last row of the period at `index` was written at the latest; `nil` while it takes rows.
    ///
    /// The earliest date of a later one: where dates disagree, the clock was wrong when the later ones of them were given.
    func end(at index: Int) -> Int64? {
        let kind = self[index].kind
        let later = self[(index + 1)...].filter { $0.kind == kind }
        return later.map(\.begin).min().flatMap { $0 == Period.undated ? nil : $0 }
    }
}
