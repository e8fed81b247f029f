/// The messages of a client, one at a time and in order.
///
/// When the loop asks for the next message, the one before is processed: it is recorded, then acked. A loop that ends in
/// the middle of a message leaves it un-acked, and it comes again in a later session; `LongwireClient.finish` decides
/// earlier. The sequence ends when the client has stopped or the task is cancelled. One loop reads at a time: a new one
/// ends the one before it.
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

/// Where the client's thread, which waits for a verdict, and a loop, which waits for a message, come together.
final class MessageChannel: Sendable {
    private struct Offer {
        let message: ReceivedMessage
        /// Opens with the verdict.
        let latch: Latch
        /// The loop that has the message.
        var reader: Int?
        var verdict: MessageVerdict?
    }

    private struct Waiter {
        let reader: Int
        let continuation: CheckedContinuation<ReceivedMessage?, Never>
    }

    private struct State {
        var offer: Offer?
        var waiter: Waiter?
        var isClosed = false
        var readerCount = 0

        mutating func decide(_ verdict: MessageVerdict) {
            guard let offer, offer.verdict == nil else { return }
            self.offer?.verdict = verdict
            offer.latch.open()
        }

        mutating func takeWaiter() -> Waiter? {
            defer { waiter = nil }
            return waiter
        }
    }

    private let state = Guarded(State())

    func makeReader() -> Int {
        state.withValue { state in
            state.readerCount += 1
            return state.readerCount
        }
    }

    func open() { state.withValue { $0.isClosed = false } }

    /// Ends the loops; a message that no loop has is deferred, one that a loop has waits for its verdict.
    func close() {
        let waiter = state.withValue { state in
            state.isClosed = true
            if state.offer?.reader == nil { state.decide(.deferred) }
            return state.takeWaiter()
        }
        waiter?.continuation.resume(returning: nil)
    }

    /// Hands the message to a loop and waits for the verdict; on the client's thread.
    func offer(_ message: ReceivedMessage) -> MessageVerdict {
        let latch = Latch()
        let waiter = state.withValue { state -> Waiter? in
            guard !state.isClosed else {
                latch.open()
                return nil
            }
            let waiter = state.takeWaiter()
            state.offer = Offer(message: message, latch: latch, reader: waiter?.reader)
            return waiter
        }
        waiter?.continuation.resume(returning: message)
        latch.wait()
        return state.withValue { state in
            defer { state.offer = nil }
            return state.offer?.verdict ?? .deferred
        }
    }

    func next(reader: Int) async -> ReceivedMessage? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let (resumed, message) = state.withValue { state -> (Waiter?, ReceivedMessage?) in
                    if state.offer?.reader == reader { state.decide(.processed) }
                    let waiter = Waiter(reader: reader, continuation: continuation)
                    // Under the lock: a cancellation behind this line finds the waiter.
                    guard !state.isClosed, !Task.isCancelled else { return (waiter, nil) }
                    if let offer = state.offer, offer.reader == nil, offer.verdict == nil {
                        state.offer?.reader = reader
                        return (waiter, offer.message)
                    }
                    defer { state.waiter = waiter }
                    return (state.takeWaiter(), nil)
                }
                resumed?.continuation.resume(returning: message)
            }
        } onCancel: {
            let waiter = state.withValue { $0.waiter?.reader == reader ? $0.takeWaiter() : nil }
            waiter?.continuation.resume(returning: nil)
        }
    }

    /// False when this message waits for no verdict.
    func decide(_ message: ReceivedMessage, _ verdict: MessageVerdict) -> Bool {
        state.withValue { state in
            guard let offer = state.offer, offer.verdict == nil, offer.reader != nil,
                (offer.message.stream, offer.message.sequence) == (message.stream, message.sequence)
            else { return false }
            state.decide(verdict)
            return true
        }
    }

    /// The loop has ended.
    func leave(_ reader: Int) {
        state.withValue { if $0.offer?.reader == reader { $0.decide(.deferred) } }
    }
}
