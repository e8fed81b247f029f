internal import APNs
internal import EventLoops
internal import HTTP2
internal import Platform

/// The jobs and connections of one credential to one of Apple's environments.
///
/// Apple refuses a connection with provider tokens of several teams, and a key may be limited to one environment. A connection
/// therefore serves one lane only. Confined to the sender's loop.
final class Lane: JobLane {
    /// The limits of a lane; times are in milliseconds.
    struct Limits: Sendable, Equatable {
        var connections = 8
        /// The maximum of concurrent requests per connection; Apple's SETTINGS may allow fewer.
        var streams = 1_000
        var requestMilliseconds: UInt64 = 20_000
        /// The time without received data after which a connection is pinged.
        var pingMilliseconds: UInt64 = 60_000
        var pongMilliseconds: UInt64 = 5_000
        /// The timeout from the start of a connection to Apple's SETTINGS.
        var settingsMilliseconds: UInt64 = 15_000
        /// The maximum of requests for a job in one lease, if answers are lost.
        var tries = 3
        /// The backoff after a refused credential: doubled each time within this range.
        var rest: ClosedRange<UInt64> = 30_000...600_000
        /// The backoff between connection attempts: doubled each time within this range.
        var pause: ClosedRange<UInt64> = 250...30_000
        /// The margin between a request's timeout and the end of its job's lease.
        var leaseMargin: UInt64 = 2_000
        /// The time without received data after which a connection with requests is pinged, and a silent lane counts as
        /// failing.
        var silenceMilliseconds: UInt64 = 5_000
        /// The maximum of concurrent requests while Apple has not accepted the credential since the start or the last backoff.
        var probes = 16
        /// The maximum of jobs that all failing lanes hold together.
        var failingJobs = 500
        /// The lifetime of resolved addresses.
        var addressMilliseconds: UInt64 = 300_000

        var connection: RequestConnection.Limits {
            RequestConnection.Limits(
                streams: streams, settingsMilliseconds: settingsMilliseconds, pingMilliseconds: pingMilliseconds,
                pongMilliseconds: pongMilliseconds, silenceMilliseconds: silenceMilliseconds)
        }
    }

    struct Endpoint: Sendable, Equatable {
        var host: String
        var port: UInt16
        var proxy: Proxy?
        var authority: String {
            let name = host.contains(":") ? "[\(host)]" : host
            return port == 443 ? name : "\(name):\(port)"
        }
        /// The address to connect to: the proxy, or the host itself.
        var hop: Endpoint { proxy.map { Endpoint(host: $0.host, port: $0.port) } ?? self }
        var tunnel: ProxyTunnel? {
            proxy.map { ProxyTunnel(target: "\(host):\(port)", authorization: $0.authorization) }
        }
        func named(_ reason: String) -> String { proxy.map { "through the proxy \($0.name): \(reason)" } ?? reason }
    }

    private unowned let sender: AppleSender
    let credential: Credential
    let environment: Environment
    let endpoint: Endpoint
    let limits: Limits
    private var waiting: JobQueue<AppleJob>
    private(set) var connections: [AppleConnection] = []
    private var addresses: [RemoteAddress] = []
    private var resolvedAt: UInt64 = 0
    private var isResolving = false
    /// The time since which Apple is unreachable or silent, or `nil`.
    private(set) var failsSince: UInt64?
    private var answeredAt: UInt64 = 0
    /// Whether Apple has accepted the credential since the start or the last backoff.
    ///
    /// Only a few requests are sent before that.
    private var isProven = false
    private var failures = 0
    /// The error of the last connection attempt; empty after an accepted notification.
    private var lastFailure = ""
    private var connectsAt: UInt64 = 0
    private var restsUntil: UInt64 = 0
    private(set) var restReason = ""
    private var restCount = 0
    /// Topics that the credential may not push to, and the ends of their backoff.
    private var restingTopics: [String: UInt64] = [:]
    var isMarked = false
    private var isRetired = false

