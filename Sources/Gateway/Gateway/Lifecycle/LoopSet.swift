internal import EventLoops
internal import MessageStore

/// The loops and their stores during a start; closes them if the start fails.
final class LoopSet {
    private(set) var loops: [EventLoop] = []
    private(set) var stores: [any LoopStore] = []

    /// Creates loops and their stores; `posted` is called whenever a thread of the store has work for a loop.
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

    /// Creates loops without stores; a cluster assigns partitions later.
    func make(_ count: Int) throws {
        for index in 0..<count { loops.append(try EventLoop(index: index)) }
    }

    /// Closes the loops, before any of them was started.
    func close() {
        for store in stores { store.close() }
        for loop in loops { loop.stop() }
    }
}
