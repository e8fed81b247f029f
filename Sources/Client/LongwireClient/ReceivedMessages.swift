/// The messages of a client, one at a time and in order.
///
/// When the loop asks for the next message, the one before is processed: it is recorded, then acked. A loop that ends in
/// the middle of a message leaves it un-acked, and it comes again in a later session; `LongwireClient.finish` decides
/// earlier. While no loop asks, messages wait un-acked, and no more come than the gateway's window has. The sequence ends
/// when the client has stopped or the task is cancelled. One loop reads at a time: a new one ends the one before it.
public struct ReceivedMessages: AsyncSequence, Sendable {
    public typealias Element = ReceivedMessage

    let channel: MessageChannel

    public func makeAsyncIterator() -> Iterator { Iterator(loop: Loop(channel)) }

    public struct Iterator: AsyncIteratorProtocol {
        fileprivate let loop: Loop

        public mutating func next() async -> ReceivedMessage? { await loop.channel.next(reader: loop.number) }
    }

    /// Its end is the end of the loop, however the loop ends.
    fileprivate final class Loop: Sendable {
        let channel: MessageChannel
        let number: Int

        init(_ channel: MessageChannel) { (self.channel, number) = (channel, channel.makeReader()) }
        deinit { channel.leave(number) }
    }
}

/// Where the client's thread, which brings messages, and a loop, which takes them, come together; neither waits for the
/// other here.
///
/// A message is first in `queue`, then in `taken` with the loop that has it, and leaves with its verdict. What waits is
/// bounded by the gateway's window, and by the core's limits where the gateway keeps none.
final class MessageChannel: Sendable {
    typealias Sink = @Sendable (ReceivedMessage, MessageVerdict) -> Void

    private struct Waiter {
        let reader: Int
        let continuation: CheckedContinuation<ReceivedMessage?, Never>
    }

    private struct State {
        var queue: [ReceivedMessage] = []
        var taken: (message: ReceivedMessage, reader: Int)?
        var waiter: Waiter?
        var isClosed = false
        var readerCount = 0

        mutating func takeWaiter() -> Waiter? {
            defer { waiter = nil }
            return waiter
        }

        /// The message of this loop, which is decided now.
        mutating func release(_ reader: Int) -> ReceivedMessage? {
            guard let taken, taken.reader == reader else { return nil }
            self.taken = nil
            return taken.message
        }

        /// A waiting loop and the message it gets now.
        mutating func match() -> (Waiter, ReceivedMessage)? {
            guard taken == nil, !queue.isEmpty, let waiter = takeWaiter() else { return nil }
            let message = queue.removeFirst()
            taken = (message, waiter.reader)
            return (waiter, message)
        }
    }

    private let state = Guarded(State())
    /// Gets each verdict of a loop, on the loop's thread.
    private let sink: Sink

    init(sink: @escaping Sink) { self.sink = sink }

    func makeReader() -> Int {
        state.withValue { state in
            state.readerCount += 1
            return state.readerCount
        }
    }

    func open() { state.withValue { $0.isClosed = false } }

    /// Ends the loops; what no loop has comes again, what a loop has waits for its verdict.
    func close() {
        let waiter = state.withValue { state in
            state.isClosed = true
            state.queue = []
            return state.takeWaiter()
        }
        waiter?.continuation.resume(returning: nil)
    }

    /// Brings a message for a loop; on the client's thread.
    ///
    /// - Returns: its verdict, when it has one at once.
    func offer(_ message: ReceivedMessage) -> MessageVerdict? {
        let (isTaken, match) = state.withValue { state in
            guard !state.isClosed else { return (false, nil as (Waiter, ReceivedMessage)?) }
            // A copy of what a loop still has from before a stop: the loop's verdict is for both.
            if state.taken?.message.isSame(as: message) != true { state.queue.append(message) }
            return (true, state.match())
        }
        if let (waiter, message) = match { waiter.continuation.resume(returning: message) }
        return isTaken ? nil : .deferred
    }

    /// Takes back what no loop has; on the client's thread.
    func withdraw() -> [ReceivedMessage] {
        state.withValue { state in
            defer { state.queue = [] }
            return state.queue
        }
    }

    func next(reader: Int) async -> ReceivedMessage? {
        if let processed = state.withValue({ $0.release(reader) }) { sink(processed, .processed) }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let (ended, match) = state.withValue { state -> (Waiter?, (Waiter, ReceivedMessage)?) in
                    let waiter = Waiter(reader: reader, continuation: continuation)
                    // Under the lock: a cancellation behind this line finds the waiter.
                    guard !state.isClosed, !Task.isCancelled else { return (waiter, nil) }
                    let earlier = state.takeWaiter()
                    state.waiter = waiter
                    return (earlier, state.match())
                }
                ended?.continuation.resume(returning: nil)
                if let (waiter, message) = match { waiter.continuation.resume(returning: message) }
            }
        } onCancel: {
            let waiter = state.withValue { $0.waiter?.reader == reader ? $0.takeWaiter() : nil }
            waiter?.continuation.resume(returning: nil)
        }
    }

    /// False when no loop has this message.
    func decide(_ message: ReceivedMessage, _ verdict: MessageVerdict) -> Bool {
        let isDecided = state.withValue { state in
            guard let taken = state.taken, taken.message.isSame(as: message) else { return false }
            state.taken = nil
            return true
        }
        if isDecided { sink(message, verdict) }
        handOver()
        return isDecided
    }

    /// The loop has ended.
    func leave(_ reader: Int) {
        if let left = state.withValue({ $0.release(reader) }) { sink(left, .deferred) }
        handOver()
    }

    /// Another loop may wait for what this one held up.
    private func handOver() {
        if let (waiter, message) = state.withValue({ $0.match() }) { waiter.continuation.resume(returning: message) }
    }
}
