package import Delivery
internal import Wire

/// A loop's store with the handles that the world turns.
package protocol WorldStore: ShardStore {
    /// Gets the rows as they are written and as they become durable.
    var witness: (any StoreWitness)? { get set }
    /// Called for each read, with its token: the world then answers it.
    var onRead: ((ReadToken, _ isForAlarms: Bool) -> Void)? { get set }
    /// The world fills the store up and empties it.
    var acceptsWrites: Bool { get set }
    /// The last batch that is closed.
    var lastTicket: Ticket { get }
    /// The last batch that is known to survive a crash; the shard is told later.
    var durableTicket: Ticket { get }
    /// Batches that are closed and not durable.
    var waitingBatchCount: Int { get }
    /// What the store or its user got wrong.
    var violations: [String] { get }

    /// The loop's turn is over: batches may leave.
    func turnEnded()
    /// Moves batches up to a ticket towards the disk or the servers, without telling the shard.
    func makeDurable(upTo ticket: Ticket)
    /// Tells the shard what is durable, up to a ticket at least if it is.
    func complete(upTo ticket: Ticket)
    /// Answers a read, or asks for it again; `failing` where the store itself has no failures.
    func answer(_ token: ReadToken, failing: Bool)
    /// Turns committed young rows cold, but for those that `isSpared` names where the store can tell them apart.
    func cool(limit: Int, isSpared: (StoreKey) -> Bool) -> Int
    /// Drops the rows of ephemeral tables; false for a store that does not.
    func dropEphemeralRows() -> Bool
    /// Rows of a table as the owner sees them.
    func rowCount(_ table: StoreKey.Table) -> Int
    /// Visits the durable rows of a table in the order of their keys.
    func loadAll(table: StoreKey.Table, _ body: (StoredRow) -> Void)
}

extension WorldEngine {
    package func backup() -> [StoreKey: SimulatedStore.Value]? { nil }
    package func restore(_ rows: [StoreKey: SimulatedStore.Value]) {}
}

/// What keeps the rows of all loops from one start of the simulated gateway to the next.
package protocol WorldEngine: AnyObject {
    /// How many loops each start has; `nil`: any number.
    var loopCount: Int? { get }
    /// Reads fail because the world says so.
    var hasReadFailures: Bool { get }
    /// Milliseconds by which its calls are ahead of the world's time.
    var lead: Int64 { get }

    /// Makes the stores of a start, with what has survived.
    func makeStores(count: Int, in world: World) -> [any WorldStore]
    /// The gateway has lost its parts, and is to take them anew.
    var hasLostParts: Bool { get }
    /// The process dies: on return witnesses know all that has survived.
    func crash(in world: World)
    /// A copy of the durable rows; `nil` for an engine whose rows are not put back.
    func backup() -> [StoreKey: SimulatedStore.Value]?
    /// The next start finds these rows and no others.
    func restore(_ rows: [StoreKey: SimulatedStore.Value])
    /// Something may happen to its servers.
    func disturb()
    /// Nothing happens to its servers any more.
    func heal()
    /// What is wrong with its rows in the end.
    func checkEnd() -> String?
}

/// The simulated stores, of which the world itself decides everything.
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

    /// Synced rows stay, of the rest nothing, or the front part that had reached the disk.
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
