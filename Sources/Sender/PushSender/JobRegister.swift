internal import EventLoops
internal import JSON
internal import Platform

/// A queue of jobs for one destination.
protocol JobLane: AnyObject {
    var isMarked: Bool { get set }
    /// The time since which the destination is unreachable or silent, or `nil`.
    var failsSince: UInt64? { get }
    /// The number of held jobs, including those in flight.
    var heldCount: Int { get }
    /// Sends waiting jobs as far as there is room.
    func dispatch()
}

/// The sender of one channel's jobs.
protocol ChannelSender: AnyObject {
    var register: JobRegister { get }
    /// Begins a job that `register` has taken.
    func begin(_ job: HandoffJob)
    func beginStop()
    func abandon()
}

/// An app whose jobs no credential serves.
struct MissingCredential: CustomStringConvertible {
    static let limit = 1_000

    /// The app with its environment or channel, for the log.
    let name: String
    let channel: String
    let app: String
    /// The time of the last job, in milliseconds of the loop.
    var lastAt: UInt64 = 0
    var nextLogAt: UInt64 = 0

    var description: String { "\(name): no credential is configured for it" }

    func isRecent(_ now: UInt64) -> Bool { now < lastAt + 600_000 }
}

/// The held jobs of one channel, and their outcomes.
///
/// All lanes of the channel end their jobs here. Confined to the sender's loop.
final class JobRegister {
    let channel: Channel
    let loop: EventLoop
    let log: SenderLog
    var metrics = SenderMetrics()
    private(set) var isStopping = false
    /// Jobs by id, until `results` gets their outcome.
    private var inHand: [String: HandoffJob] = [:]
    var inHandCount: Int { inHand.count }
    private var outcomes: [JobOutcome] = []
    private var marked: [any JobLane] = []
    /// A callback for the outcomes of a turn.
    private let results: ([JobOutcome]) -> Void
    /// Returns the final outcomes that the gateway does not have yet.
    private let unreported: () -> [String: JobOutcome]
    private let wall: () -> UInt64
    /// The number of lanes whose destination is unreachable or does not answer.
    private(set) var failingCount = 0
    /// A callback for the number of jobs in failing lanes, which take no room from others.
    private let setAside: (Int) -> Void
    private var setAsideCount = 0
    /// Jobs that no credential serves, by the name in the log.
    private var missingCredentials: [String: MissingCredential] = [:]
    private var unknownAnswers: Set<String> = []

    /// `results` gets outcomes on the loop, in the order of their occurrence.
    init(
        of channel: Channel, on loop: EventLoop, log: SenderLog,
        wall: @escaping () -> UInt64 = { SystemClock.wallMilliseconds },
        unreported: @escaping () -> [String: JobOutcome] = { [:] }, setAside: @escaping (Int) -> Void = { _ in },
        results: @escaping ([JobOutcome]) -> Void
    ) {
        (self.channel, self.loop, self.log, self.wall) = (channel, loop, log, wall)
        (self.unreported, self.setAside, self.results) = (unreported, setAside, results)
        loop.onTurnEnd { [unowned self] in endTurn() }
    }

    var wallMilliseconds: Int64 { Int64(wall()) }
    var wallSeconds: Int64 { wallMilliseconds / 1_000 }

    // MARK: Jobs

    /// Takes jobs of a lease answer or a hook call; `begin` gets those that must be sent.
    ///
    /// Returns the number of new jobs. `lease` computes a job's lease time, because the gateway's clock may differ from this
    /// machine's.
    func take(
        _ jobs: [HandoffJob], unreadable: [UnreadableJob] = [], lease: (HandoffJob) -> JobLease,
        begin: (HandoffJob) -> Void
    ) -> Int {
        // Only a job that was leased before can have an outcome here, so most calls need no lookup.
        let known = jobs.contains { $0.attempt > 1 } ? unreported() : [:]
        for job in unreadable {
            metrics.jobsUnreadable += 1
            outcomes.append(
                JobOutcome(
                    jobID: job.id, leaseID: job.leaseID, kind: .rejected,
                    reason: String("unreadable \(job.field)".prefix(64))))
        }
        var newCount = unreadable.count
        for job in jobs {
            let lease = lease(job)
            job.deadline = loop.now + UInt64(min(max(0, lease.left), 3_600_000))
            job.noteWait(lease: lease.length)
            if let held = inHand[job.id] {
                // A repeated hook call, or a new lease of a job whose earlier lease expired while a request was in flight.
                (held.leaseID, held.deadline) = (job.leaseID, job.deadline)
                continue
            }
            newCount += 1
            metrics.jobsTaken += 1
            if var outcome = known[job.id] {
                // The vendor has decided, but the gateway lacks the result. It is reported again under the new lease.
                metrics.repeatedOutcomes += 1
                outcome.leaseID = job.leaseID
                outcomes.append(outcome)
                continue
            }
            inHand[job.id] = job
            job.takenAt = loop.now
            if isStopping { giveBack(job, "senderStops") } else { begin(job) }
        }
        return newCount
    }

