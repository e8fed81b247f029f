/// Answers on their way to the loop that asked.
///
/// Sound to send because one loop fills it, gives it away whole and never looks again; the receiver keeps it for its own
/// answers to others, so that no turn makes an array anew.
final class AnswerBatch: @unchecked Sendable {
    private var answers: [LoopAnswer] = []

    /// More than this is not kept for another turn.
    private static let keptCount = 4096

    func append(_ answer: LoopAnswer) { answers.append(answer) }

    func forEach(_ body: (LoopAnswer) -> Void) {
        for index in answers.indices { body(answers[index]) }
    }

    /// Forgets the answers and keeps the memory; false when that is too much to keep.
    func empty() -> Bool {
        answers.removeAll(keepingCapacity: true)
        return answers.capacity <= Self.keptCount
    }
}
