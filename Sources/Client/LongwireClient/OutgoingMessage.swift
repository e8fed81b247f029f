public import Wire

/// A message from the app to its server.
///
/// The client keeps it in its state until the gateway has it on disk or refuses it permanently. It therefore survives a
/// restart, a lost answer does not duplicate it, and messages arrive in the order of their numbers.
public struct OutgoingMessage: Equatable, Sendable {
    /// The message's number on this device.
    ///
    /// Numbers are consecutive. 0 if the client's queue was full.
    public let number: UInt32
    /// The message's content.
    public let payload: [UInt8]
    /// The task that this message answers, or `none`.
    public let task: TaskID

    var line: String { "send \(number) \(task) \(ClientState.hex(payload))" }

    init(number: UInt32, payload: [UInt8], task: TaskID) {
        (self.number, self.payload, self.task) = (number, payload, task)
    }

    init?(values: [Substring]) {
        guard values.count == 3, let number = UInt32(values[0]), let task = TaskID(values[1]),
            let payload = ClientState.bytes(hex: values[2])
        else { return nil }
        self.init(number: number, payload: payload, task: task)
    }
}

extension ClientState {
    /// Numbers and keeps a message; returns `nil` when the queue is full.
    mutating func keep(_ payload: [UInt8], answering task: TaskID) -> OutgoingMessage? {
        let byteCount = outgoing.reduce(payload.count) { $0 + $1.payload.count }
        guard outgoing.count < Limits.outgoingCount, byteCount <= Limits.outgoingByteCount else { return nil }
        lastOutgoing = lastOutgoing == .max ? 1 : lastOutgoing + 1
        let message = OutgoingMessage(number: lastOutgoing, payload: payload, task: task)
        outgoing.append(message)
        return message
    }
}

extension ClientCore {
    /// Whether the first kept message is in flight, and the time of its next attempt.
    struct Outgoing {
        var isSent = false
        var retryAt: Int64?
    }

    mutating func send(_ payload: [UInt8], answering task: TaskID, at now: ClientTime) {
        guard state.keep(payload, answering: task) != nil else {
            let message = OutgoingMessage(number: 0, payload: payload, task: task)
            let reason = "too many messages wait for the gateway already"
            return actions.append(.report(.messageRefused(message, code: 0, reason: reason)))
        }
        persist()
        sendOutgoing(at: now)
    }

    /// Sends the first kept message, one at a time, so that no later message overtakes a message that is retried.
    mutating func sendOutgoing(at now: ClientTime) {
        guard phase == .ready, !outgoing.isSent, outgoing.retryAt ?? .min <= now.monotonic else { return }
        outgoing = Outgoing()
        guard let first = state.outgoing.first else { return }
        var upstream = Upstream()
        (upstream.request, upstream.payload, upstream.taskID) = (first.number, first.payload, first.task)
        outgoing.isSent = true
        send(upstream, at: now)
    }

    mutating func receive(_ result: UpstreamResult, at now: ClientTime) {
        guard let first = state.outgoing.first, first.number == result.request, outgoing.isSent else { return }
        outgoing = Outgoing()
        if result.code >= Limits.firstRetriedCode {
            let isFull = result.code != Limits.busyCode
            outgoing.retryAt =
                now.monotonic + (isFull ? Limits.fullRetryMilliseconds : Limits.busyRetryMilliseconds)
            return
        }
        state.outgoing.removeFirst()
        persist()
        actions.append(
            .report(
                result.code == 0
                    ? .messageTaken(first) : .messageRefused(first, code: result.code, reason: result.reason)))
        sendOutgoing(at: now)
    }
}
