internal import APNs
internal import HTTPClient
internal import JSON
internal import Platform
internal import Synchronization

/// The two threads between the sender of a channel and the gateway: one leases jobs while there is room, the other reports
/// results.
///
/// The calls are separate, so that a long poll does not delay results.
final class GatewayLink: Sendable {
    /// The gateway's address and the limits on its jobs; times are in milliseconds unless named otherwise.
    struct Settings: Sendable, Equatable {
        /// The URL of the admin listener.
        var url: String
        /// The channel whose jobs are leased.
        var channel = Channel.apns
        var trust = HTTPTrust()
        var leaseSeconds = 60
        var waitSeconds = 20
        /// The maximum number of held jobs, including unreported results.
        ///
        /// The same number may be held in addition for destinations that do not answer.
        var jobs = 2_000
        var callMilliseconds = 15_000
        var pause: ClosedRange<Int> = 200...15_000
        /// The longest delay that a gateway can request.
        var longestPause = 60_000

        /// The lease time to request; the lease may start when the request is sent, so the long poll's wait is added.
        var askedSeconds: Int { min(Int(HandoffBounds.leaseSeconds.upperBound), leaseSeconds + waitSeconds) }
        /// The longest delay before a result is reported again.
        ///
        /// A recovered partition must get the result before the job's lease expires.
        var longestRepeat: Int { min(pause.upperBound, max(pause.lowerBound, leaseSeconds * 100)) }
    }

    struct Figures: Sendable, Equatable {
        var leases: UInt64 = 0
        var leaseFailures: UInt64 = 0
        var reports: UInt64 = 0
        var reportFailures: UInt64 = 0
        /// Verdicts other than `recorded`, by name.
        var verdicts: [String: UInt64] = [:]
        /// Results dropped because the gateway called them malformed, or because the process stopped before the gateway took
        /// them.
        var outcomesDropped: UInt64 = 0
        /// The error of the last call, or `nil` after a success.
        var problem: String?
        var hasLeased = false
        /// Jobs held, including unreported results.
        var held = 0
        var waiting = 0
    }

    private struct State {
        var outcomes: [JobOutcome] = []
        var reporting: [JobOutcome] = []
        /// Results that the gateway could not store, by job, with the time of their next report in monotonic milliseconds.
        var kept: [String: (outcome: JobOutcome, at: UInt64)] = [:]
        /// Whether the last report failed; leasing then stops, because jobs with unreported results would be leased again.
        var reportsFail = false
        /// The number of jobs of environments that do not answer; they take no room from others.
        var setAside = 0
        /// The number of jobs without a recorded outcome at the gateway.
        var held = 0
        var isLeasing = true
        var isReporting = true
        var isAbandoned = false
        var figures = Figures()

        /// Returns the number of further jobs to lease.
        ///
        /// The first `jobs` set-aside jobs and the first `jobs` kept results take no room. A failed environment or partition
        /// therefore does not stop the others. Further jobs and results take room, which bounds the memory.
        func room(_ jobs: Int) -> Int {
            reportsFail ? 0 : max(0, jobs - held + min(setAside, jobs) + min(kept.count, jobs))
        }

        /// Takes at most `limit` results for a report: due repeats, then new results in order.
        mutating func takeBatch(_ now: UInt64, limit: Int) -> [JobOutcome] {
            var batch = Array(outcomes.prefix(limit))
            outcomes.removeFirst(batch.count)
            if batch.count < limit {
                let due = kept.values.filter { isAbandoned || $0.at <= now }.prefix(limit - batch.count)
                for (outcome, _) in due { kept[outcome.jobID] = nil }
                // Repeats come first, because the gateway uses the later of two results of one job.
                batch = due.map(\.0) + batch
            }
            reporting = batch
            return batch
        }

        /// Keeps results that the gateway could not store; a later result of the same job replaces an earlier one.
        mutating func keep(_ outcomes: [JobOutcome], _ now: UInt64, _ settings: Settings) {
            for var outcome in outcomes {
                let longest = isReporting ? settings.longestRepeat : min(500, settings.longestRepeat)
                let pause = min(longest, settings.pause.lowerBound << min(outcome.failedReports, 10))
                outcome.failedReports += 1
                let place = (outcome, now + UInt64(pause))
                if kept.updateValue(place, forKey: outcome.jobID) == nil { held += 1 }
            }
        }
    }

