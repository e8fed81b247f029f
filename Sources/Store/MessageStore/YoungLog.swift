// Young rows that are written once and hardly ever looked up: how messages ended, and which message a single push became.
// There is one for each message that passes, so here a row costs one place at the end of a page and the head of its
// bucket's chain: no hash table, no neighbours, no memory that has grown cold. A lookup follows its bucket's chain.

internal import Delivery
internal import Wire

extension StoreKey.Table {
    /// Rows of these tables are in the log; the others, and requests, which each push looks up, are in the index.
    var isLogged: Bool { self == .trace }
}

/// One row of the log.
struct LoggedRow {
    var ownerHigh: UInt64
    var ownerLow: UInt64
    var ticket: UInt64
    /// The number of the row before it in its bucket's chain, plus one; 0 ends the chain.
    var before: UInt64
    var block: UInt32
    var offset: UInt32
    var byteCount: UInt32
    var bucket: UInt16
    /// `none` for a row that has left; the chain still leads through it.
    var table: UInt8

    /// No table's raw value.
    static let none: UInt8 = 0

    var key: StoreKey {
        StoreKey(Bucket(bucket), StoreKey.Table(rawValue: table) ?? .trace, ownerHigh: ownerHigh, ownerLow: ownerLow)
    }
}

/// A shard's logged rows, by the numbers in which they came; numbers are never used again.
struct YoungLog: ~Copyable {
    private static let pageShift: UInt64 = 11
    private static let pageSize = 1 << 11

    private struct Page {
        var rows: UnsafeMutablePointer<LoggedRow>
        /// Rows in it that have not left.
        var liveCount: Int
    }

    private var pages: [Page] = []
    private var spare: UnsafeMutablePointer<LoggedRow>?
    /// The first page's number.
    private var firstPage: UInt64 = 0
    /// The next row's number, and the first that the spiller has not been given.
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

    /// Adds a row; of several with one key the newest is found.
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

    /// The newest row of a key.
    func find(_ key: StoreKey) -> ValueLocation? {
        var next = heads[Int(key.bucket.index)]
        // Rows that have left with their page end every chain that leads to them.
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

    /// Visits the rows of a table in a bucket, newest first.
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

    /// The next row for the spiller, oldest first; `nil` when all up to `ticket` have been given.
    mutating func collect(upTo ticket: UInt64) -> UInt64? {
        guard firstUncollected < end, self[firstUncollected].pointee.ticket <= ticket else { return nil }
        defer { firstUncollected += 1 }
        return firstUncollected
    }

    /// Forgets a collected row; its place goes with its page.
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
