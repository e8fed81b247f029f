internal import Platform

/// What a loop sees of its mailboxes, whatever they carry.
package class MailboxBase {
    func deliver() { preconditionFailure("override deliver()") }
    func loopStops() { preconditionFailure("override loopStops()") }
}

/// A bounded queue from any thread into one loop, handed over as whole arrays.
///
/// Senders wake the loop once for all they put in before it looks. A full mailbox refuses, and the sender must answer
/// the caller whose command it was; nothing is dropped here.
package final class Mailbox<Message: Sendable>: MailboxBase, @unchecked Sendable {
    // Sound because `inbox` is a lock, and `receive` and `batch` are the loop's alone.
    private struct Inbox {
        var messages: [Message] = []
        var isClosed = false
    }

    package let capacity: Int
    private let loop: EventLoop
    private let inbox = Lock(Inbox())
    private var receive: (inout [Message]) -> Void
    private var batch: [Message] = []

    /// Opens a mailbox of at most `capacity` waiting messages into `loop`; to be called on the loop.
    ///
    /// `receive` gets everything that waits, in the order of arrival; what it leaves in the array is gone. It keeps the
    /// array's memory by emptying it with `removeAll(keepingCapacity: true)`, which happens by itself if it does not.
    package init(into loop: EventLoop, capacity: Int, receive: @escaping (inout [Message]) -> Void) {
        precondition(capacity > 0, "a mailbox holds at least one message")
        (self.loop, self.capacity, self.receive) = (loop, capacity, receive)
        super.init()
        loop.add(self)
    }

    /// Puts in one message; `false` if the mailbox is full or its loop has ended.
    package func send(_ message: Message) -> Bool {
        let isIn = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.messages.count < capacity else { return false }
            inbox.messages.append(message)
            return true
        }
        if isIn { loop.wake() }
        return isIn
    }

    /// Puts in all `messages` and empties the array, or refuses all and leaves it.
    ///
    /// A batch larger than `capacity` never fits.
    package func send(contentsOf messages: inout [Message]) -> Bool {
        guard !messages.isEmpty else { return true }
        let isIn = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.messages.count + messages.count <= capacity else { return false }
            if inbox.messages.isEmpty {
                // The common case moves no message: the loop gets the sender's array and the sender the loop's old one.
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

    /// Puts in as many `messages` from the front as there is room for; those that stay in the array were not sent.
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

    /// Messages that wait now; for metrics.
    package var count: Int { inbox.withLock { $0.messages.count } }

    override func deliver() {
        inbox.withLock { swap(&$0.messages, &batch) }
        guard !batch.isEmpty else { return }
        // Moved out first, so that `receive` may send to this very mailbox.
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
