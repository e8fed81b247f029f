import Delivery

@testable import Gateway

/// Partitions without loops, shards or sockets: a test answers what a handler asks.
final class FakePartitions: Partitions {
    struct Question {
        var request: any PartitionRequest
        var partition: Int
        /// Takes the answer; `nil`: no answer.
        var answer: ((any Sendable)?) -> Void
    }

    let partitionCount: Int
    /// Questions without an answer, the oldest first.
    private(set) var open: [Question] = []

    init(partitionCount: Int) { self.partitionCount = partitionCount }

    func ask<Request: PartitionRequest>(
        _ request: Request, of partition: Int, completion: @escaping (Request.Answer) -> Void
    ) {
        open.append(
            Question(request: request, partition: partition) { completion($0 as? Request.Answer ?? request.busy) })
    }

    /// Takes the open questions out.
    func takeOpen() -> [Question] {
        defer { open = [] }
        return open
    }

    /// Answers every open question, and those that follow from the answers, as `body` says.
    func answerAll(_ body: (any PartitionRequest, _ partition: Int) -> (any Sendable)?) {
        while !open.isEmpty {
            let question = open.removeFirst()
            question.answer(body(question.request, question.partition))
        }
    }
}
