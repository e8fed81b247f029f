// Rows between an overlay and their groups. An overlay gives rows of many groups at once (a collection), and a server that
// does not answer has some of them wait. A group's rows go to it in the order in which they came. The log has an entry for
// as long as a group waits for a row of it, or of an entry before it.

internal import Delivery

struct HeldRows {
    private struct Collection {
        /// The last entry of the log that it has rows of.
        var number: UInt64
        var groups: [Int: [SpilledRow]]
    }

    /// The oldest first.
    private var collections: [Collection] = []

    /// Nothing waits, and all that was finished was told of.
    var isEmpty: Bool { collections.isEmpty }

    /// Takes what an overlay gave.
    ///
    /// - Parameters:
    ///   - rows: in the order in which they were written.
    ///   - number: the last entry of the log whose rows are among them.
    mutating func add(_ rows: [SpilledRow], upTo number: UInt64) {
        var groups: [Int: [SpilledRow]] = [:]
        for row in rows { groups[RedisGroups.group(of: row.key.bucket), default: []].append(row) }
        collections.append(Collection(number: number, groups: groups))
    }

    /// Those that wait for rows.
    var groups: [Int] {
        collections.reduce(into: Set<Int>()) { $0.formUnion($1.groups.keys) }.sorted()
    }

    /// What groups wait for, by collection, the oldest first.
    func rows(of groups: [Int]) -> [[SpilledRow]] {
        collections.map { collection in groups.flatMap { collection.groups[$0] ?? [] } }.filter { !$0.isEmpty }
    }

    /// Groups have all that was held for them.
    mutating func remove(_ groups: [Int]) {
        for place in collections.indices { for group in groups { collections[place].groups[group] = nil } }
    }

    /// The last entry of the log of which, and of all before it, no group waits for a row; `nil` when none is new.
    mutating func takeFinished() -> UInt64? {
        let count = collections.firstIndex { !$0.groups.isEmpty } ?? collections.count
        guard count > 0 else { return nil }
        defer { collections.removeFirst(count) }
        return collections[count - 1].number
    }
}