    init(
        _ credential: Credential, _ environment: Environment, at endpoint: Endpoint, limits: Limits,
        of sender: AppleSender
    ) {
        (self.credential, self.environment, self.endpoint) = (credential, environment, endpoint)
        (self.limits, self.sender) = (limits, sender)
        waiting = JobQueue(neededMilliseconds: limits.requestMilliseconds + limits.leaseMargin)
    }

    var loop: EventLoop { sender.loop }
    var name: String { "\(credential.name)/\(environment.rawValue)" }
    var waitingCount: Int { waiting.count }
    var streamCount: Int { connections.reduce(0) { $0 + ($1.session?.streamCount ?? 0) } }
    var openCount: Int { connections.count { $0.hasSettings } }
    func isResting(_ now: UInt64) -> Bool { now < restsUntil }
    /// The number of held jobs, including those in flight.
    var heldCount: Int { waitingCount + streamCount }
    var failure: String { lastFailure.isEmpty ? "appleDoesNotAnswer" : lastFailure }

    // MARK: Jobs

    /// Queues a job; it is sent in this turn if a connection has room.
    func add(_ job: AppleJob) {
        guard !sender.isStopping else { return sender.giveBack(job, "senderStops") }
        waiting.append(job)
        sender.mark(self)
    }

    /// Sends waiting jobs as far as the connections have room, and opens a connection when they are full.
    func dispatch() {
        let now = sender.loop.now
        if let failsSince { giveBackBeyondShare(now, since: failsSince) }
        var probes = isProven ? Int.max : limits.probes - probesUnderWay
        while let job = waiting.first {
            if let (seconds, reason) = rest(of: job, now) {
                _ = waiting.popFirst()
                giveBackResting(job, reason, seconds)
                continue
            }
            guard waiting.isInTime(job, now) else {
                _ = waiting.popFirst()
                sender.giveBack(job, lastFailure.isEmpty ? "notSentInTime" : lastFailure)
                continue
            }
            guard probes > 0 else { break }
            guard let connection = connections.max(by: { $0.room < $1.room }), connection.room > 0 else { break }
            guard let headers = headers(for: job) else { continue }
            _ = waiting.popFirst()
            guard connection.send(headers, job, tokenIssuedAt: credential.tokens?.issuedAt ?? 0) else {
                waiting.append(job)
                break
            }
            probes -= 1
            job.tries += 1
            sender.register.metrics.requests += 1
            if job.tries == 1 { sender.register.metrics.noteDelay(job.waited + now - min(now, job.takenAt)) }
        }
        for connection in connections { connection.flush() }
        if !waiting.isEmpty, probes > 0 { openIfFull(now) }
    }

    /// The number of requests that test an unproven credential; requests on suspect or closing connections do not count.
    private var probesUnderWay: Int {
        connections.reduce(0) { $0 + ($1.isLeaving || $1.isSuspect ? 0 : $1.session?.streamCount ?? 0) }
    }

    /// Returns the jobs beyond a failing lane's share to the gateway.
    private func giveBackBeyondShare(_ now: UInt64, since: UInt64) {
        let (jobs, pause) = waiting.takeBeyondShare(
            of: limits.failingJobs, among: sender.failingCount, now, since: since)
        for job in jobs { sender.giveBack(job, failure, retryAfter: pause) }
    }

    /// Returns a job to the gateway, because its lane or topic backs off.
    ///
    /// A job that only probed the other environment ends if the credential is refused there: its token belongs to neither
    /// environment.
    private func giveBackResting(_ job: AppleJob, _ reason: String, _ seconds: Int64) {
        guard job.hasTriedOther, Reason(rawValue: reason)?.action == .restCredential else {
            return sender.giveBack(job, reason, retryAfter: seconds)
        }
        sender.finish(job, .badToken, Reason.badDeviceToken.rawValue)
    }

    func giveBack(_ reason: String) {
        for job in waiting.takeAll() { sender.giveBack(job, reason) }
    }

