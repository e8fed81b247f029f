// Young rows that are written once and rarely read: traces, which record how messages ended. Each message adds one. A row costs
// only one entry at the end of a page and an update of its bucket's chain head, without a hash table. A lookup follows the
// bucket's chain.

internal import Delivery
internal import Wire

extension StoreKey.Table {
    /// Whether rows of the table are kept in `YoungLog`; all other tables are kept in `YoungIndex`.
    var isLogged: Bool { self == .trace }
}

struct LoggedRow {
    var ownerHigh: UInt64
    var ownerLow: UInt64
    var ticket: UInt64
    /// The number of the previous row in the bucket's chain, plus one; 0 ends the chain.
    var before: UInt64
    var block: UInt32
    var offset: UInt32
    var byteCount: UInt32
    var bucket: UInt16
    /// The table, or `none` for a removed row, which stays in the chain.
    var table: UInt8

    /// A value that is not the raw value of any table.
    static let none: UInt8 = 0

    var key: StoreKey {
        StoreKey(Bucket(bucket), StoreKey.Table(rawValue: table) ?? .trace, ownerHigh: ownerHigh, ownerLow: ownerLow)
    }
}

/// A shard's logged rows, by insertion number; numbers are never reused.
struct YoungLog: ~Copyable {
    private static let pageShift: UInt64 = 11
    private static let pageSize = 1 << 11

    private struct Page {
        var rows: UnsafeMutablePointer<LoggedRow>
        var liveCount: Int
    }

    private var pages: [Page] = []
    private var spare: UnsafeMutablePointer<LoggedRow>?
    private var firstPage: UInt64 = 0
    /// The next row's number, and the first number that was not yet given to the spiller.
    private var end: UInt64 = 0
    private var firstUncollected: UInt64 = 0
    /// The newest row of each bucket, plus one.
    private let heads: UnsafeMutablePointer<UInt64>
    private(set) var count = 0

    init() {
        heads = .allocate(capacity: Bucket.count)
        heads.initialize(repeating: 0, count: Bucket.count)
    }

    deinit {
        for page in pages { page.rows.deallocate() }
        spare?.deallocate()
        heads.deallocate()
    }

    @inline(__always) subscript(number: UInt64) -> UnsafeMutablePointer<LoggedRow> {
        pages[Int((number >> Self.pageShift) - firstPage)].rows + Int(number & UInt64(Self.pageSize - 1))
    }

    /// Appends a row; a lookup finds the newest of several rows with one key.
    mutating func append(_ key: StoreKey, ticket: UInt64, at location: ValueLocation) {
        if end >> Self.pageShift == firstPage + UInt64(pages.count) {
            pages.append(Page(rows: spare ?? .allocate(capacity: Self.pageSize), liveCount: 0))
            spare = nil
        }
        let head = heads + Int(key.bucket.index)
        self[end].initialize(
            to: LoggedRow(
                ownerHigh: key.ownerHigh, ownerLow: key.ownerLow, ticket: ticket, before: head.pointee,
                block: location.block, offset: location.offset, byteCount: location.byteCount,
                bucket: key.bucket.index, table: key.table.rawValue))
        pages[pages.count - 1].liveCount += 1
        end += 1
        head.pointee = end
        count += 1
    }

    /// Returns the newest row of a key.
    func find(_ key: StoreKey) -> ValueLocation? {
        var next = heads[Int(key.bucket.index)]
        // A chain ends where its rows were freed with their page.
        while next > firstPage << Self.pageShift {
            let row = self[next - 1]
            if row.pointee.ownerLow == key.ownerLow, row.pointee.ownerHigh == key.ownerHigh,
                row.pointee.table == key.table.rawValue
            {
                return ValueLocation(
                    block: row.pointee.block, offset: row.pointee.offset, byteCount: row.pointee.byteCount)
            }
            next = row.pointee.before
        }
        return nil
    }

    /// Visits a bucket's rows of a table, newest first.
    func visit(_ table: StoreKey.Table, of bucket: Bucket, _ body: (StoreKey, ValueLocation) -> Void) {
        var next = heads[Int(bucket.index)]
        while next > firstPage << Self.pageShift {
            let row = self[next - 1]
            if row.pointee.table == table.rawValue {
                body(
                    row.pointee.key,
                    ValueLocation(
                        block: row.pointee.block, offset: row.pointee.offset, byteCount: row.pointee.byteCount))
            }
            next = row.pointee.before
        }
    }

    /// Returns the next row for the spiller, oldest first; `nil` if all rows up to `ticket` were returned.
    mutating func collect(upTo ticket: UInt64) -> UInt64? {
        guard firstUncollected < end, self[firstUncollected].pointee.ticket <= ticket else { return nil }
        defer { firstUncollected += 1 }
        return firstUncollected
    }

    /// Removes a collected row; its memory is freed with its page.
    mutating func remove(_ number: UInt64) {
        let row = self[number]
        precondition(number < firstUncollected && row.pointee.table != LoggedRow.none, "no such row to forget")
        row.pointee.table = LoggedRow.none
        pages[Int((number >> Self.pageShift) - firstPage)].liveCount -= 1
        count -= 1
        while let oldest = pages.first, oldest.liveCount == 0, firstUncollected >> Self.pageShift > firstPage {
            pages.removeFirst()
            firstPage += 1
            if spare == nil { spare = oldest.rows } else { oldest.rows.deallocate() }
        }
    }
}
