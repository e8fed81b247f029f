internal import APNs
internal import EventLoops
internal import JSON
internal import Platform

/// The operator's log, one line per occurrence.
struct SenderLog: Sendable {
    var write: @Sendable (_ event: String, _ text: String) -> Void

    /// The level of an event, as in the gateway's log, and its priority in syslog(3).
    static func level(of event: String) -> (name: String, priority: Int) {
        switch event {
        case "started", "reloaded", "stopping", "stopped", "terminalClosed": ("info", 6)
        case "credentialRefused", "noCredential", "reloadRefused": ("error", 3)
        default: ("warning", 4)
        }
    }

    func credentialRefused(_ lane: String, _ answer: Answer, topic: String?, clock: ClockDifference?) {
        let advice =
            Reason(rawValue: answer.reason).map { "\($0.advice)" } ?? "see Apple's documentation of this reason"
        let clock = clock.flatMap { $0.isTooLarge ? "; \($0)" : nil } ?? ""
        write("credentialRefused", "\(lane)\(topic.map { ", topic \($0)" } ?? ""): \(answer.name): \(advice)\(clock)")
    }

    func connectionFailed(_ lane: String, _ host: String, _ reason: String, count: Int) {
        // Logs the first three failures, then each time the number doubles.
        guard count <= 3 || count & (count - 1) == 0 else { return }
        write("connectionFailed", "\(lane): \(host): \(reason) (\(count) in a row)")
    }
}

/// The difference between this machine's clock and the date of Apple's answer.
struct ClockDifference: Equatable, CustomStringConvertible {
    /// The difference in seconds; positive if this machine is ahead.
    var seconds: Int64

    /// Apple accepts provider tokens for an hour; a difference below a minute may come from network delay.
    var isTooLarge: Bool { abs(seconds) > 60 }

    var description: String {
        let size = abs(seconds)
        let text = size >= 3_600 ? "\(size / 3_600) h \(size % 3_600 / 60) min" : "\(size / 60) min \(size % 60) s"
        return "this machine's clock is \(text) \(seconds > 0 ? "ahead of" : "behind") Apple's: set it"
    }
}

/// The core of the sender: takes jobs, sends requests to Apple and returns results.
///
/// Confined to its loop.
final class Sender {
    let loop: EventLoop
    let log: SenderLog
    var metrics = SenderMetrics()
    var tokens: TokenMemory
    private(set) var isStopping = false
    /// The clock difference from the newest refusal that has a date.
    private(set) var clockDifference: ClockDifference?
    /// Jobs by id, until `results` gets their outcome.
    private var inHand: [String: HandoffJob] = [:]
    var inHandCount: Int { inHand.count }
    private var credentials: [String: [Credential]]
    private var otherCredentials: [Credential]
    private let endpoints: [Environment: Lane.Endpoint]
    private let limits: Lane.Limits
    private var lanes: [String: Lane] = [:]
    /// Lanes of replaced credentials, until their requests have ended.
    private var retired: [Lane] = []
    private var marked: [Lane] = []
    private var outcomes: [JobOutcome] = []
    private let parser = JSONParser(depthLimit: JSONParser.standardDepth + HandoffBounds.jobDepth)
    /// A callback for the outcomes of a turn.
    private let results: ([JobOutcome]) -> Void
    private let resolver: (Lane.Endpoint, @escaping (Result<[RemoteAddress], RemoteAddress.Failure>) -> Void) -> Void
    private let wall: () -> UInt64
    /// Returns the final outcomes that the gateway does not have yet.
    private let unreported: () -> [String: JobOutcome]
    /// The number of lanes whose environment is unreachable or does not answer.
    private(set) var failingCount = 0
    /// A callback for the number of jobs in failing lanes, which take no room from others.
    private let setAside: (Int) -> Void
    private var setAsideCount = 0
    /// Apps without a credential, and the time when each is logged again.
    private var missingCredentials: [String: UInt64] = [:]

    /// Creates a sender with `credentials` for single apps and `otherCredentials` for all others.
    ///
    /// `resolver` resolves addresses off the loop and calls back on it. `results` gets outcomes on the loop, in the order of
    /// their occurrence.
    init(
        on loop: EventLoop, credentials: [String: [Credential]], otherCredentials: [Credential],
        endpoints: [Environment: Lane.Endpoint], limits: Lane.Limits = Lane.Limits(), rememberedTokens: Int = 100_000,
        log: SenderLog, wall: @escaping () -> UInt64 = { SystemClock.wallMilliseconds },
        resolver: @escaping (Lane.Endpoint, @escaping (Result<[RemoteAddress], RemoteAddress.Failure>) -> Void) -> Void,
        unreported: @escaping () -> [String: JobOutcome] = { [:] }, setAside: @escaping (Int) -> Void = { _ in },
        results: @escaping ([JobOutcome]) -> Void
    ) {
        (self.loop, self.log, self.wall) = (loop, log, wall)
        (self.credentials, self.otherCredentials) = (credentials, otherCredentials)
        (self.endpoints, self.limits) = (endpoints, limits)
        (self.resolver, self.results, self.unreported, self.setAside) = (resolver, results, unreported, setAside)
        tokens = TokenMemory(limit: rememberedTokens)
        loop.onTurnEnd { [unowned self] in endTurn() }
        loop.onTick { [unowned self] now in
            for lane in lanes.values { lane.tick(now) }
            for lane in retired { lane.tick(now) }
            noteFailing()
            retired.removeAll { $0.connections.isEmpty && $0.waitingCount == 0 }
        }
    }

