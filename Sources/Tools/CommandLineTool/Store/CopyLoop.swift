internal import Delivery
internal import MessageStore
internal import Platform
internal import Wire

/// A substitute for the event loop of a store's shards; tasks that the store posts run on the copying thread.
final class CopyLoop: Sendable {
    private let tasks = Monitor<[@Sendable () -> Void]>([])

    func post(_ task: @escaping @Sendable () -> Void) { tasks.broadcast { $0.append(task) } }

    func turn() {
        let now: [@Sendable () -> Void] = tasks.wait(while: { $0.isEmpty }) { tasks in
            defer { tasks = [] }
            return tasks
        }
        for task in now { task() }
    }

    func turnWithoutWaiting() {
        for task in tasks.withLock({ tasks in
            defer { tasks = [] }
            return tasks
        }) { task() }
    }
}

final class ShardWriter {
    private let loop: CopyLoop
    private let stores: [any LoopStore]
    private var lastTickets: [Ticket]
    /// The observer ignores all events, because a copy needs none.
    private let observer = SilentObserver()

    init(_ stores: [any LoopStore], _ loop: CopyLoop) {
        (self.stores, self.loop) = (stores, loop)
        lastTickets = [Ticket](repeating: 0, count: stores.count)
        for store in stores { store.observer = observer }
    }

    func write(_ rows: [CopiedRow]) {
        guard let bucket = rows.first?.key.bucket else { return }
        let number = bucket.loop(of: stores.count)
        let store = stores[number]
        // The store accepts writes again after it has moved rows out of its journal, in several turns of the loop.
        while !store.acceptsWrites {
            store.turnEnded()
            loop.turn()
        }
        store.beginBatch(bucket)
        for row in rows {
            store.put(row.key, wakeAt: row.wakeAt, prior: .none, byteCount: row.value.count) {
                $0.copyBytes(from: row.value)
            }
        }
        lastTickets[number] = store.endBatch()
        store.turnEnded()
        loop.turnWithoutWaiting()
    }

    func finish() {
        for (number, store) in stores.enumerated() {
            store.turnEnded()
            while store.committedTicket < lastTickets[number] { loop.turn() }
        }
    }

    func close() { for store in stores { store.close() } }
}

private final class SilentObserver: ShardStoreObserver {
    func storeCommitted(upTo ticket: Ticket) {}
    func storeReplied(_ reply: StoreReply) {}
    func storeCooled(_ key: StoreKey) {}
}