    private let settings: Settings
    private let state = Monitor(State())
    private let token: @Sendable () -> String
    private let log: @Sendable (_ event: String, _ text: String) -> Void
    private let leaseCaller: HTTPCaller
    private let reportCaller: HTTPCaller
    private let leaser = Lock<LinkThread?>(nil)
    private let reporter = Lock<LinkThread?>(nil)

    private final class LinkThread: Sendable {
        private let thread: Lock<Thread?>
        init(_ name: String, _ body: @escaping @Sendable () -> Void) throws(SystemError) {
            thread = Lock(nil)
            var started: Thread? = try Thread(named: name, body)
            thread.withLock { swap(&$0, &started) }
        }
        func join() {
            var ended: Thread?
            thread.withLock { swap(&$0, &ended) }
            ended.take()?.join()
        }
    }

    /// Creates a link; `token` returns the bearer token for each call, so that a reload applies at once.
    init(
        _ settings: Settings, token: @escaping @Sendable () -> String,
        log: @escaping @Sendable (_ event: String, _ text: String) -> Void
    ) throws(HTTPCallFailure) {
        (self.settings, self.token, self.log) = (settings, token, log)
        leaseCaller = try HTTPCaller(settings.trust)
        reportCaller = try HTTPCaller(settings.trust)
    }

    /// A receiver of a lease answer.
    ///
    /// `askedAt` is the time of the request, in monotonic milliseconds. `taken` gets the number of new jobs, or `nil` for an
    /// unreadable answer.
    typealias JobTaker =
        @Sendable (_ answer: [UInt8], _ askedAt: UInt64, _ taken: @escaping @Sendable (Int?) -> Void) -> Void

    /// Starts both threads, or only the reporting one; `jobs` is called on the leasing thread.
    func start(leases: Bool, jobs: @escaping JobTaker) throws(SystemError) {
        let report = try LinkThread("report \(settings.channel.name)") { self.runReporter() }
        reporter.withLock { $0 = report }
        guard leases else { return }
        do throws(SystemError) {
            let lease = try LinkThread("lease \(settings.channel.name)") { self.runLeaser(jobs) }
            leaser.withLock { $0 = lease }
        } catch {
            stopReporting()
            joinReporter()
            throw error
        }
    }

    var figures: Figures {
        state.withLock { state in
            var figures = state.figures
            figures.held = state.held
            figures.waiting = state.outcomes.count + state.reporting.count + state.kept.count
            return figures
        }
    }

    /// Counts jobs that the hook brought; they take room like leased ones.
    func took(_ count: Int) { state.withLock { $0.held += count } }

    var room: Int { state.withLock { $0.room(settings.jobs) } }

    /// Sets the number of held jobs of environments that do not answer; callable from any thread.
    func setAside(_ count: Int) { state.broadcast { $0.setAside = count } }

    /// Returns the final outcomes that the gateway does not have yet, by job; callable from any thread.
    func unreported() -> [String: JobOutcome] {
        state.withLock { state in
            var found: [String: JobOutcome] = [:]
            let kept = state.kept.values.map(\.outcome)
            for outcome in kept + state.reporting + state.outcomes where outcome.isFinal {
                found[outcome.jobID] = outcome
            }
            return found
        }
    }

    /// Queues outcomes for the reporter; callable from any thread.
    func take(_ outcomes: [JobOutcome]) {
        state.broadcast { $0.outcomes += outcomes }
    }

    // MARK: Stop

    /// Stops leasing.
    ///
    /// A long poll ends at once; jobs of an answer in flight are still taken.
    func stopLeasing() {
        state.broadcast { $0.isLeasing = false }
        leaseCaller.end()
    }

    /// Ends the reporter after it has reported all results.
    func stopReporting() {
        state.broadcast { state in
            state.isReporting = false
            for job in state.kept.keys { state.kept[job]?.at = 0 }
        }
    }

    /// Cancels a report in flight and drops all results that the gateway has not taken.
    func abandon() {
        reportCaller.cancel()
        state.broadcast { $0.isAbandoned = true }
    }

    /// Waits until no more jobs can arrive, at most half a second after `stopLeasing`.
    func joinLeaser() { leaser.withLock { $0 }?.join() }

    /// Waits until the reporter has reported all results or was abandoned.
    func joinReporter() { reporter.withLock { $0 }?.join() }

    // MARK: Leasing