    /// Closes the lane for new requests after a reload.
    ///
    /// - Returns: the waiting jobs.
    func retire() -> [AppleJob] {
        isRetired = true
        for connection in connections { connection.leave() }
        return waiting.takeAll()
    }

    private func rest(of job: AppleJob, _ now: UInt64) -> (seconds: Int64, reason: String)? {
        let topic = restingTopics[job.notification.fullTopic] ?? 0
        let until = max(restsUntil, topic)
        guard until > now else { return nil }
        return (Int64((until - now + 999) / 1_000), topic > restsUntil ? Reason.topicDisallowed.rawValue : restReason)
    }

    /// Returns a request's headers, or `nil` without a provider token; the lane backs off then.
    private func headers(for job: AppleJob) -> HTTP2Headers? {
        let bearer: String?
        switch credential.token(now: sender.wallMilliseconds / 1_000) {
        case .none: bearer = nil
        case .bearer(let text): bearer = text
        case .resting(let until):
            rest(Reason.expiredProviderToken.rawValue, milliseconds: (until * 1_000 - sender.wallMilliseconds))
            sender.log.credentialRefused(
                name, Answer(status: 403, reason: restReason), topic: nil, clock: sender.clockDifference)
            return nil
        case .failed:
            rest("noProviderToken", milliseconds: nil)
            return nil
        }
        let notification = job.notification
        var headers = HTTP2Headers()
        headers.add(":method", "POST")
        headers.add(":scheme", "https")
        headers.add(":path", "/3/device/" + notification.token)
        headers.add(":authority", endpoint.authority)
        if let bearer { headers.add("authorization", bearer) }
        headers.add("apns-topic", notification.fullTopic)
        headers.add("apns-push-type", notification.pushType.rawValue)
        headers.add("apns-priority", "\(notification.effectivePriority)")
        headers.add("apns-expiration", "\(notification.expiration)")
        headers.add("apns-id", notification.id)
        if !notification.collapseID.isEmpty { headers.add("apns-collapse-id", notification.collapseID) }
        return headers
    }

    // MARK: Answers

    func answered(_ attempt: Attempt) {
        let job = attempt.job
        let answer = sender.read(attempt)
        sender.noteAnswer(answer.name)
        sender.noteClock(attempt.serverTime)
        sender.mark(self)
        (answeredAt, failsSince) = (sender.loop.now, nil)
        if answer.action.provesCredential { isProven = true }
        switch answer.action {
        case .accept:
            (restCount, restReason, failures, lastFailure) = (0, "", 0, "")
            sender.tokens.took(job.notification.token)
            if job.environment != job.notification.environment {
                sender.tokens.belongs(job.notification.token, to: job.environment)
            }
            sender.finish(job, .accepted, "", vendorID: attempt.vendorID)
        case .reject: sender.finish(job, .rejected, answer.name)
        case .voidToken: sender.finish(job, .badToken, answer.name, timestamp: answer.timestamp)
        case .tryOtherEnvironment: tryOther(job, answer)
        case .retry: sender.finish(job, .retry, answer.name, retryAfter: answer.retryAfter)
        case .slowDownToken:
            let rest = sender.tokens.tooMuch(
                job.notification.token, now: Int64(sender.loop.now), retryAfter: answer.retryAfter)
            sender.finish(job, .retry, answer.name, retryAfter: (rest + 999) / 1_000)
        case .renewProviderToken:
            credential.tokens?.refused(issuedAt: attempt.tokenIssuedAt)
            guard !job.hasRenewedToken || isRetired else { return sender.giveBack(job, answer.name) }
            job.hasRenewedToken = true
            again(job, answer.name)
        case .keepProviderToken:
            credential.tokens?.tooManyUpdates(now: sender.wallMilliseconds / 1_000)
            guard !isRetired else { return again(job, answer.name) }
            rest(answer.name, milliseconds: nil)
            sender.giveBack(job, answer.name, retryAfter: restSeconds)
        case .restCredential: refused(job, answer)
        case .reconnect:
            attempt.connection.leave()
            // Backs off, so that a service that shuts down is not flooded with connections.
            pause()
            guard job.tries < limits.tries else { return sender.finish(job, .retry, answer.name) }
            again(job, answer.name)
        }
    }

