internal import Delivery
internal import MessageStore
internal import Platform
internal import Wire

final class EmbeddedPlace: CopyPlace {
    let name: String
    private let loop = CopyLoop()
    private var store: EmbeddedStore?
    private var writer: ShardWriter?

    /// Creates a place for the gateway's `store.path`, without opening it.
    init(_ folder: String) { name = folder }

    private func open(isTarget: Bool) throws {
        var configuration = EmbeddedStore.Configuration(folder: name)
        configuration.isCopyTarget = isTarget
        configuration.wall = { Int64(SystemClock.wallMilliseconds) }
        store = try EmbeddedStore(configuration)
    }

    func beginReading(for target: String) throws {
        // A missing folder is refused. Otherwise a new empty store would be created and copied.
        do throws(StoreError) {
            try EmbeddedStore.requireStore(in: name)
        } catch { throw CopyFailure("\(error)") }
        try open(isTarget: false)
    }

    func beginWriting(from source: String, isReplacing: Bool) throws {
        let isHalf = EmbeddedStore.isUnfinishedCopy(name)
        guard !isHalf || isReplacing else {
            throw CopyFailure("\(name) has a copy that did not end; run it again with --replace")
        }
        let isNew = !FileSystem.exists(name)
        try open(isTarget: true)
        var rowCount = 0
        try visitRows { _ in rowCount += 1 }
        if rowCount > 0, !isReplacing {
            throw CopyFailure(
                "\(name) is not empty: it has \(rowCount) rows; nothing was copied. With --replace they are removed")
        }
        // From here until `complete`, a gateway refuses to start on the folder.
        try EmbeddedStore.beginCopy(to: name, from: source)
        guard rowCount > 0 || !isNew else { return }
        closeStore()
        try EmbeddedStore.empty(name)
        try open(isTarget: true)
    }

    func visitRows(_ body: (StoredRow) throws -> Void) throws {
        guard let store else { return }
        for table in StoreKey.Table.allCases {
            var failure: (any Error)?
            try store.visitRows(of: table) { row in
                guard failure == nil else { return }
                do { try body(row) } catch { failure = error }
            }
            if let failure { throw failure }
        }
    }

    func write(_ rows: [CopiedRow]) throws {
        guard let store else { return }
        let writer = writer ?? ShardWriter([store.makeLoopStore(index: 0, of: 1, post: loop.post)], loop)
        self.writer = writer
        for (_, rows) in Dictionary(grouping: rows, by: { $0.key.bucket }).sorted(by: { $0.key.index < $1.key.index }) {
            writer.write(rows)
        }
    }

    /// Reopens the store, so that the comparison reads from the disk.
    func finishWriting() throws {
        writer?.finish()
        closeStore()
        try open(isTarget: true)
    }

    func complete() throws {
        guard EmbeddedStore.isUnfinishedCopy(name) else { return }
        try EmbeddedStore.endCopy(to: name, wall: Int64(SystemClock.wallMilliseconds))
    }

    private func closeStore() {
        writer?.close()
        writer = nil
        store?.close()
        store = nil
    }

    func close() { closeStore() }
}
