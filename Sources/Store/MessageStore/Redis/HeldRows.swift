// Rows that an overlay has returned and their groups do not have yet. An overlay returns rows of many groups at once (a
// collection). A group on an unresponsive server gets its rows later. Each group gets its rows in order. A log entry stays in the
// log until every group has the rows of it and of all earlier entries.

internal import Delivery

struct HeldRows {
    private struct Collection {
        /// The last log entry with rows in the collection.
        var number: UInt64
        var groups: [Int: [SpilledRow]]
    }

    private var collections: [Collection] = []

    /// Whether no rows are held, and every finished collection was returned by `takeFinished`.
    var isEmpty: Bool { collections.isEmpty }

    /// Adds a collection.
    ///
    /// - Parameters:
    ///   - rows: The rows in write order.
    ///   - number: The last log entry whose rows are included.
    mutating func add(_ rows: [SpilledRow], upTo number: UInt64) {
        var groups: [Int: [SpilledRow]] = [:]
        for row in rows { groups[RedisGroups.group(of: row.key.bucket), default: []].append(row) }
        collections.append(Collection(number: number, groups: groups))
    }

    var groups: [Int] {
        collections.reduce(into: Set<Int>()) { $0.formUnion($1.groups.keys) }.sorted()
    }

    func rows(of groups: [Int]) -> [[SpilledRow]] {
        collections.map { collection in groups.flatMap { collection.groups[$0] ?? [] } }.filter { !$0.isEmpty }
    }

    mutating func remove(_ groups: [Int]) {
        for place in collections.indices { for group in groups { collections[place].groups[group] = nil } }
    }

    /// Returns the last log entry up to which no group has held rows; `nil` if there is no new one.
    mutating func takeFinished() -> UInt64? {
        let count = collections.firstIndex { !$0.groups.isEmpty } ?? collections.count
        guard count > 0 else { return nil }
        defer { collections.removeFirst(count) }
        return collections[count - 1].number
    }
}
