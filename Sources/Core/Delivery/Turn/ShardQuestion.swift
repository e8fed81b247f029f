/// A question to one shard, with exactly one answer of a fixed type.
///
/// A question is a Codable structure whose work is in `perform`. The gateway declares its type number for links and its size
/// limits (`PartitionRequest`).
package protocol ShardQuestion: Codable, Sendable {
    associatedtype Answer: Codable, Sendable

    /// Does or begins the work. Each path must end with one `answer` or `answerBusy` for the reply.
    func perform(on shard: inout Shard, _ reply: ShardReply<Answer>)
}

/// The address of an answer of a fixed type.
package struct ShardReply<Answer: Codable & Sendable>: Sendable {
    let origin: Origin
}

extension Shard {
    /// Handles a question; the answer is `Effect.answered`.
    package mutating func ask<Question: ShardQuestion>(_ question: Question, origin: Origin, now: GatewayTime) {
        begin(now)
        question.perform(on: &self, ShardReply(origin: origin))
    }

    /// Sends an answer when everything written so far is durable.
    mutating func answer<Answer>(_ reply: ShardReply<Answer>, _ answer: Answer) {
        whenDurable(.answer(reply.origin, answer))
    }

    /// Answers that nothing changed and that the caller must retry.
    mutating func answerBusy<Answer>(_ reply: ShardReply<Answer>) { whenDurable(.answer(reply.origin, nil)) }
}

extension ShardCore {
    /// Queues an answer until everything written so far is durable; the caller must call `releaseDue` afterwards.
    mutating func answer<Answer>(_ reply: ShardReply<Answer>, _ answer: Answer) {
        outbox.hold(.answer(reply.origin, answer))
    }

    /// Queues the answer that nothing changed, as `answer` does.
    mutating func answerBusy<Answer>(_ reply: ShardReply<Answer>) { outbox.hold(.answer(reply.origin, nil)) }
}