    func finish(
        _ job: HandoffJob, _ kind: JobOutcome.Kind, _ reason: String, vendorID: String = "", timestamp: Int64 = 0,
        retryAfter: Int64? = nil
    ) {
        inHand[job.id] = nil
        metrics.outcomes[kind, default: 0] += 1
        outcomes.append(
            JobOutcome(
                jobID: job.id, leaseID: job.leaseID, kind: kind, reason: String(reason.prefix(64)), vendorID: vendorID,
                timestamp: timestamp, retryAfterSeconds: Self.pause(job, kind, reason, retryAfter)))
    }

    /// Returns a job to the gateway as unsent, unless the vendor may have the notification.
    func giveBack(_ job: HandoffJob, _ reason: String, retryAfter: Int64? = nil) {
        finish(job, job.mayBeTaken ? .retry : .unsent, reason, retryAfter: retryAfter)
    }

    /// Returns a job without a credential, and logs the missing credential at most once a minute.
    func giveBackWithoutCredential(_ job: HandoffJob, _ name: String) {
        giveBack(job, "noCredential", retryAfter: 300)
        let now = loop.now
        if missingCredentials[name] == nil, missingCredentials.count >= MissingCredential.limit {
            missingCredentials = missingCredentials.filter { $0.value.isRecent(now) }
            if missingCredentials.count >= MissingCredential.limit { missingCredentials = [:] }
        }
        var missing = missingCredentials[name] ?? MissingCredential(name: name, channel: job.channel, app: job.appID)
        missing.lastAt = now
        if now >= missing.nextLogAt {
            missing.nextLogAt = now + 60_000
            log.write("noCredential", missing.description)
        }
        missingCredentials[name] = missing
    }

    /// Returns the missing credentials of the last ten minutes, in the order of their names.
    ///
    /// A job is due again after five minutes, so an app stays in the list while jobs of it wait.
    func missing(_ now: UInt64) -> [MissingCredential] {
        missingCredentials.values.filter { $0.isRecent(now) }.sorted { $0.name < $1.name }
    }

    /// Returns the delay in seconds before the job is due again, or `nil` for a final outcome.
    private static func pause(
        _ job: HandoffJob, _ kind: JobOutcome.Kind, _ reason: String, _ given: Int64?
    ) -> Int64? {
        switch kind {
        case .accepted, .rejected, .badToken: return nil
        // After `senderStops`, another sender or the next process may take the job at once.
        case .unsent: return max(1, given ?? (reason == "senderStops" ? 1 : 5))
        case .retry:
            // The gateway gives up after a few leases. These steps keep a vendor's outage from using them up.
            let steps: [Int64] = [5, 30, 180, 1_080, 3_600]
            return max(given ?? 0, steps[min(max(job.attempt, 1), steps.count) - 1])
        }
    }

    // MARK: Turn

    /// Marks a lane for `dispatch` at the end of this turn.
    func mark(_ lane: any JobLane) {
        guard !lane.isMarked else { return }
        lane.isMarked = true
        marked.append(lane)
    }

    private func endTurn() {
        while !marked.isEmpty {
            let lanes = marked
            marked = []
            for lane in lanes {
                lane.isMarked = false
                lane.dispatch()
            }
        }
        guard !outcomes.isEmpty else { return }
        results(outcomes)
        outcomes.removeAll(keepingCapacity: true)
    }

    /// Counts the failing lanes and their jobs.
    func noteFailing(_ lanes: [any JobLane]) {
        let failing = lanes.filter { $0.failsSince != nil }
        failingCount = failing.count
        let jobs = failing.reduce(0) { $0 + $1.heldCount }
        guard jobs != setAsideCount else { return }
        setAsideCount = jobs
        setAside(jobs)
    }

    func stop() { isStopping = true }

    /// Returns whether an unknown answer is new, for the log; at most 100 are remembered.
    func noteUnknown(_ reason: String) -> Bool {
        unknownAnswers.count < 100 && unknownAnswers.insert(reason).inserted
    }

    /// Counts an answer by the vendor's reason; the number of distinct reasons is limited.
    func noteAnswer(_ name: String) {
        let isKnown = metrics.answers[name] != nil || metrics.answers.count < 128
        metrics.answers[isKnown ? name : "other", default: 0] += 1
    }
}
