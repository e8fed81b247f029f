internal import HTTPClient
internal import Platform
internal import PushAPI
internal import Synchronization

/// The sender's two threads towards the gateway: one leases jobs as there is room, one reports results.
///
/// Each waits for its own call, so that a long poll holds up no result.
final class GatewayLink: Sendable {
    /// Where the gateway is, and how much is taken from it; times in milliseconds.
    struct Settings: Sendable, Equatable {
        /// The admin listener, `http://host:port`.
        var url: String
        var authoritiesFile: String?
        var leaseSeconds = 60
        var waitSeconds = 20
        /// Jobs here at most, results on their way included.
        var jobs = 2_000
        var callMilliseconds = 15_000
        var pause: ClosedRange<Int> = 200...15_000
        /// Results that cannot be reported for so long are dropped: their leases are over.
        var reportMilliseconds: UInt64 = 300_000
    }

    /// What the link shows to metrics and `/readyz`.
    struct Figures: Sendable, Equatable {
        var leases: UInt64 = 0
        var leaseFailures: UInt64 = 0
        var reports: UInt64 = 0
        var reportFailures: UInt64 = 0
        /// Verdicts other than `recorded`, by name.
        var verdicts: [String: UInt64] = [:]
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
        /// Jobs taken whose outcome the gateway does not have.
        var held = 0
        var isLeasing = true
        var isReporting = true
        var figures = Figures()
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
        leaseCaller = try HTTPCaller(authoritiesFile: settings.authoritiesFile)
        reportCaller = try HTTPCaller(authoritiesFile: settings.authoritiesFile)
    }

    /// Starts both threads, or the reporting one alone; `jobs` gets each answer with jobs, on the leasing thread, and says how many it took.
    func start(
        leases: Bool, jobs: @escaping @Sendable (_ answer: [UInt8], _ taken: @escaping @Sendable (Int?) -> Void) -> Void
    )
        throws(SystemError)
    {
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
            (figures.held, figures.waiting) = (state.held, state.outcomes.count)
            return figures
        }
    }

    /// Jobs came another way, by the hook: they count like leased ones.
    func took(_ count: Int) { state.withLock { $0.held += count } }

    /// Room for more jobs.
    var room: Int { state.withLock { max(0, settings.jobs - $0.held) } }

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
    func stopReporting() { state.broadcast { $0.isReporting = false } }

    /// Ends a report under way: the gateway does not answer.
    func abandon() { reportCaller.cancel() }

    /// Waits until no more jobs can come; half a second at most after `stopLeasing`.
    func joinLeaser() { leaser.withLock { $0 }?.join() }

    /// Waits until the reporter has reported all it has, or was told to abandon it.
    func joinReporter() { reporter.withLock { $0 }?.join() }

    // MARK: Leasing

    private func runLeaser(_ jobs: @Sendable (_ answer: [UInt8], _ taken: @escaping @Sendable (Int?) -> Void) -> Void) {
        var failures = 0
        while true {
            let room = state.wait(
                while: { $0.isLeasing && $0.held >= self.settings.jobs },
                then: { $0.isLeasing ? self.settings.jobs - $0.held : 0 })
            guard room > 0 else { return }
            let limit = min(room, Limits.leaseJobCount)
            let body =
                "{\"channel\":\"apns\",\"max\":\(limit),\"leaseSeconds\":\(settings.leaseSeconds),"
                + "\"waitSeconds\":\(settings.waitSeconds)}"
            let problem: String
            var pause = 0
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
                    let isReadable = hand(reply.body, limit, jobs)
                    // A gateway answers an empty queue after the wait; anything else must not keep us busy.
                    if !isReadable || settings.waitSeconds == 0 {
                        if !isReadable { state.withLock { $0.figures.leaseFailures += 1 } }
                        wait(isReadable ? settings.pause.lowerBound : settings.pause.upperBound) { $0.isLeasing }
                    }
                    continue
                }
                problem = Self.problem(of: reply, "lease")
                pause = Int(reply.retryAfterMilliseconds ?? 0)
            } catch {
                guard error.kind != .cancelled else { return }
                problem = error.description
            }
            failures += 1
            note(problem, failures) { $0.leaseFailures += 1 }
            wait(max(pause, self.pause(failures))) { $0.isLeasing }
        }
    }

    /// Gives an answer to the loop and waits until it is read; false when it cannot be read.
    private func hand(
        _ answer: [UInt8], _ limit: Int,
        _ jobs: @Sendable (_ answer: [UInt8], _ taken: @escaping @Sendable (Int?) -> Void) -> Void
    ) -> Bool {
        let done = Monitor<Bool?>(nil)
        jobs(answer) { taken in
            self.state.broadcast { $0.held -= limit - (taken ?? 0) }
            done.broadcast { $0 = taken != nil }
        }
        return done.wait(while: { $0 == nil }, then: { $0 ?? false })
    }

    // MARK: Reporting

    private func runReporter() {
        while true {
            let batch: [JobOutcome] = state.wait(
                while: { $0.outcomes.isEmpty && $0.isReporting },
                then: { state in
                    let batch = Array(state.outcomes.prefix(Limits.leaseJobCount))
                    state.outcomes.removeFirst(batch.count)
                    return batch
                })
            guard !batch.isEmpty else { return }
            let isDone = report(batch)
            state.broadcast { state in
                state.held -= batch.count
                if !isDone { state.figures.outcomesDropped += UInt64(batch.count) }
            }
        }
    }

    /// Reports a batch, again and again while the gateway does not take it and the leases may still hold.
    private func report(_ batch: [JobOutcome]) -> Bool {
        let body = JobOutcome.body(batch)
        let end = SystemClock.monotonicMilliseconds + settings.reportMilliseconds
        var failures = 0
        while true {
            let problem: String
            do throws(HTTPCallFailure) {
                let reply = try call(
                    reportCaller, "/v1/handoff/results", body, milliseconds: settings.callMilliseconds)
                if reply.status == 200 {
                    note(reply)
                    return true
                }
                problem = Self.problem(of: reply, "report results")
                // What the gateway calls malformed would be malformed again; the others of the batch are not.
                if reply.status == 400 || reply.status == 413 {
                    note(problem, 1) { $0.reportFailures += 1 }
                    guard batch.count > 1 else { return false }
                    let middle = batch.count / 2
                    let isFirstDone = report(Array(batch[..<middle]))
                    return report(Array(batch[middle...])) && isFirstDone
                }
            } catch {
                guard error.kind != .cancelled else { return false }
                problem = error.description
            }
            failures += 1
            note(problem, failures) { $0.reportFailures += 1 }
            guard SystemClock.monotonicMilliseconds < end else { return false }
            // While the process stops, its end waits for this.
            let isStopping = state.withLock { !$0.isReporting }
            wait(isStopping ? min(500, pause(failures)) : pause(failures)) { _ in true }
        }
    }

    private func note(_ reply: HTTPReply) {
        let parser = JSONParser()
        var verdicts: [String: UInt64] = [:]
        reply.body.withUnsafeBytes { bytes in
            guard let value = try? parser.parse(bytes), let list = value["results"] else { return }
            for item in list.elements {
                guard let verdict = item["verdict"]?.string, verdict != "recorded" else { continue }
                verdicts[String(verdict.prefix(32)), default: 0] += 1
            }
        }
        state.withLock { state in
            state.figures.reports += 1
            state.figures.problem = nil
            for (name, count) in verdicts where state.figures.verdicts.count < 32 {
                state.figures.verdicts[name, default: 0] += count
            }
        }
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
