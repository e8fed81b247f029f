/// The identity of a store's history: all numbers assigned since its content was last rolled back.
///
/// After a rollback the store assigns numbers again that devices and consumers have seen with other messages. Each rollback
/// therefore starts another history, and numbers of another history settle nothing (docs/Semantics.md, "Histories").
package struct StoreHistory: Hashable, Sendable {
    /// Random and never 0.
    package let id: UInt64
    /// The beginning of the history in microseconds since 1970; 0 for a store that was never rolled back.
    package let began: UInt64

    /// The maximum of `began`, so that cursors of feed items stay below 2⁵³.
    ///
    /// JSON readers represent numbers up to 2⁵³ exactly.
    private static let latest: UInt64 = 1 << 52

    /// - Parameters:
    ///   - id: 0 is replaced by 1.
    ///   - began: microseconds since 1970, at most `latest`.
    package init(id: UInt64, began: UInt64) { (self.id, self.began) = (max(id, 1), min(began, Self.latest)) }

    package init(ofNewStore id: UInt64) { self.init(id: id, began: 0) }

    /// Returns the history that follows this one.
    ///
    /// - Parameters:
    ///   - id: random.
    ///   - now: the wall clock in milliseconds since 1970.
    /// - Returns: a history that begins later than this one, whatever the clock shows.
    package func successor(id: UInt64, now: Int64) -> StoreHistory {
        let clock = UInt64(clamping: now).multipliedReportingOverflow(by: 1_000)
        let latest = clock.overflow ? Self.latest : clock.partialValue
        return StoreHistory(id: id, began: max(latest, began + 1_000_000, 1))
    }

    package var hasGoneBack: Bool { began > 0 }

    /// Returns the queue epoch for a device's Welcome, derived from the epoch in the device's row.
    ///
    /// A store that was never rolled back uses the row's epoch unchanged.
    package func epoch(_ stored: UInt64) -> UInt64 {
        guard hasGoneBack else { return stored }
        let mixed = stored ^ id
        return mixed == 0 ? id : mixed
    }

    /// The count of broadcast numbers that an app skips if the log found at startup belongs to a different history.
    ///
    /// The log may have lost broadcasts that devices have settled, so their numbers must not be used again. The count is 0 in a
    /// store that was never rolled back. Otherwise it is 4,096, plus 64 for each minute of `began` within a cycle of four hours.
    /// A second rollback within a cycle thus also skips the numbers used since the first. The count stays below 20,000 because a
    /// device's row has 16 bits for the broadcasts evaluated past the settled number.
    var broadcastStep: UInt64 { hasGoneBack ? 4_096 + began / 60_000_000 % 240 * 64 : 0 }

    // MARK: Cursors of feeds

    /// Returns the cursor of a feed item, which is unique across the store's histories.
    package func cursor(_ number: UInt64) -> UInt64 { number &+ began }

    /// Returns the stored number of a consumer's cursor; `nil` for a cursor of an earlier history.
    ///
    /// 0 is the position before the first item in every history.
    package func number(_ cursor: UInt64) -> UInt64? {
        if cursor == 0 { return 0 }
        return cursor >= began ? cursor - began : nil
    }
}

extension StoreHistory: CustomStringConvertible {
    /// The stored form: sixteen hex digits, a colon and the beginning.
    package var description: String {
        let digits = String(id, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits + ":\(began)"
    }

    /// Parses `description`; `nil` for anything else.
    package init?(_ text: some StringProtocol) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].utf8.count == 16, let id = UInt64(parts[0], radix: 16), id > 0,
            let began = UInt64(parts[1]), began <= Self.latest
        else { return nil }
        self.init(id: id, began: began)
    }
}
