internal import Delivery
internal import MessageStore
internal import Wire

/// The devices and messages in the folder of a closed gateway, and the number of pending messages in its counters.
struct StoredContent {
    /// The year 2096, so that no row belongs to the current day.
    private static let afterAllDays: GatewayTime = 4_000_000_000_000

    private(set) var pending: Int64 = 0
    private(set) var problem: String?
    private(set) var devices: Set<DeviceID> = []

    init(folder: String) throws {
        let store = try EmbeddedStore(EmbeddedStore.Configuration(folder: folder))
        defer { store.close() }
        let shard = store.makeShard(index: 0, of: 1) { _ in }
        defer { shard.close() }
        // Rows of past days are folded into separate rows.
        var fold = CounterFold()
        try shard.loadAll(table: .meta) { _ = fold.take($0) }
        var counters = CounterStart(now: Self.afterAllDays, fold: fold, countsFold: true)
        try shard.loadAll(table: .counters) { counters.take($0) }
        let counted = counters.pending
        var unreadable = counters.damagedRowCount
        var stored: Int64 = 0
        for table in [StoreKey.Table.message, .vendorMessage] {
            try shard.loadAll(table: table) { row in
                stored += 1
                if RowInspection.message(row.value) == nil { unreadable += 1 }
            }
        }
        // A broadcast's message for one device is a ledger row.
        try shard.loadAll(table: .taskMessage) { row in
            if let ledger = RowInspection.ledger(row.key, row.value), ledger.isBroadcast, ledger.finalState == nil {
                stored += 1
            }
        }
        try shard.loadAll(table: .device) { row in
            devices.insert(DeviceID(high: row.key.ownerHigh, low: row.key.ownerLow))
            if RowInspection.device(row.value) == nil { unreadable += 1 }
        }
        pending = stored
        if counted != stored { problem = "counters say that \(counted) messages are pending, \(stored) are stored" }
        if unreadable > 0 { problem = "\(unreadable) rows cannot be read" }
    }
}
