internal import APNs
internal import HTTPClient
internal import JSON
internal import Platform
internal import Synchronization

/// The sender's two threads towards the gateway: one leases jobs as there is room, one reports results.
///
/// Each waits for its own call, so that a long poll holds up no result.
final class GatewayLink: Sendable {
    /// Where the gateway is, and how much is taken from it; times in milliseconds.
    struct Settings: Sendable, Equatable {
        /// The admin listener, `http://host:port`.
        var url: String
        var trust = HTTPTrust()
        var leaseSeconds = 60
        var waitSeconds = 20
        /// Jobs here at most, results on their way included; as many again where an Apple does not answer.
        var jobs = 2_000
        var callMilliseconds = 15_000
        var pause: ClosedRange<Int> = 200...15_000
        /// The longest pause that a gateway can ask for.
        var longestPause = 60_000

        /// A lease begins when it is asked for, as far as we know, so that its wait is added.
        var askedSeconds: Int { min(Int(HandoffBounds.leaseSeconds.upperBound), leaseSeconds + waitSeconds) }
        /// The longest pause before a result is reported again: a part of a gateway that is back must have it before the
        /// job's lease lapses.
        var longestRepeat: Int { min(pause.upperBound, max(pause.lowerBound, leaseSeconds * 100)) }
    }

    /// What the link shows to metrics and `/readyz`.
    struct Figures: Sendable, Equatable {
        var leases: UInt64 = 0
        var leaseFailures: UInt64 = 0
        var reports: UInt64 = 0
        var reportFailures: UInt64 = 0
        /// Verdicts other than `recorded`, by name.
        var verdicts: [String: UInt64] = [:]
        /// Results that the gateway calls malformed, and those of an end without the gateway.
        var outcomesDropped: UInt64 = 0
        /// Why the last call failed; `nil` after one that worked.
        var problem: String?
        /// Some lease was answered.
        var hasLeased = false
        /// Jobs here and results on their way.
        var held = 0
        /// Results that wait for the reporter.
        var waiting = 0
    }

    private struct State {
        var outcomes: [JobOutcome] = []
        /// Those that the reporter has in hand.
        var reporting: [JobOutcome] = []
        /// Results that the gateway could not take, by job, with the time of their next report, in monotonic milliseconds.
        var kept: [String: (outcome: JobOutcome, at: UInt64)] = [:]
        /// The last report failed: jobs whose leases lapse meanwhile would come again.
        var reportsFail = false
        /// Jobs whose Apple does not answer: they take no room from others.
        var setAside = 0
        /// Jobs taken whose outcome the gateway does not have.
        var held = 0
        var isLeasing = true
        var isReporting = true
        /// The process ends without the gateway.
        var isAbandoned = false
        var figures = Figures()

        /// Room for more jobs.
        ///
        /// Neither an Apple that does not answer nor a gateway's part that is away stops the others, so
        /// the first `jobs` of each take no room. The last ones do, so that all memory is bounded and nothing is forgotten.
        func room(_ jobs: Int) -> Int {
            reportsFail ? 0 : max(0, jobs - held + min(setAside, jobs) + min(kept.count, jobs))
        }

        /// Takes at most `limit` results for a report: those that are due again, then new ones in their order.
        mutating func takeBatch(_ now: UInt64, limit: Int) -> [JobOutcome] {
            var batch = Array(outcomes.prefix(limit))
            outcomes.removeFirst(batch.count)
            if batch.count < limit {
                let due = kept.values.filter { isAbandoned || $0.at <= now }.prefix(limit - batch.count)
                for (outcome, _) in due { kept[outcome.jobID] = nil }
                // Of two results of one job the later one counts: an earlier one stands before it.
                batch = due.map(\.0) + batch
            }
            reporting = batch
            return batch
        }

        /// Keeps results that the gateway could not take; a later one of the same job takes an earlier one's place.
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

