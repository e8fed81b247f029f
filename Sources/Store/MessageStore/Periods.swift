internal import Delivery

/// A time span of request or trace rows, stored in one column family and dropped as a whole.
///
/// Request ids and traces have separate periods, so that many traces do not displace request ids. A period ends after four hours
/// or when it has used its share of the budget; the next one begins at that time. One day later every row in it is expired.
struct Period: Hashable, Sendable {
    enum Kind: String, Sendable, CaseIterable {
        /// Rows that make a publish idempotent or map a single push to its message.
        case requests
        case traces

        init(of table: StoreKey.Table) { self = table == .trace ? .traces : .requests }
    }

    var kind: Kind
    /// The sequence number of the period; both kinds share one sequence.
    var number: Int64
    /// The gateway time in milliseconds; `undated` if unknown.
    ///
    /// A period gets no rows after the next period of its kind has begun. The end of a period is therefore the begin of its
    /// successor. A period with a wrong date still ends with the next one.
    var begin: Int64

    static let undated = Int64.max

    var name: String {
        "\(kind.rawValue)-\(number)-\(begin == Self.undated ? "undated" : "\(begin)")"
    }

    init(_ kind: Kind, number: Int64, begin: Int64) { (self.kind, self.number, self.begin) = (kind, number, begin) }

    init?(name: String) {
        let words = name.split(separator: "-", maxSplits: 2, omittingEmptySubsequences: false)
        guard words.count == 3, let kind = Kind(rawValue: String(words[0])), let number = Int64(words[1]),
            let begin = words[2] == "undated" ? Self.undated : Int64(words[2])
        else { return nil }
        self.init(kind, number: number, begin: begin)
    }

    /// Returns whether the period takes no more rows: it is old enough, too large, or begins in the future.
    func isFull(now: Int64, byteCount: Int, budget: Int) -> Bool {
        begin > now || now - begin >= Limits.periodMilliseconds || byteCount >= budget / Limits.periodsInBudget
    }
}

extension [Period] {
    /// Returns the latest time at which the period at `index` can have got a row; `nil` while it takes rows.
    ///
    /// The result is the earliest begin of a later period. Dates that are out of order stem from a wrong clock.
    func end(at index: Int) -> Int64? {
        let kind = self[index].kind
        let later = self[(index + 1)...].filter { $0.kind == kind }
        return later.map(\.begin).min().flatMap { $0 == Period.undated ? nil : $0 }
    }
}
