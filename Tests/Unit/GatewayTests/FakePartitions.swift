import Delivery

@testable import Gateway

/// Partitions without loops, shards or sockets; the test answers a handler's questions.
final class FakePartitions: Partitions {
    struct Question {
        var request: any PartitionRequest
        var partition: Int
        /// Receives the answer, or `nil` without one.
        var answer: ((any Sendable)?) -> Void
    }

    let partitionCount: Int
    /// Unanswered questions, oldest first.
    private(set) var open: [Question] = []

    init(partitionCount: Int) { self.partitionCount = partitionCount }

    func ask<Request: PartitionRequest>(
        _ request: Request, of partition: Int, completion: @escaping (Request.Answer) -> Void
    ) {
        open.append(
            Question(request: request, partition: partition) { completion($0 as? Request.Answer ?? request.busy) })
    }

    func takeOpen() -> [Question] {
        defer { open = [] }
        return open
    }

    /// Answers every open question, and those that follow from the answers, with `body`.
    func answerAll(_ body: (any PartitionRequest, _ partition: Int) -> (any Sendable)?) {
        while !open.isEmpty {
            let question = open.removeFirst()
            question.answer(body(question.request, question.partition))
        }
    }
}
