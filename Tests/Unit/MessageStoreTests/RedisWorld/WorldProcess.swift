import Delivery
import Redis
import SimulatedRedis
import Wire

@testable import MessageStore

/// A process that owns a part, or believes so: an engine without threads over a network of its own.
final class WorldProcess {
    let number: Int
    let network: ProcessNetwork
    let engine: RedisEngine
    let loop = ProcessLoop()
    let witness = RedisWitness()
    let reader = ReplyWitness()
    private(set) var store: EmbeddedShardStore?
    private(set) var epoch: UInt64 = 0

    /// The rows that it found when it opened the part.
    var base: [StoreKey: [UInt8]] = [:]
    /// What it wrote since, one batch a ticket.
    var batches: [[(key: StoreKey, value: [UInt8]?)]] = []
    /// How many of them the next owner has found; `nil` while there is none.
    var found: Int?
    /// Reads under way: the key, and how many batches there were.
    var reads: [ReadToken: (key: StoreKey, batchCount: Int)] = [:]
    /// What it had been told was durable when it ended.
    private(set) var committed: Ticket = 0
    /// It does nothing for a while.
    var isStopped = false

    init(_ number: Int, _ network: ProcessNetwork, seeds: [RedisAddress], _ configuration: RedisEngine.Configuration)
        throws
    {
        (self.number, self.network) = (number, network)
        var configuration = configuration
        configuration.report = { [witness] in witness.note($0) }
        engine = try RedisEngine(RedisCluster(seeds: seeds, network: network), configuration)
    }

    func open(part: Int, of count: Int, epoch: UInt64) throws(StoreError) {
        let open = try engine.openPart(part, of: count, epoch: epoch, post: loop.post) { [witness] in witness.note($0) }
        self.epoch = epoch
        store = open.store as? EmbeddedShardStore
        store?.observer = reader
    }

    /// The rows as they were after the first `count` of its batches.
    func rows(after count: Int) -> [StoreKey: [UInt8]] {
        var rows = base
        for batch in batches.prefix(count) { for (key, value) in batch { rows[key] = value } }
        return rows
    }

    /// The process ends: nothing that it has under way reaches a server.
    func end(part: Int) {
        network.isDead = true
        if let store {
            committed = store.committedTicket
            store.close()
            self.store = nil
            engine.closePart(part)
        }
        engine.close()
        loop.end()
    }
}
