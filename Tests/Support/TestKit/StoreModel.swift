package import Delivery
internal import Wire

/// The expected content of a shard store as plain dictionaries, and the observer that checks each reply against them.
package final class StoreModel: ShardStoreObserver {
    package struct Row: Equatable {
        package var value: [UInt8]
        package var wakeAt: Int64
    }

    package private(set) var rows: [StoreKey: Row] = [:]
    /// The rows that must survive a restart.
    package private(set) var durable: [StoreKey: Row] = [:]
    /// Keys that have ever had a row, for `PriorRow.none`.
    package private(set) var everWritten: Set<StoreKey> = []
    package private(set) var locations: [StoreKey: ValueLocation] = [:]
    /// The alarms that the store has not reported yet.
    package private(set) var alarms: [StoreKey: Int64] = [:]
    /// The alarms that a request left or the owner returned, by group.
    package private(set) var left: [StoreKey: AlarmGroup] = [:]
    package private(set) var failures: [String] = []
    package private(set) var committedTicket: Ticket = 0
    package private(set) var replyCount = 0

    private enum Expectation {
        case reads([StoreRead])
        case alarms(AlarmRequest)
    }
    private var expectations: [ReadToken: Expectation] = [:]
    /// The owner's reaction to a reply, before the next reply of the same turn.
    var afterReply: (() -> Void)?
    /// Whether the last alarm request returned all due alarms.
    package private(set) var alarmsAreComplete = true

    package init() {}

    package var waitingCount: Int { expectations.count }

    package func fail(_ text: String) { failures.append(text) }

    // MARK: Calls of the driver

    package func prior(of key: StoreKey) -> PriorRow {
        if let row = rows[key] { return .maybe(wakeAt: row.wakeAt) }
        return everWritten.contains(key) ? .maybe(wakeAt: 0) : .none
    }

    package func put(_ key: StoreKey, _ row: Row, at location: ValueLocation) {
        rows[key] = row
        locations[key] = location
        (alarms[key], left[key]) = (nil, nil)
        everWritten.insert(key)
    }

    package func delete(_ key: StoreKey) {
        rows[key] = nil
        locations[key] = nil
        (alarms[key], left[key]) = (nil, nil)
    }

    package func synced() { durable = rows }

    /// Drops unsynced rows and treats all others as cold.
    package func restarted() {
        rows = durable
        locations = [:]
        expectations = [:]
        committedTicket = 0
        alarms = rows.filter { $0.value.wakeAt != 0 }.mapValues(\.wakeAt)
        left = [:]
        everWritten.formUnion(rows.keys)
    }

    package func expect(_ token: ReadToken, _ reads: [StoreRead]) { expectations[token] = .reads(reads) }
    package func expectAlarms(_ token: ReadToken, _ request: AlarmRequest) { expectations[token] = .alarms(request) }

    package func leave(_ key: StoreKey, in group: AlarmGroup) { left[key] = group }

    // MARK: Calls of the store

    package func storeCommitted(upTo ticket: Ticket) {
        if ticket <= committedTicket { fail("ticket \(ticket) was reported after \(committedTicket)") }
        committedTicket = ticket
    }

    package func storeCooled(_ key: StoreKey) {
        guard let row = rows[key], locations[key] != nil else { return fail("\(key) cooled, but is not young") }
        locations[key] = nil
        if row.wakeAt != 0 { alarms[key] = row.wakeAt }
    }

    package func storeReplied(_ reply: StoreReply) {
        replyCount += 1
        defer { afterReply?() }
        guard let expectation = expectations.removeValue(forKey: reply.token) else {
            return fail("a reply to \(reply.token), which nobody asked or which was answered already")
        }
        if let failure = reply.failure { return fail("the read failed: \(failure)") }
        switch expectation {
        case .reads(let reads):
            guard reads.count == reply.results.count else { return fail("\(reply.results.count) results") }
            for (read, result) in zip(reads, reply.results) { check(read, result) }
        case .alarms(let request): checkAlarms(request, reply.results)
        }
    }

    // MARK: Checking

    private func partition(_ start: StoreKey) -> [(key: StoreKey, row: Row)] {
        rows.filter { key, _ in
            key.bucket == start.bucket && key.table == start.table && key.ownerHigh == start.ownerHigh
                && key.ownerLow == start.ownerLow && key.item >= start.item
        }
        .map { (key: $0.key, row: $0.value) }.sorted { $0.key < $1.key }
    }

    private func matches(_ found: StoredRow, _ key: StoreKey, _ row: Row) -> Bool {
        found.key == key && found.wakeAt == row.wakeAt && found.value.elementsEqual(row.value)
    }

    private func check(_ read: StoreRead, _ result: StoreReadResult) {
        switch (read, result) {
        case (.get(let key), .row(let found)):
            switch (found, rows[key]) {
            case (nil, nil): break
            case (let found?, let row?): if !matches(found, key, row) { fail("get \(key) found another row") }
            case (.some, nil): fail("get found a row that is not there: \(key)")
            case (nil, .some): fail("get missed \(key)")
            }
        case (.scan(let start, let rowLimit, let byteLimit), .rows(let found, let isComplete)):
            let expected = partition(start)
            let isPrefix =
                found.count <= expected.count && zip(found, expected).allSatisfy { matches($0, $1.key, $1.row) }
            if !isPrefix { fail("scan from \(start) is not the beginning of the partition") }
            if isComplete, found.count != expected.count { fail("scan from \(start) ended early as if complete") }
            if found.isEmpty, !expected.isEmpty { fail("scan from \(start) found nothing") }
            if found.count > max(rowLimit, 1) { fail("scan from \(start) went beyond \(rowLimit) rows") }
            if found.count > 1, found.reduce(0, { $0 + $1.value.count }) > byteLimit { fail("scan beyond its bytes") }
        case (.measure(let start, let rowLimit), .measure(let rowCount, let byteCount, let first, let last)):
            let expected = partition(start).prefix(rowLimit)
            let bytes = expected.reduce(0) { $0 + $1.row.value.count }
            if (rowCount, byteCount) != (expected.count, bytes) { fail("measure of \(start) is \(rowCount)") }
            if first != expected.first?.key.item ?? 0 || last != expected.last?.key.item ?? 0 {
                fail("measure of \(start) has the items \(first) and \(last)")
            }
        case (.traces(let bucket, let limit, let isMeant), .rows(let found, _)):
            let expected = rows.filter { key, row in
                key.bucket == bucket && key.table == .trace && row.value.withUnsafeBytes { isMeant(key, $0) }
            }.sorted { $1.key < $0.key }.prefix(limit)
            let isEqual =
                found.count == expected.count && zip(found, expected).allSatisfy { matches($0, $1.key, $1.value) }
            if !isEqual { fail("\(found.count) traces of bucket \(bucket.index), \(expected.count) expected") }
        default: fail("a result of another kind than the request")
        }
    }

    private func checkAlarms(_ request: AlarmRequest, _ results: [StoreReadResult]) {
        guard case .rows(let found, let isComplete)? = results.first, results.count == 1 else {
            return fail("alarms came as something else")
        }
        if found.count > request.limit { fail("\(found.count) alarms, \(request.limit) asked for") }
        for row in found {
            guard let expected = rows[row.key] else {
                fail("an alarm of a row that is not there: \(row.key)")
                continue
            }
            if !matches(row, row.key, expected) { fail("an alarm with another row: \(row.key)") }
            if request.group == nil, alarms[row.key] != row.wakeAt {
                fail("an alarm that is not due from the store: \(row.key)")
            }
            if request.judge(row.key, row.value) != .take { fail("an alarm that was to be left: \(row.key)") }
            if isSucceeded(row.key, expected, request) { fail("an alarm that another row has: \(row.key)") }
            if row.wakeAt > request.time { fail("an alarm before its time: \(row.key)") }
            // An alarm reported with its group may be reported once more after its row has left memory.
            if request.group == nil { alarms[row.key] = nil }
            left[row.key] = nil
        }
        alarmsAreComplete = isComplete
        if let group = request.group {
            let rest = left.count { key, name in
                name == group && !(rows[key].map { isSucceeded(key, $0, request) } ?? false)
            }
            if isComplete, request.isEager, rest > 0 { fail("\(rest) alarms are left in a group") }
            return
        }
        guard isComplete else { return }
        for (key, wakeAt) in alarms where wakeAt <= request.time {
            let verdict = rows[key].map { $0.value.withUnsafeBytes { request.judge(key, $0) } }
            if case .leave(let group, _)? = verdict {
                left[key] = group
                alarms[key] = nil
            } else if let row = rows[key], isSucceeded(key, row, request) {
                alarms[key] = nil
            } else {
                fail("an alarm was not reported: \(key)")
            }
        }
    }

    private func isSucceeded(_ key: StoreKey, _ row: Row, _ request: AlarmRequest) -> Bool {
        row.value.withUnsafeBytes { request.successor(of: key, $0) }.map { rows[$0] != nil } ?? false
    }
}
