internal import Delivery

/// Results that wait for their partitions; a result that a partition cannot accept is kept and retried.
///
/// A moving partition has no owner for some seconds. If its results were dropped, the jobs' leases would expire and the vendor
/// would alert the devices twice. The handoff API's callers retry themselves, according to the verdict.
final class KeptResults {
    private struct Entry {
        var result: JobResult
        var until: Int64
        var isOfReceiver: Bool
    }

    /// Sends results; returns `false` without sending if too many settlements are in flight.
    typealias Send = ([JobResult], _ complete: @escaping ([ResultVerdict]) -> Void) -> Bool

    /// The number of kept results above which the hook leases no more jobs.
    static let fullCount = 16_384
    /// The number of results per call, as in the handoff API.
    private static let batchCount = 500

    /// Called with the number of expired results of the hook's receiver.
    var givenUp: (Int) -> Void = { _ in }
    private let send: Send
    private var waiting: [Entry] = []
    private var sentCount = 0

    init(send: @escaping Send) { self.send = send }

    /// The number of results that no partition has accepted yet.
    var count: Int { waiting.count + sentCount }

    /// Settles results, with retries until each has a verdict or `until` has passed.
    ///
    /// - Parameters:
    ///   - results: The results of jobs leased by the hook, or returns of jobs that no sender received.
    ///   - until: The time at which the results expire, in the loop's milliseconds.
    ///   - isOfReceiver: Whether the hook's receiver gave the results, so that `givenUp` reports expired ones.
    func settle(_ results: [JobResult], until: Int64, isOfReceiver: Bool = false) {
        settle(results.map { Entry(result: $0, until: until, isOfReceiver: isOfReceiver) })
    }

    /// Retries the kept results; called about once a second.
    func tick(now: Int64) {
        guard !waiting.isEmpty else { return }
        let due = waiting.filter { $0.until > now }
        let lateCount = waiting.count { $0.until <= now && $0.isOfReceiver }
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
