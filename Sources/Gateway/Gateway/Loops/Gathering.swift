/// A collection of answers that arrive in any order and are passed on together after the last one; confined to one thread.
final class Gathering<Answer> {
    private var answers: [Answer?]
    private var missing: Int
    private var completion: (([Answer]) -> Void)?

    /// - Parameters:
    ///   - count: The number of answers. If 0, `completion` runs at once.
    ///   - completion: Receives the answers in the order of their places.
    init(count: Int, completion: @escaping ([Answer]) -> Void) {
        (answers, missing, self.completion) = (Array(repeating: nil, count: count), count, completion)
        finishIfComplete()
    }

    /// Stores the answer of a place; a second answer for the same place is ignored.
    func take(_ answer: Answer, at place: Int) {
        guard answers.indices.contains(place), answers[place] == nil else { return }
        answers[place] = answer
        missing -= 1
        finishIfComplete()
    }

    /// Stores an answer at the next free place, for callers that do not need the order of the answers.
    func take(_ answer: Answer) { take(answer, at: answers.count - missing) }

    var isComplete: Bool { missing == 0 }

    private func finishIfComplete() {
        guard missing == 0, let completion else { return }
        self.completion = nil
        completion(answers.compactMap { $0 })
    }
}

extension Collection {
    /// Returns the values; `nil` if one of them is missing.
    func allOrNil<Value>() -> [Value]? where Element == Value? {
        let values = compactMap { $0 }
        return values.count == count ? values : nil
    }
}