    private func tryOther(_ job: AppleJob, _ answer: Answer) {
        if !job.hasTriedOther, let other = sender.lane(of: job.appID, job.environment.other) {
            job.hasTriedOther = true
            job.environment = job.environment.other
            return other.add(job)
        }
        sender.finish(job, .badToken, answer.name)
    }

    private func refused(_ job: AppleJob, _ answer: Answer) {
        // The other environment was only probed. A refusal there does not mean that the credential is bad.
        if job.hasTriedOther { return sender.finish(job, .badToken, Reason.badDeviceToken.rawValue) }
        // A reload replaced the credential since the request, and the new credential has not been refused.
        guard !isRetired else { return again(job, answer.name) }
        switch Reason(rawValue: answer.reason) {
        case .topicDisallowed, .badTopic, .topicMismatch:
            let topic = job.notification.fullTopic
            if restingTopics.count >= 1_000 { restingTopics = [:] }
            let isKnown = restingTopics.updateValue(sender.loop.now + limits.rest.lowerBound, forKey: topic) != nil
            // Further requests in flight will be refused, too. Only the first refusal is logged.
            if !isKnown { sender.log.credentialRefused(name, answer, topic: topic, clock: nil) }
            sender.giveBack(job, answer.name, retryAfter: Int64((limits.rest.lowerBound + 999) / 1_000))
        default:
            let isNew = rest(answer.name, milliseconds: nil)
            if isNew { sender.log.credentialRefused(name, answer, topic: nil, clock: sender.clockDifference) }
            sender.giveBack(job, answer.name, retryAfter: restSeconds)
        }
    }

    private var restSeconds: Int64 { Int64((restsUntil - min(restsUntil, sender.loop.now) + 999) / 1_000) }

    /// Starts a backoff.
    ///
    /// Without `milliseconds`, each backoff is twice as long as the previous one.
    ///
    /// - Returns: false when the lane already backs off.
    @discardableResult
    private func rest(_ reason: String, milliseconds: Int64?) -> Bool {
        let now = sender.loop.now
        guard now >= restsUntil else { return false }
        isProven = false
        restReason = reason
        if let milliseconds {
            restsUntil = now + UInt64(max(1_000, milliseconds))
        } else {
            restsUntil = now + min(limits.rest.upperBound, limits.rest.lowerBound << UInt64(min(restCount, 10)))
            restCount += 1
        }
        return true
    }

    /// Handles a request that ended without an answer.
    ///
    /// If `isUntouched` is true, Apple has not processed it; otherwise Apple may have the notification.
    func lost(_ attempt: Attempt, isUntouched: Bool) {
        let job = attempt.job
        if isUntouched {
            sender.register.metrics.refused += 1
            job.tries -= 1
            job.refusals += 1
            // Limits the retries, in case a server refuses every request.
            guard job.refusals <= 10 * limits.tries else { return sender.giveBack(job, "refusedStream") }
            return again(job, "refusedStream")
        }
        sender.register.metrics.unknown += 1
        job.mayBeTaken = true
        if attempt.sentAt >= answeredAt { fails() }
        guard job.tries < limits.tries else { return sender.finish(job, .retry, "noAnswer") }
        sender.register.metrics.repeated += 1
        again(job, "noAnswer")
    }

    private func again(_ job: AppleJob, _ reason: String) {
        guard !sender.isStopping else { return sender.giveBack(job, reason) }
        // After a reload another lane serves the app.
        guard let lane = sender.lane(of: job.appID, job.environment) else {
            return sender.giveBackWithoutCredential(job)
        }
        lane.add(job)
    }

    // MARK: Connections