    var wallMilliseconds: Int64 { Int64(wall()) }
    var allLanes: [Lane] { lanes.values.sorted { $0.name < $1.name } }

    // MARK: Jobs

    /// Takes the jobs of a lease answer or a hook call.
    ///
    /// Returns the number of new jobs. `lease` computes a job's lease time, because the gateway's clock may differ from this
    /// machine's.
    func take(
        _ bytes: [UInt8], lease: (HandoffJob) -> JobLease
    ) throws(HandoffJobReader.Failure) -> Int {
        let reader = try HandoffJobReader(bytes, parser: parser)
        metrics.jobsUnreadable += UInt64(reader.namelessCount)
        // Only a job with an earlier lease can have an outcome here. Most jobs have none.
        let known = reader.jobs.contains { $0.attempt > 1 } ? unreported() : [:]
        for job in reader.unreadable {
            metrics.jobsUnreadable += 1
            outcomes.append(
                JobOutcome(jobID: job.id, leaseID: job.leaseID, kind: .rejected, reason: "unreadable \(job.field)"))
        }
        var newCount = reader.unreadable.count
        for job in reader.jobs {
            let lease = lease(job)
            job.deadline = loop.now + UInt64(min(max(0, lease.left), 3_600_000))
            job.noteWait(lease: lease.length)
            if let held = inHand[job.id] {
                // A repeated hook call, or a new lease after one that expired with a request in flight.
                (held.leaseID, held.deadline) = (job.leaseID, job.deadline)
                continue
            }
            newCount += 1
            if var outcome = known[job.id] {
                // Apple has decided, but the gateway lacks the result. It is reported again under the new lease.
                metrics.jobsTaken += 1
                metrics.repeatedOutcomes += 1
                outcome.leaseID = job.leaseID
                outcomes.append(outcome)
                continue
            }
            take(job)
        }
        return newCount
    }

    private func take(_ job: HandoffJob) {
        metrics.jobsTaken += 1
        inHand[job.id] = job
        job.takenAt = loop.now
        let notification = job.notification
        if isStopping { return giveBack(job, "senderStops") }
        if let breach = RequestRules.breach(of: notification, job.facts) {
            return finish(job, "\(breach.reason)" == "BadDeviceToken" ? .badToken : .rejected, "\(breach.reason)")
        }
        if let until = tokens.restsUntil(notification.token, now: Int64(loop.now)) {
            let seconds = (until - Int64(loop.now) + 999) / 1_000
            return giveBack(job, Reason.tooManyRequests.rawValue, retryAfter: seconds)
        }
        job.environment = tokens.environment(of: notification.token, registered: notification.environment)
        // A reload may have removed the credential of the remembered environment.
        if credential(of: job.appID, job.environment) == nil { job.environment = notification.environment }
        guard let lane = lane(of: job.appID, job.environment) else {
            noteMissingCredential(job)
            return giveBack(job, "noCredential", retryAfter: 300)
        }
        lane.add(job)
    }

    /// Logs a missing credential once a minute per app.
    private func noteMissingCredential(_ job: HandoffJob) {
        let name = "app \(job.appID), \(job.environment.rawValue)"
        guard loop.now >= missingCredentials[name] ?? 0 else { return }
        if missingCredentials.count >= 1_000 { missingCredentials = [:] }
        missingCredentials[name] = loop.now + 60_000
        log.write("noCredential", "\(name): no credential is configured for it")
    }

    /// Returns the lane of an app's credential, or `nil` if none is configured for the environment.
    func lane(of appID: String, _ environment: Environment) -> Lane? {
        guard let credential = credential(of: appID, environment), let endpoint = endpoints[environment] else {
            return nil
        }
        let key = "\(credential.name)/\(environment.rawValue)"
        if let lane = lanes[key] { return lane }
        let lane = Lane(credential, environment, at: endpoint, limits: limits, of: self)
        lanes[key] = lane
        return lane
    }

