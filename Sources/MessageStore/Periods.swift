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
        /// Both, as formats up to 5 had them; rows are read there, and none are written.
        case mixed = "ephemeral"

        init(of table: StoreKey.Table) { self = table == .trace ? .traces : .requests }

        /// Where rows of this kind may lie.
        func holds(_ kind: Kind) -> Bool { self == kind || self == .mixed }
    }

    var kind: Kind
    /// Periods in the order in which they were written; those of older formats are negative.
    var number: Int64
    /// Gateway time in milliseconds; `undated` when it was not known.
    ///
    /// No row written before a later period of the kind began is in that one. So the successor's begin is the end of a
    /// period: one whose date is wrong ends with the next one all the same.
    var begin: Int64

    static let undated = Int64.max

    var name: String {
        switch kind {
        case .mixed: "\(kind.rawValue)-\(begin)"
        case .requests, .traces: "\(kind.rawValue)-\(number)-\(begin == Self.undated ? "undated" : "\(begin)")"
        }
    }

    init(_ kind: Kind, number: Int64, begin: Int64) { (self.kind, self.number, self.begin) = (kind, number, begin) }

    /// The period that a column family's name tells; `nil` for other families.
    init?(name: String) {
        let words = name.split(separator: "-", maxSplits: 2, omittingEmptySubsequences: false)
        guard let first = words.first, let kind = Kind(rawValue: String(first)) else { return nil }
        if kind == .mixed {
            guard let begin = Int64(name.dropFirst(first.utf8.count + 1)) else { return nil }
            // `ordered` gives it its number, since that needs all of them.
            self.init(kind, number: 0, begin: begin)
        } else {
            guard words.count == 3, let number = Int64(words[1]) else { return nil }
            guard let begin = words[2] == "undated" ? Self.undated : Int64(words[2]) else { return nil }
            self.init(kind, number: number, begin: begin)
        }
    }

    /// Puts the periods of a folder in order and numbers those of older formats: they were all written before the others.
    static func ordered(_ periods: [Period]) -> [Period] {
        var mixed = periods.filter { $0.kind == .mixed }.sorted { $0.begin < $1.begin }
        for index in mixed.indices { mixed[index].number = Int64(index - mixed.count) }
        return mixed + periods.filter { $0.kind != .mixed }.sorted { $0.number < $1.number }
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
        let later = self[(index + 1)...].filter { kind == .mixed || $0.kind == kind }
        return later.map(\.begin).min().flatMap { $0 == Period.undated ? nil : $0 }
    }
}
