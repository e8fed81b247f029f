/// Answers for the loop that asked.
///
/// SAFETY: `@unchecked Sendable` is sound because one loop fills the batch, passes it on whole and never accesses it again. The
/// receiver reuses the batch for its own answers, so no turn allocates an array.
final class AnswerBatch: @unchecked Sendable {
    private var answers: [LoopAnswer] = []

    /// The largest capacity that is kept for reuse.
    private static let keptCount = 4096

    func append(_ answer: LoopAnswer) { answers.append(answer) }

    func forEach(_ body: (LoopAnswer) -> Void) {
        for index in answers.indices { body(answers[index]) }
    }

    /// Removes the answers and keeps the memory; returns `false` if the array is too large to keep.
    func empty() -> Bool {
        answers.removeAll(keepingCapacity: true)
        return answers.capacity <= Self.keptCount
    }
}
