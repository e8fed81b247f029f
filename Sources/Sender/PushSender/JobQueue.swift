internal import Structures

/// A lane's queue of waiting jobs.
///
/// `takeLate` and `takeBeyondShare` remove the jobs that the lane returns to the gateway unsent.
struct JobQueue<Job: HandoffJob>: ~Copyable {
    /// The remaining lease that a job needs, in milliseconds, so that a request ends within the lease.
    private let neededMilliseconds: UInt64
    private var jobs = Ring<Job>()
    private var looksForLateAt: UInt64 = 0

    init(neededMilliseconds: UInt64) { self.neededMilliseconds = neededMilliseconds }

    var count: Int { jobs.count }
    var isEmpty: Bool { jobs.isEmpty }
    var first: Job? { jobs.first }
    mutating func append(_ job: Job) { jobs.append(job) }
    mutating func popFirst() -> Job? { jobs.popFirst() }

    /// Whether a request that starts now ends within the job's lease, by its answer or its timeout.
    func isInTime(_ job: Job, _ now: UInt64) -> Bool { job.deadline >= now + neededMilliseconds }

    /// Removes the jobs that can no longer be sent within their leases; scans the queue at most once a second.
    mutating func takeLate(_ now: UInt64) -> [Job] {
        guard now >= looksForLateAt else { return [] }
        looksForLateAt = now + 1_000
        var late: [Job] = []
        for _ in 0..<jobs.count {
            guard let job = jobs.popFirst() else { break }
            if isInTime(job, now) { jobs.append(job) } else { late.append(job) }
        }
        return late
    }

    /// Removes the jobs beyond a failing lane's share, so that one failed destination does not block the others.
    ///
    /// Returns them with the seconds after which they are due again.
    mutating func takeBeyondShare(
        of limit: Int, among failingCount: Int, _ now: UInt64, since: UInt64
    ) -> (jobs: [Job], retryAfter: Int64) {
        let share = max(1, limit / max(1, failingCount))
        var beyond: [Job] = []
        while jobs.count > share, let job = jobs.popFirst() { beyond.append(job) }
        return (beyond, Int64(min(60, max(5, (now - min(now, since)) / 1_000))))
    }

    mutating func takeAll() -> [Job] {
        var all: [Job] = []
        while let job = jobs.popFirst() { all.append(job) }
        return all
    }
}