    /// Returns the credential of an app for an environment, or `nil` if none is configured.
    func credential(of appID: String, _ environment: Environment) -> Credential? {
        (credentials[appID] ?? otherCredentials).first { $0.environments.contains(environment) }
    }

    func endpoint(of environment: Environment) -> Lane.Endpoint? { endpoints[environment] }

    /// Removes all lanes for a reload; they finish their requests as retired lanes.
    func takeLanes() -> [Lane] {
        let old = Array(lanes.values)
        lanes = [:]
        retired += old
        return old
    }

    func replace(credentials: [String: [Credential]], otherCredentials: [Credential]) {
        (self.credentials, self.otherCredentials) = (credentials, otherCredentials)
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

    /// The number of leases after which a token that its environment rejects is given up without a test in the other one.
    private static let leasesForOtherEnvironment = 3

    /// Returns a job to the gateway as unsent, unless Apple may have the notification.
    ///
    /// If Apple called the token bad and the other environment cannot be tried now, the lease counts as an attempt. The gateway
    /// counts the leases, so that several senders share the count.
    func giveBack(_ job: HandoffJob, _ reason: String, retryAfter: Int64? = nil) {
        guard job.hasTriedOther, !job.mayBeTaken, !isStopping else {
            return finish(job, job.mayBeTaken ? .retry : .unsent, reason, retryAfter: retryAfter)
        }
        let isLast = job.attempt >= Self.leasesForOtherEnvironment
        finish(job, isLast ? .badToken : .retry, Reason.badDeviceToken.rawValue, retryAfter: retryAfter)
    }

    private func noteFailing() {
        var (count, jobs) = (0, 0)
        for lane in Array(lanes.values) + retired where lane.failsSince != nil {
            count += 1
            jobs += lane.heldCount
        }
        failingCount = count
        guard jobs != setAsideCount else { return }
        setAsideCount = jobs
        setAside(jobs)
    }

    /// Returns the delay in seconds before the job is due again, or `nil` for a final outcome.
    private static func pause(
        _ job: HandoffJob, _ kind: JobOutcome.Kind, _ reason: String, _ given: Int64?
    ) -> Int64? {
        switch kind {
        case .accepted, .rejected, .badToken: return nil
        // Another sender, or the next process, may continue at once.
        case .unsent: return max(1, given ?? (reason == "senderStops" ? 1 : 5))
        case .retry:
            // The gateway gives up after a few leases. These steps keep an outage at Apple from using them up.
            let steps: [Int64] = [5, 30, 180, 1_080, 3_600]
            return max(given ?? 0, steps[min(max(job.attempt, 1), steps.count) - 1])
        }
    }

    // MARK: Turn

    /// Marks a lane for `dispatch` at the end of this turn.
    func mark(_ lane: Lane) {
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

    // MARK: Stop

    /// Returns jobs that are not in flight; requests in flight get their answer, or end with `abandon`.
    func beginStop() {
        isStopping = true
        for lane in Array(lanes.values) + retired { lane.giveBack("senderStops") }
    }

    /// Closes the connections; unanswered requests end without an answer.
    func abandon() {
        for lane in Array(lanes.values) + retired {
            lane.giveBack("senderStops")
            lane.close()
        }
    }

    // MARK: Help for lanes

    func resolve(
        _ endpoint: Lane.Endpoint, _ done: @escaping (Result<[RemoteAddress], RemoteAddress.Failure>) -> Void
    ) { resolver(endpoint, done) }

    func read(_ attempt: Attempt) -> Answer {
        var answer = Answer(status: attempt.status, retryAfter: attempt.retryAfter)
        guard attempt.status != 200, !attempt.answer.isEmpty else { return answer }
        attempt.answer.withUnsafeBytes { bytes in
            guard let value = try? parser.parse(bytes) else { return }
            answer.reason = String((value["reason"]?.string ?? "").prefix(64))
            // The gateway accepts no later time.
            let timestamp = value["timestamp"]?.lenientInteger ?? 0
            answer.timestamp = (0...(1 << 52)).contains(timestamp) ? timestamp : 0
        }
        return answer
    }

    /// Records the clock of an answer, in Unix seconds.
    func noteClock(_ time: Int64?) {
        if let time { clockDifference = ClockDifference(seconds: wallMilliseconds / 1_000 - time) }
    }

    func reason(in debug: [UInt8]) -> String? {
        debug.withUnsafeBytes { bytes in
            (try? parser.parse(bytes))?["reason"]?.string.map { String($0.prefix(64)) }
        }
    }

    /// Counts an answer by Apple's reason; the number of distinct reasons is limited.
    func noteAnswer(_ name: String) {
        let isKnown = metrics.answers[name] != nil || metrics.answers.count < 128
        metrics.answers[isKnown ? name : "other", default: 0] += 1
    }
}
