internal import Platform

package class MailboxBase {
    func deliver() { preconditionFailure("override deliver()") }
    func loopStops() { preconditionFailure("override loopStops()") }
}

/// A bounded queue from any thread to one loop, delivered as whole arrays.
///
/// Senders wake the loop once for all messages sent before it reads them. A full mailbox refuses messages, and the sender must
/// report the error to its caller. Accepted messages are not dropped while the loop runs.
package final class Mailbox<Message: Sendable>: MailboxBase, @unchecked Sendable {
    // Safe: `inbox` is a lock, and only the loop uses `receive` and `batch`.
    private struct Inbox {
        var messages: [Message] = []
        var isClosed = false
    }

    package let capacity: Int
    private let loop: EventLoop
    private let inbox = Lock(Inbox())
    private var receive: (inout [Message]) -> Void
    private var batch: [Message] = []

    /// Creates a mailbox of at most `capacity` pending messages into `loop`; must be called on the loop.
    ///
    /// `receive` gets all pending messages in order of arrival. Messages left in the array are discarded.
    package init(into loop: EventLoop, capacity: Int, receive: @escaping (inout [Message]) -> Void) {
        precondition(capacity > 0, "a mailbox holds at least one message")
        (self.loop, self.capacity, self.receive) = (loop, capacity, receive)
        super.init()
        loop.add(self)
    }

    /// Sends a message; returns `false` if the mailbox is full or its loop has ended.
    package func send(_ message: Message) -> Bool {
        let isIn = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.messages.count < capacity else { return false }
            inbox.messages.append(message)
            return true
        }
        if isIn { loop.wake() }
        return isIn
    }

    /// Sends all `messages` and empties the array, or refuses all of them; a batch larger than `capacity` is always refused.
    package func send(contentsOf messages: inout [Message]) -> Bool {
        guard !messages.isEmpty else { return true }
        let isIn = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.messages.count + messages.count <= capacity else { return false }
            if inbox.messages.isEmpty {
                // The common case copies no messages: the arrays of sender and loop are swapped.
                swap(&inbox.messages, &messages)
            } else {
                inbox.messages.append(contentsOf: messages)
                messages.removeAll(keepingCapacity: true)
            }
            return true
        }
        if isIn { loop.wake() }
        return isIn
    }

    /// Sends as many `messages` from the front as there is capacity for; the others stay in the array.
    package func send(prefixOf messages: inout [Message]) {
        guard !messages.isEmpty else { return }
        let sentCount = inbox.withLock { inbox in
            guard !inbox.isClosed else { return 0 }
            let count = min(messages.count, capacity - inbox.messages.count)
            guard count > 0 else { return 0 }
            inbox.messages.append(contentsOf: messages[..<count])
            return count
        }
        guard sentCount > 0 else { return }
        messages.removeFirst(sentCount)
        loop.wake()
    }

    package var count: Int { inbox.withLock { $0.messages.count } }

    override func deliver() {
        inbox.withLock { swap(&$0.messages, &batch) }
        guard !batch.isEmpty else { return }
        // Moved out first, so that `receive` may send to this mailbox.
        var taken: [Message] = []
        swap(&taken, &batch)
        receive(&taken)
        taken.removeAll(keepingCapacity: true)
        batch = taken
    }

    override func loopStops() {
        deliver()
        inbox.withLock { inbox in
            inbox.isClosed = true
            inbox.messages = []
        }
        receive = { _ in }
    }
}
