import Delivery
import Redis
import SimulatedRedis
import Wire

@testable import MessageStore

/// A process that owns a partition, or has not noticed its loss: an engine without threads on its own network.
final class WorldProcess {
    let number: Int
    let network: ProcessNetwork
    let engine: RedisEngine
    let loop = ProcessLoop()
    let witness = RedisWitness()
    let reader = ReplyWitness()
    private(set) var store: EmbeddedShardStore?
    private(set) var epoch: UInt64 = 0

    /// The rows that it found when it opened the partition.
    var base: [StoreKey: [UInt8]] = [:]
    /// The batches written since, one per ticket.
    var batches: [[(key: StoreKey, value: [UInt8]?)]] = []
    /// The number of batches that the next owner found; `nil` without a next owner.
    var found: Int?
    /// The reads in flight: the key, and the number of batches at the request.
    var reads: [ReadToken: (key: StoreKey, batchCount: Int)] = [:]
    /// The last batch reported durable when the process ended.
    private(set) var committed: Ticket = 0
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

    /// Returns the rows after the first `count` batches.
    func rows(after count: Int) -> [StoreKey: [UInt8]] {
        var rows = base
        for batch in batches.prefix(count) { for (key, value) in batch { rows[key] = value } }
        return rows
    }

    /// Ends the process; none of its calls in flight reaches a server.
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
