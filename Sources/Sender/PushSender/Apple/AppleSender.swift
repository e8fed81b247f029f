internal import APNs
internal import EventLoops
internal import JSON
internal import Platform

/// The difference between this machine's clock and the date of Apple's answer.
struct ClockDifference: Equatable, CustomStringConvertible {
    /// The difference in seconds; positive if this machine is ahead.
    var seconds: Int64

    /// Whether the difference is more than a minute; a smaller one may come from network delay.
    var isTooLarge: Bool { abs(seconds) > 60 }

    var description: String {
        let size = abs(seconds)
        let text = size >= 3_600 ? "\(size / 3_600) h \(size % 3_600 / 60) min" : "\(size / 60) min \(size % 60) s"
        return "this machine's clock is \(text) \(seconds > 0 ? "ahead of" : "behind") Apple's: set it"
    }
}

/// The sender of the channel `apns`: sends requests to Apple and returns results.
///
/// Confined to its loop.
final class AppleSender: ChannelSender {
    let loop: EventLoop
    let log: SenderLog
    let register: JobRegister
    var metrics: SenderMetrics { register.metrics }
    var tokens: TokenMemory
    var isStopping: Bool { register.isStopping }
    var inHandCount: Int { register.inHandCount }
    var failingCount: Int { register.failingCount }
    /// The clock difference from the newest refusal that has a date.
    private(set) var clockDifference: ClockDifference?
    private var credentials: [String: [Credential]]
    private var otherCredentials: [Credential]
    private let endpoints: [Environment: Lane.Endpoint]
    private let limits: Lane.Limits
    private var lanes: [String: Lane] = [:]
    /// Lanes of replaced credentials, until their requests have ended.
    private var retired: [Lane] = []
    private let parser = HandoffJobReader.makeParser()
    private let resolver: (Lane.Endpoint, @escaping (Result<[RemoteAddress], RemoteAddress.Failure>) -> Void) -> Void

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
        (self.loop, self.log, self.resolver) = (loop, log, resolver)
        (self.credentials, self.otherCredentials) = (credentials, otherCredentials)
        (self.endpoints, self.limits) = (endpoints, limits)
        register = JobRegister(
            of: .apns, on: loop, log: log, wall: wall, unreported: unreported, setAside: setAside, results: results)
        tokens = TokenMemory(limit: rememberedTokens)
        loop.onTick { [unowned self] now in
            for lane in lanes.values { lane.tick(now) }
            for lane in retired { lane.tick(now) }
            register.noteFailing(Array(lanes.values) + retired)
            retired.removeAll { $0.connections.isEmpty && $0.waitingCount == 0 }
        }
    }

    var wallMilliseconds: Int64 { register.wallMilliseconds }
    var allLanes: [Lane] { lanes.values.sorted { $0.name < $1.name } }

    // MARK: Jobs

    /// Takes the jobs of a lease answer; see `JobRegister.take`.
    func take(
        _ bytes: [UInt8], lease: (HandoffJob) -> JobLease
    ) throws(HandoffJobReader.Failure) -> Int {
        let reader = try HandoffJobReader(bytes, parser: parser)
        register.metrics.jobsUnreadable += UInt64(reader.namelessCount)
        return register.take(reader.jobs, unreadable: reader.unreadable, lease: lease) { begin($0) }
    }

    func begin(_ job: HandoffJob) {
        guard let job = job as? AppleJob else { preconditionFailure("a job of another channel") }
        let notification = job.notification
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
            return giveBackWithoutCredential(job)
        }
        lane.add(job)
    }

    func giveBackWithoutCredential(_ job: AppleJob) {
        register.giveBackWithoutCredential(job, "app \(job.appID), \(job.environment.rawValue)")
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
        _ job: AppleJob, _ kind: JobOutcome.Kind, _ reason: String, vendorID: String = "", timestamp: Int64 = 0,
        retryAfter: Int64? = nil
    ) { register.finish(job, kind, reason, vendorID: vendorID, timestamp: timestamp, retryAfter: retryAfter) }

    /// The number of leases after which a token is given up, if its environment rejects it and the other cannot be tried.
    private static let leasesForOtherEnvironment = 3

    /// Returns a job to the gateway as unsent, unless Apple may have the notification.
    ///
    /// If Apple called the token bad and the other environment cannot be tried now, the lease counts as an attempt. The gateway
    /// counts the leases, so that several senders share the count.
    func giveBack(_ job: AppleJob, _ reason: String, retryAfter: Int64? = nil) {
        guard job.hasTriedOther, !job.mayBeTaken, !isStopping else {
            return register.giveBack(job, reason, retryAfter: retryAfter)
        }
        let isLast = job.attempt >= Self.leasesForOtherEnvironment
        finish(job, isLast ? .badToken : .retry, Reason.badDeviceToken.rawValue, retryAfter: retryAfter)
    }

    /// Marks a lane for `dispatch` at the end of this turn.
    func mark(_ lane: Lane) { register.mark(lane) }

    // MARK: Stop

    /// Returns jobs that are not in flight; requests in flight get their answer, or end with `abandon`.
    func beginStop() {
        register.stop()
        for lane in Array(lanes.values) + retired { lane.giveBack("senderStops") }
    }

    /// Closes the connections; requests in flight end without an answer.
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
            // The gateway accepts no timestamp above this limit.
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

    func noteAnswer(_ name: String) { register.noteAnswer(name) }
}
