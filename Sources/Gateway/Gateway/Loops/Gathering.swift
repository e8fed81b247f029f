/// A collection of answers that arrive in any order and are passed on together after the last one; confined to one thread.
final class Gathering<Answer> {
    private var answers: [Answer?]
    private var missing: Int
    private var done: (([Answer]) -> Void)?

    /// - Parameters:
    ///   - count: The number of answers. If 0, `done` is called at once.
    ///   - done: Receives the answers in the order of their places.
    init(count: Int, done: @escaping ([Answer]) -> Void) {
        (answers, missing, self.done) = (Array(repeating: nil, count: count), count, done)
        finishIfComplete()
    }

    /// Stores the answer of a place; a second answer for the same place is ignored.
    func take(_ answer: Answer, at place: Int) {
        guard answers.indices.contains(place), answers[place] == nil else { return }
        answers[place] = answer
        missing -= 1
        finishIfComplete()
    }

    /// Stores an answer at the next free place, for callers that need only the number of answers.
    func take(_ answer: Answer) { take(answer, at: answers.count - missing) }

    var isComplete: Bool { missing == 0 }

    private func finishIfComplete() {
        guard missing == 0, let done else { return }
        self.done = nil
        done(answers.compactMap { $0 })
    }
}
