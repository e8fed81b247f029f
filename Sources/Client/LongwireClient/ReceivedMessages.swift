/// The messages of a client, one at a time and in order.
///
/// A request for the next message marks the previous one as processed: it is recorded, then acked. A loop that ends before that
/// leaves its message un-acked, and a later session delivers it again. `LongwireClient.finish` decides earlier. Without a loop,
/// messages stay un-acked, up to the gateway's window. The sequence ends when the client has stopped or the task is cancelled.
/// One loop reads at a time: a new one ends the previous one.
public struct ReceivedMessages: AsyncSequence, Sendable {
    public typealias Element = ReceivedMessage

    let channel: MessageChannel

    public func makeAsyncIterator() -> Iterator { Iterator(loop: Loop(channel)) }

    public struct Iterator: AsyncIteratorProtocol {
        fileprivate let loop: Loop

        public mutating func next() async -> ReceivedMessage? { await loop.channel.next(reader: loop.number) }
    }

    /// A loop of the app; its deallocation ends the loop, however the loop was left.
    fileprivate final class Loop: Sendable {
        let channel: MessageChannel
        let number: Int

        init(_ channel: MessageChannel) { (self.channel, number) = (channel, channel.makeReader()) }
        deinit { channel.leave(number) }
    }
}

/// The handover of messages from the client's thread to a loop, in which neither side blocks.
///
/// A message is first in `queue`, then in `taken` while the loop has it, and is removed with its verdict. The gateway's window
/// bounds the queue, and the core's limits do so if a gateway exceeds its window.
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

        /// Removes and returns the message that this loop has; the caller sends its verdict.
        mutating func release(_ reader: Int) -> ReceivedMessage? {
            guard let taken, taken.reader == reader else { return nil }
            self.taken = nil
            return taken.message
        }

        mutating func match() -> (Waiter, ReceivedMessage)? {
            guard taken == nil, !queue.isEmpty, let waiter = takeWaiter() else { return nil }
            let message = queue.removeFirst()
            taken = (message, waiter.reader)
            return (waiter, message)
        }
    }

    private let state = Guarded(State())
    /// Receives each verdict of a loop, on the loop's thread.
    private let sink: Sink

    init(sink: @escaping Sink) { self.sink = sink }

    func makeReader() -> Int {
        state.withValue { state in
            state.readerCount += 1
            return state.readerCount
        }
    }

    func open() { state.withValue { $0.isClosed = false } }

    /// Ends the loops and discards the queued messages, which the gateway delivers again.
    ///
    /// A message that a loop already has still needs its verdict.
    func close() {
        let waiter = state.withValue { state in
            state.isClosed = true
            state.queue = []
            return state.takeWaiter()
        }
        waiter?.continuation.resume(returning: nil)
    }

    /// Queues a message for a loop.
    ///
    /// Called on the client's thread.
    ///
    /// - Returns: `deferred` if the channel is closed, otherwise `nil`.
    func offer(_ message: ReceivedMessage) -> MessageVerdict? {
        let (isTaken, match) = state.withValue { state in
            guard !state.isClosed else { return (false, nil as (Waiter, ReceivedMessage)?) }
            // A loop may still have a copy from before a stop. Its verdict applies to both copies.
            if state.taken?.message.isSame(as: message) != true { state.queue.append(message) }
            return (true, state.match())
        }
        if let (waiter, message) = match { waiter.continuation.resume(returning: message) }
        return isTaken ? nil : .deferred
    }

    /// Takes back the queued messages of a task, or all, which no loop has received; called on the client's thread.
    func withdraw(_ task: TaskID? = nil) -> [ReceivedMessage] {
        state.withValue { state in
            let taken = state.queue.filter { task == nil || $0.taskID == task }
            if !taken.isEmpty { state.queue.removeAll { task == nil || $0.taskID == task } }
            return taken
        }
    }

    func next(reader: Int) async -> ReceivedMessage? {
        if let processed = state.withValue({ $0.release(reader) }) { sink(processed, .processed) }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let (ended, match) = state.withValue { state -> (Waiter?, (Waiter, ReceivedMessage)?) in
                    let waiter = Waiter(reader: reader, continuation: continuation)
                    // Checked under the lock, so that a later cancellation finds the waiter.
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

    /// Passes a verdict to `sink`; returns false when no loop has this message.
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

    /// Ends a loop and defers its message.
    func leave(_ reader: Int) {
        if let left = state.withValue({ $0.release(reader) }) { sink(left, .deferred) }
        handOver()
    }

    private func handOver() {
        if let (waiter, message) = state.withValue({ $0.match() }) { waiter.continuation.resume(returning: message) }
    }
}