    private func runLeaser(_ jobs: JobTaker) {
        var failures = 0
        while true {
            let room = state.wait(
                while: { $0.isLeasing && $0.room(self.settings.jobs) == 0 },
                then: { $0.isLeasing ? $0.room(self.settings.jobs) : 0 })
            guard room > 0 else { return }
            let limit = min(room, HandoffBounds.jobCount)
            let body =
                "{\"channel\":\"\(settings.channel.name)\",\"max\":\(limit),\"leaseSeconds\":\(settings.askedSeconds),"
                + "\"waitSeconds\":\(settings.waitSeconds)}"
            let problem: String
            var pause = 0
            let askedAt = SystemClock.monotonicMilliseconds
            do throws(HTTPCallFailure) {
                let reply = try call(
                    leaseCaller, "/v1/handoff/lease", Array(body.utf8),
                    milliseconds: settings.callMilliseconds + settings.waitSeconds * 1_000)
                if reply.status == 200 {
                    failures = 0
                    // Room is reserved before the answer is read, so that hook calls in between cannot exceed the limit.
                    state.withLock { state in
                        state.figures.leases += 1
                        state.figures.hasLeased = true
                        state.figures.problem = nil
                        state.held += limit
                    }
                    let taken = hand(reply.body, askedAt, limit, jobs)
                    let end = SystemClock.monotonicMilliseconds
                    if taken == nil {
                        state.withLock { $0.figures.leaseFailures += 1 }
                        wait(settings.pause.upperBound) { $0.isLeasing }
                    } else if taken == 0, end < askedAt + UInt64(settings.waitSeconds) * 500 + 100 {
                        // A gateway with an empty queue answers only after `waitSeconds`. This delay prevents a busy loop
                        // if an answer arrives earlier.
                        wait(settings.pause.lowerBound) { $0.isLeasing }
                    }
                    continue
                }
                problem = Self.problem(of: reply, "lease")
                pause = min(settings.longestPause, Int(reply.retryAfterMilliseconds ?? 0))
            } catch {
                guard error.kind != .cancelled else { return }
                problem = error.description
            }
            failures += 1
            note(problem, failures) { $0.leaseFailures += 1 }
            wait(max(pause, self.pause(failures))) { $0.isLeasing }
        }
    }

    /// Passes an answer to the loop and waits until it is read.
    ///
    /// Returns the number of new jobs, or `nil` for an unreadable answer.
    private func hand(_ answer: [UInt8], _ askedAt: UInt64, _ limit: Int, _ jobs: JobTaker) -> Int? {
        let done = Monitor<Int??>(nil)
        jobs(answer, askedAt) { taken in
            self.state.broadcast { $0.held -= limit - (taken ?? 0) }
            done.broadcast { $0 = .some(taken) }
        }
        return done.wait(while: { $0 == nil }, then: { $0 ?? nil })
    }

    // MARK: Reporting

    private func runReporter() {
        while let batch = nextBatch() {
            let again = report(batch)
            let now = SystemClock.monotonicMilliseconds
            state.broadcast { state in
                state.reporting = []
                state.held -= batch.count
                state.keep(again, now, settings)
            }
        }
    }

    /// Waits for results; returns `nil` when all are reported and no more will come.
    private func nextBatch() -> [JobOutcome]? {
        while true {
            let now = SystemClock.monotonicMilliseconds
            let due = state.withLock { $0.kept.values.map(\.at).min() }
            let batch = state.wait(
                atMostMilliseconds: due.map { $0 - min($0, now) },
                while: { state in
                    guard state.outcomes.isEmpty, !state.isAbandoned else { return false }
                    if state.kept.isEmpty { return state.isReporting }
                    return state.kept.values.allSatisfy { $0.at > SystemClock.monotonicMilliseconds }
                },
                then: { $0.takeBatch(SystemClock.monotonicMilliseconds, limit: HandoffBounds.jobCount) })
            if !batch.isEmpty { return batch }
            let isOver = state.withLock {
                ($0.isAbandoned || !$0.isReporting) && $0.outcomes.isEmpty && $0.kept.isEmpty
            }
            if isOver { return nil }
        }
    }

