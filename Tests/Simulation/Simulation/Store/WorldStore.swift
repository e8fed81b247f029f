package import Delivery
internal import Wire

package protocol WorldStore: ShardStore {
    /// The observer of written and durable rows.
    var witness: (any StoreWitness)? { get set }
    /// Called for each read with its token; the world answers the read later.
    var onRead: ((ReadToken, _ isForAlarms: Bool) -> Void)? { get set }
    /// False simulates a full store.
    var acceptsWrites: Bool { get set }
    var lastTicket: Ticket { get }
    /// The last batch that survives a crash; the shard is notified later.
    var durableTicket: Ticket { get }
    /// The number of closed batches that are not durable.
    var waitingBatchCount: Int { get }
    /// Errors of the store or its caller.
    var violations: [String] { get }

    /// Ends the loop's turn, so that batches may be sent.
    func turnEnded()
    /// Moves batches up to a ticket towards the disk or the servers without notifying the shard.
    func makeDurable(upTo ticket: Ticket)
    /// Notifies the shard of durable batches, at least up to `ticket` if that is durable.
    func complete(upTo ticket: Ticket)
    /// Answers a read or requests it again; `failing` applies to stores without read failures of their own.
    func answer(_ token: ReadToken, failing: Bool)
    /// Makes committed young rows cold, except those that `isSpared` selects if the store can distinguish rows.
    func cool(limit: Int, isSpared: (StoreKey) -> Bool) -> Int
    /// Drops the rows of ephemeral tables; returns false if the store does not support that.
    func dropEphemeralRows() -> Bool
    func rowCount(_ table: StoreKey.Table) -> Int
    func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void)
}

extension WorldEngine {
    package func backup() -> [StoreKey: SimulatedStore.Value]? { nil }
    package func restore(_ rows: [StoreKey: SimulatedStore.Value]) {}
}

/// The storage that keeps all loops' rows across restarts of the simulated gateway.
package protocol WorldEngine: AnyObject {
    /// The number of loops of each start; `nil` allows any number.
    var loopCount: Int? { get }
    var hasReadFailures: Bool { get }
    /// The milliseconds by which the engine's clock is ahead of the world's.
    var lead: Int64 { get }

    /// Creates the stores of a start with the surviving rows.
    func makeStores(count: Int, in world: World) -> [any WorldStore]
    /// Whether the gateway has lost its partitions and must claim them again.
    var hasLostParts: Bool { get }
    /// Ends the process; on return the witnesses know all surviving rows.
    func crash(in world: World)
    /// Returns a copy of the durable rows; `nil` for an engine without restores.
    func backup() -> [StoreKey: SimulatedStore.Value]?
    /// Replaces all rows for the next start.
    func restore(_ rows: [StoreKey: SimulatedStore.Value])
    /// May inject a server fault.
    func disturb()
    /// Ends all server faults.
    func heal()
    /// Returns an error in the engine's rows at the end, or `nil`.
    func checkEnd() -> String?
}

package final class SimulatedStores: WorldEngine {
    private var stores: [SimulatedStore] = []
    private var survivors: [StoreKey: SimulatedStore.Value] = [:]

    package init() {}

    package var loopCount: Int? { nil }
    package var hasReadFailures: Bool { true }
    package var lead: Int64 { 0 }

    package func makeStores(count: Int, in world: World) -> [any WorldStore] {
        var parts = [[StoreKey: SimulatedStore.Value]](repeating: [:], count: count)
        for (key, value) in survivors { parts[key.bucket.loop(of: count)][key] = value }
        survivors = [:]
        stores = parts.map { rows in
            let store = SimulatedStore()
            for table in StoreKey.Table.allCases {
                store.rowByteCounts[table.rawValue] = RowBounds.byteCount(of: table, world.plan.limits)
            }
            store.load(rows)
            return store
        }
        return stores
    }

    /// Keeps synced rows; of the unsynced batches it keeps none, or the first ones that had reached the disk.
    package func crash(in world: World) {
        if stores.contains(where: { $0.durableTicket > $0.committedTicket }) {
            world.faults.note(.crashBetweenSyncAndCompletion)
        }
        for store in stores {
            let waiting = store.waitingBatchCount
            let kept = waiting > 0 && world.chance.perMille(300) ? world.chance.between(1, waiting) : 0
            if kept > 0 { world.faults.note(.tornTailKept) }
            for (key, value) in store.survivors(keepingTail: kept) { survivors[key] = value }
        }
    }

    package func backup() -> [StoreKey: SimulatedStore.Value]? {
        stores.reduce(into: [:]) { rows, store in rows.merge(store.durableRows) { _, row in row } }
    }

    package func restore(_ rows: [StoreKey: SimulatedStore.Value]) { survivors = rows }

    package var hasLostParts: Bool { false }
    package func disturb() {}
    package func heal() {}
    package func checkEnd() -> String? { nil }
}
