internal import Delivery

/// Results of the hook on their way to their parts: what a part cannot take now is kept and sent again.
///
/// A part has no owner for some seconds when it moves. Were a result dropped then, its job's lease would lapse, and the
/// vendor would alert the device a second time. The handoff API's callers keep their results themselves, by the verdict.
final class KeptResults {
    private struct Entry {
        var result: JobResult
        var until: Int64
    }

    /// Sends results off; `false` when too many settlements are under way, and nothing was sent.
    typealias Send = ([JobResult], _ complete: @escaping ([ResultVerdict]) -> Void) -> Bool

    /// More than this kept, and the hook leases nothing more.
    static let fullCount = 16_384
    /// Results in one call, as the handoff API takes them.
    private static let batchCount = 500

    /// Told how many results were given up, at the end of their time.
    var givenUp: (Int) -> Void = { _ in }
    private let send: Send
    private var waiting: [Entry] = []
    private var sentCount = 0

    init(send: @escaping Send) { self.send = send }

    /// Results that no part has taken yet.
    var count: Int { waiting.count + sentCount }

    /// Settles results, again and again until each has a verdict of its part's, or `until` has come.
    ///
    /// - Parameters:
    ///   - results: of jobs that the hook has leased.
    ///   - until: when a result is of no use any more, in the loop's milliseconds.
    func settle(_ results: [JobResult], until: Int64) { settle(results.map { Entry(result: $0, until: until) }) }

    /// Sends again what no part took; about once a second.
    func tick(now: Int64) {
        guard !waiting.isEmpty else { return }
        let due = waiting.filter { $0.until > now }
        let lateCount = waiting.count - due.count
        waiting = []
        settle(due)
        if lateCount > 0 { givenUp(lateCount) }
    }

    private func settle(_ entries: [Entry]) {
        for start in stride(from: 0, to: entries.count, by: Self.batchCount) {
            let batch = entries[start..<min(entries.count, start + Self.batchCount)]
            sentCount += batch.count
            let isSent = send(batch.map(\.result)) { [self] verdicts in
                take(batch, verdicts.map { $0.verdict == .storeFailed })
            }
            if !isSent { take(batch, batch.map { _ in true }) }
        }
    }

    private func take(_ batch: ArraySlice<Entry>, _ isToRepeat: [Bool]) {
        sentCount -= batch.count
        for (entry, isToRepeat) in zip(batch, isToRepeat) where isToRepeat { waiting.append(entry) }
    }
}
