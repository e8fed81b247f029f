internal import EventLoops
internal import MessageStore

/// The loops and their stores while the gateway is put together; closes them again when that fails.
final class LoopSet {
    private(set) var loops: [EventLoop] = []
    private(set) var stores: [any LoopStore] = []

    /// Makes the loops; `posted` is told whenever a thread of the store has work for one.
    func make(
        _ count: Int, hasOwnTables: Bool, store: any StoreEngine, posted: (@Sendable () -> Void)? = nil
    ) throws {
        for index in 0..<count {
            let loop = try EventLoop(index: index, hasOwnTable: hasOwnTables)
            loops.append(loop)
            stores.append(
                store.makeLoopStore(index: index, of: count) { work in
                    loop.submit(work)
                    posted?()
                })
        }
    }

    /// Makes loops without stores: parts come to them later.
    func make(_ count: Int) throws {
        for index in 0..<count { loops.append(try EventLoop(index: index)) }
    }

    /// Before any loop was started.
    func close() {
        for store in stores { store.close() }
        for loop in loops { loop.stop() }
    }
}