    /// Reports a batch, with retries until the gateway takes it or the process is abandoned.
    ///
    /// There is no timeout: the vendor has accepted these notifications, and a lost result would send them twice. No jobs are
    /// leased while the reports fail.
    ///
    /// - Returns: the results that the gateway could not store or did not mention.
    private func report(_ batch: [JobOutcome]) -> [JobOutcome] {
        let body = JobOutcome.body(batch)
        var failures = 0
        while true {
            let problem: String
            do throws(HTTPCallFailure) {
                let reply = try call(
                    reportCaller, "/v1/handoff/results", body, milliseconds: settings.callMilliseconds)
                if reply.status == 200 { return note(reply, batch) }
                problem = Self.problem(of: reply, "report results")
                // The batch is halved until the malformed result is isolated. The other results are reported.
                if reply.status == 400 || reply.status == 413 {
                    note(problem, 1) { $0.reportFailures += 1 }
                    state.broadcast { $0.reportsFail = false }
                    guard batch.count > 1 else { return drop(batch) }
                    let middle = batch.count / 2
                    return report(Array(batch[..<middle])) + report(Array(batch[middle...]))
                }
            } catch {
                guard error.kind != .cancelled else { return drop(batch) }
                problem = error.description
            }
            failures += 1
            note(problem, failures) { $0.reportFailures += 1 }
            state.withLock { $0.reportsFail = true }
            // A stopping process waits for this thread, so the delay is short.
            let isStopping = state.withLock { !$0.isReporting }
            wait(isStopping ? min(500, pause(failures)) : pause(failures)) { _ in true }
        }
    }

    private func drop(_ batch: [JobOutcome]) -> [JobOutcome] {
        state.withLock { $0.figures.outcomesDropped += UInt64(batch.count) }
        return []
    }

    /// Counts the gateway's verdicts; returns the results that the gateway could not store or did not mention.
    private func note(_ reply: HTTPReply, _ batch: [JobOutcome]) -> [JobOutcome] {
        let parser = JSONParser()
        var verdicts: [String: UInt64] = [:]
        var taken: Set<String> = []
        var failed: Set<String> = []
        reply.body.withUnsafeBytes { bytes in
            guard let value = try? parser.parse(bytes), let list = value["results"], list.kind == .array else { return }
            for item in list.elements {
                guard let verdict = item["verdict"]?.string, let job = item["jobId"]?.string else { continue }
                if verdict == "storeFailed" { failed.insert(job) } else { taken.insert(job) }
                if verdict != "recorded" { verdicts[String(verdict.prefix(32)), default: 0] += 1 }
            }
        }
        let again = batch.filter { failed.contains($0.jobID) || !taken.contains($0.jobID) }
        let silent = again.count { !failed.contains($0.jobID) }
        if silent > 0 { note("the gateway's answer to a report says nothing of \(silent) results", 1) { _ in } }
        state.broadcast { state in
            state.figures.reports += 1
            if silent == 0 { state.figures.problem = nil }
            state.reportsFail = false
            for (name, count) in verdicts where state.figures.verdicts.count < 32 {
                state.figures.verdicts[name, default: 0] += count
            }
        }
        return again
    }

    // MARK: Calls

    private func call(
        _ caller: HTTPCaller, _ path: String, _ body: [UInt8], milliseconds: Int
    ) throws(HTTPCallFailure) -> HTTPReply {
        try caller.post(
            settings.url + path,
            headers: [
                (name: "Content-Type", value: "application/json"), (name: "Authorization", value: "Bearer " + token()),
            ], body: body,
            timeoutMilliseconds: milliseconds)
    }

    private static func problem(of reply: HTTPReply, _ what: String) -> String {
        let text = String(decoding: reply.body.prefix(200), as: UTF8.self)
        switch reply.status {
        case 401: return "the gateway refuses to \(what): its token is wrong; look at gateway.tokenFile"
        case 403: return "the gateway refuses to \(what): the credential needs the right handoff; look at its may"
        default: return "the gateway refuses to \(what): status \(reply.status) \(text)"
        }
    }

    private func note(_ problem: String, _ failures: Int, _ count: (inout Figures) -> Void) {
        state.withLock { state in
            state.figures.problem = problem
            count(&state.figures)
        }
        // Logs the first two failures, then each time the number doubles.
        if failures <= 2 || failures & (failures - 1) == 0 { log("gatewayFailed", "\(problem) (\(failures) in a row)") }
    }

    private func pause(_ failures: Int) -> Int {
        let longest = min(settings.pause.upperBound, settings.pause.lowerBound << min(failures - 1, 10))
        return .random(in: longest / 2...longest)
    }

    private func wait(_ milliseconds: Int, while condition: (State) -> Bool) {
        let end = SystemClock.monotonicMilliseconds + UInt64(milliseconds)
        state.wait(
            atMostMilliseconds: UInt64(milliseconds),
            while: { condition($0) && SystemClock.monotonicMilliseconds < end }, then: { _ in })
    }
}
