enum Event {
    /// The next random action or fault, chosen when it is due.
    case operation
    case segment(link: Int, toGateway: Bool, offset: Int, bytes: [UInt8])
    /// One end learns that the other has closed: after all bytes up to `offset`, or at once if `offset` is negative.
    case hangUp(link: Int, toGateway: Bool, offset: Int)
    case connectDone(link: Int)
    case connectFailed(link: Int)
    case clientWake(device: Int)
    case resume(device: Int)
    case handshakeTimeout(link: Int)
    case tick(loop: Int, life: Int)
    case sync(life: Int)
    case completion(loop: Int, life: Int, ticket: UInt64)
    case reply(loop: Int, life: Int, token: UInt64, fails: Bool)
    case retryPublish(record: Int, attempt: Int)
    case retryList(task: Int, attempt: Int)
    case senderStep(sender: Int)
    case senderResults(sender: Int, batch: Int)
    case endMet(record: Int)
    case directoryStep(Int, life: Int)
    case directoryReply(Int, life: Int)
    case retryBroadcast(Int, attempt: Int)
    case launch(loop: Int, life: Int, broadcast: Int)
    case broadcastStep(Int, life: Int)
    case broadcastAdvance(Int, life: Int)
    case stopBroadcast(Int, life: Int)
    /// A message from the coordinator reaches a device's loop.
    case submit(record: Int, life: Int)
    case endSiblings(win: Int, life: Int)
    case endSibling(win: Int, record: Int, life: Int)
    case settleFirstAck(win: Int, life: Int)
    /// A device's HTTPS call reaches the gateway.
    case receipt(Int)
    case feed(FeedModel.Step)
    case appsKnown(loop: Int, life: Int)
    case finishSession(link: Int)
    case endHalfClosed(link: Int, isTimeout: Bool)
    case crash(life: Int)
    case restart
}

/// A queue of events, ordered by time, then by insertion.
struct EventQueue {
    private struct Entry {
        var time: Int64
        var order: UInt64
        var slot: Int

        func comesBefore(_ other: Entry) -> Bool { time != other.time ? time < other.time : order < other.order }
    }

    private var heap: [Entry] = []
    private var events: [Event?] = []
    private var free: [Int] = []
    private var order: UInt64 = 0

    var count: Int { heap.count }
    var nextTime: Int64? { heap.first?.time }

    mutating func add(_ event: Event, at time: Int64) {
        order += 1
        let slot: Int
        if let recycled = free.popLast() {
            slot = recycled
            events[slot] = event
        } else {
            slot = events.count
            events.append(event)
        }
        heap.append(Entry(time: time, order: order, slot: slot))
        var index = heap.count - 1
        let entry = heap[index]
        while index > 0 {
            let parent = (index - 1) / 2
            guard entry.comesBefore(heap[parent]) else { break }
            heap[index] = heap[parent]
            index = parent
        }
        heap[index] = entry
    }

    mutating func next() -> (time: Int64, event: Event)? {
        guard let first = heap.first, let last = heap.popLast() else { return nil }
        if !heap.isEmpty {
            var index = 0
            let count = heap.count
            while true {
                var child = index * 2 + 1
                guard child < count else { break }
                if child + 1 < count, heap[child + 1].comesBefore(heap[child]) { child += 1 }
                guard heap[child].comesBefore(last) else { break }
                heap[index] = heap[child]
                index = child
            }
            heap[index] = last
        }
        guard let event = events[first.slot] else { preconditionFailure("an event without a body") }
        events[first.slot] = nil
        free.append(first.slot)
        return (first.time, event)
    }
}