    /// Makes a link; `token` gives the bearer token for each call, so that a reload changes it.
    init(
        _ settings: Settings, token: @escaping @Sendable () -> String,
        log: @escaping @Sendable (_ event: String, _ text: String) -> Void
    ) throws(HTTPCallFailure) {
        (self.settings, self.token, self.log) = (settings, token, log)
        leaseCaller = try HTTPCaller(settings.trust)
        reportCaller = try HTTPCaller(settings.trust)
    }

    /// Gets an answer with jobs and when it was asked for, in monotonic milliseconds; says how many jobs are new here.
    typealias JobTaker =
        @Sendable (_ answer: [UInt8], _ askedAt: UInt64, _ taken: @escaping @Sendable (Int?) -> Void) -> Void

    /// Starts both threads, or the reporting one alone; `jobs` is called on the leasing thread.
    func start(leases: Bool, jobs: @escaping JobTaker) throws(SystemError) {
        let report = try LinkThread("report") { self.runReporter() }
        reporter.withLock { $0 = report }
        guard leases else { return }
        do throws(SystemError) {
            let lease = try LinkThread("lease") { self.runLeaser(jobs) }
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

    /// Jobs came another way, by the hook: they count like leased ones.
    func took(_ count: Int) { state.withLock { $0.held += count } }

    /// Room for more jobs.
    var room: Int { state.withLock { $0.room(settings.jobs) } }

    /// Takes the number of jobs here that wait for an Apple that does not answer; from any thread.
    func setAside(_ count: Int) { state.broadcast { $0.setAside = count } }

    /// Final outcomes that the gateway does not have yet, by job; from any thread.
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

    /// Takes outcomes for the reporter; from any thread.
    func take(_ outcomes: [JobOutcome]) {
        state.broadcast { $0.outcomes += outcomes }
    }

    // MARK: Stop

    /// Leases nothing more; a long poll under way ends at once, and jobs on their way are still taken.
    func stopLeasing() {
        state.broadcast { $0.isLeasing = false }
        leaseCaller.end()
    }

    /// Ends the reporter once it has reported what it has.
    func stopReporting() {
        state.broadcast { state in
            state.isReporting = false
            for job in state.kept.keys { state.kept[job]?.at = 0 }
        }
    }

    /// Ends a report under way and drops what is left: the gateway does not take it.
    func abandon() {
        reportCaller.cancel()
        state.broadcast { $0.isAbandoned = true }
    }

    /// Waits until no more jobs can come; half a second at most after `stopLeasing`.
    func joinLeaser() { leaser.withLock { $0 }?.join() }

    /// Waits until the reporter has reported all it has, or was told to abandon it.
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
                "{\"channel\":\"apns\",\"max\":\(limit),\"leaseSeconds\":\(settings.askedSeconds),"
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
                    // Room is taken before the answer is read: another lease must not exceed it meanwhile.
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
                        // A gateway answers an empty queue after the wait; an earlier answer must not keep us busy.
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

    /// Gives an answer to the loop and waits until it is read; how many jobs are new, or `nil` when it cannot be read.
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

    /// Waits for results to report; `nil`: all are reported, and no more come.
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

    /// Reports a batch, again and again until the gateway takes it or the process ends without it.
    ///
    /// No time ends this: what Apple has accepted counts for the gateway however late it gets it, and would be sent
    /// twice otherwise. Without room no more is leased meanwhile.
    ///
    /// - Returns: the results that the gateway could not take: it could not read its store, or said nothing of them.
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
                // What the gateway calls malformed would be malformed again; the others of the batch are not.
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
            // While the process stops, its end waits for this.
            let isStopping = state.withLock { !$0.isReporting }
            wait(isStopping ? min(500, pause(failures)) : pause(failures)) { _ in true }
        }
    }

    private func drop(_ batch: [JobOutcome]) -> [JobOutcome] {
        state.withLock { $0.figures.outcomesDropped += UInt64(batch.count) }
        return []
    }

    /// Notes the gateway's verdicts; returns the results that it could not take.
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
        // The first ones, then every doubling.
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
