/// Answers that come one by one, in any order, handed on together when the last is in.
///
/// A caller asks several loops, or several devices' loops, and goes on once. Like all of a loop it belongs to one thread.
final class Gathering<Answer> {
    private var answers: [Answer?]
    private var missing: Int
    private var done: (([Answer]) -> Void)?

    /// - Parameters:
    ///   - count: how many answers there will be; with none, `done` is called at once.
    ///   - done: gets the answers in the order of their places.
    init(count: Int, done: @escaping ([Answer]) -> Void) {
        (answers, missing, self.done) = (Array(repeating: nil, count: count), count, done)
        finishIfComplete()
    }

    /// Takes the answer of a place; a second one for the same place changes nothing.
    func take(_ answer: Answer, at place: Int) {
        guard answers.indices.contains(place), answers[place] == nil else { return }
        answers[place] = answer
        missing -= 1
        finishIfComplete()
    }

    /// Takes an answer where only their number counts: in the order in which they come.
    func take(_ answer: Answer) { take(answer, at: answers.count - missing) }

    var isComplete: Bool { missing == 0 }

    private func finishIfComplete() {
        guard missing == 0, let done else { return }
        self.done = nil
        done(answers.compactMap { $0 })
    }
}