    private func openIfFull(_ now: UInt64) {
        guard !isResolving, now >= connectsAt, !isRetired, !sender.isStopping else { return }
        // Opens one connection at a time: once it is open, the next dispatch shows whether more are needed.
        let usable = connections.filter { !$0.isLeaving && !$0.isSuspect }
        guard usable.allSatisfy(\.hasSettings), usable.count < limits.connections,
            connections.count < 2 * limits.connections
        else { return }
        if now >= resolvedAt + limits.addressMilliseconds { addresses = [] }
        guard let address = addresses.popLast() else { return resolve() }
        let connection = AppleConnection(self)
        do {
            try connection.connect(
                try DetachedConnection(connectingTo: address), on: sender.loop, tls: credential.tls,
                serverName: endpoint.host, through: endpoint.tunnel)
            connections.append(connection)
            sender.register.metrics.connectionsOpened += 1
        } catch {
            failed("\(error)")
        }
    }

    private func resolve() {
        isResolving = true
        sender.resolve(endpoint.hop) { [weak self] result in
            guard let self else { return }
            isResolving = false
            switch result {
            case .success(let found): (addresses, resolvedAt) = (found.reversed(), sender.loop.now)
            case .failure(let failure): failed(failure.description)
            }
            sender.mark(self)
        }
    }

    func opened(_ connection: AppleConnection) { sender.mark(self) }

    /// Handles a GOAWAY; its reason may concern the credential.
    func goneAway(_ connection: AppleConnection, debug: [UInt8]) {
        sender.register.metrics.goodbyes += 1
        sender.mark(self)
        guard let reason = sender.reason(in: debug) else { return }
        sender.noteAnswer("goodbye " + reason)
        let answer = Answer(status: 403, reason: reason)
        switch Reason(rawValue: reason)?.action {
        case .restCredential:
            let isNew = rest(reason, milliseconds: nil)
            if isNew { sender.log.credentialRefused(name, answer, topic: nil, clock: sender.clockDifference) }
        case .renewProviderToken: credential.tokens?.refused(issuedAt: connection.tokenIssuedAt)
        case .keepProviderToken:
            credential.tokens?.tooManyUpdates(now: sender.wallMilliseconds / 1_000)
            rest(reason, milliseconds: nil)
        case .accept, .reject, .voidToken, .tryOtherEnvironment, .retry, .slowDownToken, .reconnect, nil: break
        }
    }

    func ended(_ connection: AppleConnection, _ reason: String) {
        connections.removeAll { $0 === connection }
        if !connection.hasAnswered { failed(reason) }
        if !sender.isStopping { sender.mark(self) }
    }

    private func failed(_ cause: String) {
        let reason = endpoint.named(cause)
        pause()
        fails()
        lastFailure = "connectionFailed: " + reason
        sender.register.metrics.connectionsFailed += 1
        sender.log.connectionFailed(name, endpoint.authority, reason, count: failures)
    }

    /// Delays the next connection attempt; the delay doubles until Apple accepts a notification.
    private func pause() {
        failures += 1
        let pause = min(limits.pause.upperBound, limits.pause.lowerBound << UInt64(min(failures - 1, 12)))
        connectsAt = sender.loop.now + .random(in: pause / 2...pause)
    }

    private func fails() { failsSince = failsSince ?? sender.loop.now }

    func tick(_ now: UInt64) {
        for connection in connections { connection.tick(now) }
        if let oldest = connections.compactMap(\.oldestSentAt).min(),
            now >= max(oldest, answeredAt) + limits.silenceMilliseconds
        {
            fails()
        }
        for job in waiting.takeLate(now) {
            sender.giveBack(job, lastFailure.isEmpty ? "notSentInTime" : lastFailure)
        }
        if !waiting.isEmpty { sender.mark(self) }
        guard restingTopics.contains(where: { $0.value <= now }) else { return }
        restingTopics = restingTopics.filter { $0.value > now }
    }

    /// Closes the connections; requests in flight get no answer.
    func close() { for connection in connections { connection.close() } }
}
