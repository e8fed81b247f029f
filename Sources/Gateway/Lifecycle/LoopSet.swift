internal import EventLoops
internal import MessageStore

/// The loops and their stores while the gateway is put together; closes them again when that fails.
final class LoopSet {
    private(set) var loops: [EventLoop] = []
    private(set) var stores: [EmbeddedShardStore] = []

    func make(_ count: Int, hasOwnTables: Bool, store: EmbeddedStore) throws {
        for index in 0..<count {
            let loop = try EventLoop(index: index, hasOwnTable: hasOwnTables)
            loops.append(loop)
            stores.append(store.makeShard(index: index, of: count) { work in loop.submit(work) })
        }
    }

    /// Before any loop was started.
    func close() {
        for store in stores { store.close() }
        for loop in loops { loop.stop() }
    }
}
