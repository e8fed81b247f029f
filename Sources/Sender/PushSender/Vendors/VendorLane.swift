internal import EventLoops
internal import HTTPClient
internal import Vendors

/// The jobs of one credential of a vendor; for Web Push those of one push service.
///
/// A lane is ready, waits for an access token, fails, or backs off. A failing lane sends one request at a time after a pause. A
/// lane backs off after a refused credential or a used-up quota, and all its jobs return to the gateway. Confined to the sender's
/// loop.
final class VendorLane: JobLane {
    private unowned let sender: VendorSender
    let account: VendorAccount
    /// The scope of signed tokens: an origin for Web Push, else empty.
    let scope: String
    private let settings: VendorSettings
    private var waiting: JobQueue<VendorJob>
    private(set) var underWayCount = 0
    private(set) var token: VendorToken
    private(set) var pace: RequestPace
    private var answeredAt: UInt64 = 0
    /// The time of the last accepted notification, or `nil`.
    private(set) var acceptedAt: UInt64?
    private(set) var failsSince: UInt64?
    private var failures = 0
    private var failedAt: UInt64 = 0
    private var triesAt: UInt64 = 0
    private var lastFailure = ""
    /// Whether the vendor has accepted the credential since the start or the last backoff.
    private var isProven = false
    private var restsUntil: UInt64 = 0
    private(set) var restReason = ""
    private var restCount = 0
    /// The jobs that the vendor refused because of the credential, since the last answer that proved the credential.
    private var refusedJobs: Set<String> = []
    /// The end of a used-up quota's pause in Unix seconds.
    ///
    /// Hours may pass until then, so the wall clock counts.
    private var quotaUntil: Int64?
    private var usedAt: UInt64
    var isMarked = false
    private(set) var isRetired = false
    /// Whether the lane was removed to make room for another push service; its jobs return to the gateway.
    private var isEvicted = false

    /// An accepted notification proves the credential for this time, in milliseconds.
    private static let proofMilliseconds: UInt64 = 600_000
    /// The number of different jobs whose refusals outweigh that proof.
    private static let refusalLimit = 5
    /// Reasons for a token of another project, or for another project in the credential.
    private static let foreignTokenReasons: Set<String> = ["SENDER_ID_MISMATCH", "80300007"]

    init(_ account: VendorAccount, scope: String, settings: VendorSettings, of sender: VendorSender) {
        (self.account, self.scope, self.settings, self.sender) = (account, scope, settings, sender)
        waiting = JobQueue(neededMilliseconds: settings.timeoutMilliseconds + settings.leaseMargin)
        token = VendorToken(account.vendor.facts.tokenKind)
        pace = RequestPace(requestsPerSecond: settings.requestsPerSecond)
        usedAt = sender.loop.now
    }

    private var register: JobRegister { sender.register }
    private var loopNow: UInt64 { sender.loop.now }
    var name: String { "\(account.vendor.rawValue)/\(account.name)" + (scope.isEmpty ? "" : " \(scope)") }
    var waitingCount: Int { waiting.count }
    var heldCount: Int { waiting.count + underWayCount }
    var failure: String { lastFailure.isEmpty ? "vendorDoesNotAnswer" : lastFailure }
    /// Whether the lane has had no jobs for a minute, and has no backoff that would be lost with the lane.
    func isIdle(_ now: UInt64) -> Bool { heldCount == 0 && !isResting(now) && now >= usedAt + 60_000 }

    func isResting(_ now: UInt64) -> Bool {
        now < restsUntil || quotaUntil.map { register.wallSeconds < $0 } ?? false
    }
    var isQuotaUsedUp: Bool { quotaUntil.map { register.wallSeconds < $0 } ?? false }

    enum State: String, CaseIterable { case ready, token, slowed, failing, refused, quota }
    func state(_ now: UInt64) -> State {
        if isQuotaUsedUp { return .quota }
        if isResting(now) { return .refused }
        if failsSince != nil { return .failing }
        if token.isAwaited { return .token }
        return pace.isSlowed ? .slowed : .ready
    }

    // MARK: Jobs

    /// Queues a job; it is sent in this turn if there is room.
    func add(_ job: VendorJob) {
        guard !register.isStopping else { return register.giveBack(job, "senderStops") }
        usedAt = loopNow
        waiting.append(job)
        register.mark(self)
    }

    func dispatch() {
        let now = loopNow
        if isResting(now) { return giveBackResting(now) }
        if let failsSince {
            let (jobs, pause) = waiting.takeBeyondShare(
                of: settings.failingJobs, among: register.failingCount, now, since: failsSince)
            for job in jobs { register.giveBack(job, failure, retryAfter: pause) }
        }
        // The token is renewed before it expires, while requests still use the old one.
        if token.isDue(now: register.wallSeconds) { renewToken(now) }
        pace.advance(to: now)
        while let job = waiting.first {
            guard waiting.isInTime(job, now) else {
                _ = waiting.popFirst()
                register.giveBack(job, lastFailure.isEmpty ? "notSentInTime" : lastFailure)
                continue
            }
            guard underWayCount < room(now) else { return }
            let bearer: String?
            switch token.bearer(now: register.wallSeconds, sign: { account.api.signToken(scope: scope, now: $0) }) {
            case .ready(let text): bearer = text
            case .awaited: return renewToken(now)
            case .unsigned: return refused("NoMemory", "the token could not be signed", now)
            }
            guard pace.take() else { return }
            _ = waiting.popFirst()
            send(job, bearer, now)
        }
    }

    /// Returns the largest number of requests that may be in flight now.
    private func room(_ now: UInt64) -> Int {
        if failsSince != nil { return now >= triesAt ? 1 : 0 }
        let most = settings.concurrency(account.vendor)
        return isProven ? most : min(most, settings.probes)
    }

    private func send(_ job: VendorJob, _ bearer: String?, _ now: UInt64) {
        let wall = register.wallSeconds
        job.message.secondsToLive = job.expiration > 0 ? max(0, job.expiration - wall) : 0
        let request: VendorRequest
        do throws(VendorRefusal) {
            request = try account.api.request(for: job.message, bearer: bearer, now: wall)
        } catch {
            return register.finish(job, error.isTokenFault ? .badToken : .rejected, error.reason)
        }
        underWayCount += 1
        job.tries += 1
        register.metrics.requests += 1
        if job.tries == 1 { register.metrics.noteDelay(job.waited + now - min(now, job.takenAt)) }
        sender.transport.submit(settings.call(request, account)) { [self] answer in
            underWayCount -= 1
            register.mark(self)
            switch answer {
            case .success(let reply): answered(job, VendorReply(reply), bearer, sentAt: now, request.url)
            case .failure(let failure): lost(job, failure, sentAt: now, request.url)
            }
        }
    }

    private func giveBackResting(_ now: UInt64) {
        let seconds = restSeconds(now)
        for job in waiting.takeAll() { register.giveBack(job, restReason, retryAfter: seconds) }
    }

    private func restSeconds(_ now: UInt64) -> Int64 {
        let quota = quotaUntil.map { $0 - register.wallSeconds } ?? 0
        return min(86_400, max(quota, Int64((restsUntil - min(restsUntil, now) + 999) / 1_000), 1))
    }

    func giveBack(_ reason: String) {
        for job in waiting.takeAll() { register.giveBack(job, reason) }
    }

    /// Closes the lane for new requests after a reload; requests under way end here.
    ///
    /// - Returns: the waiting jobs.
    func retire() -> [VendorJob] {
        isRetired = true
        return waiting.takeAll()
    }

    /// Closes the lane as `retire` does, and returns all jobs to the gateway.
    func evict() {
        isEvicted = true
        for job in retire() { register.giveBack(job, failure) }
    }

    func tick(_ now: UInt64) {
        for job in waiting.takeLate(now) { register.giveBack(job, lastFailure.isEmpty ? "notSentInTime" : lastFailure) }
        if !waiting.isEmpty { register.mark(self) }
    }

    // MARK: Answers

    private func answered(_ job: VendorJob, _ reply: VendorReply, _ bearer: String?, sentAt: UInt64, _ url: String) {
        let now = loopNow
        let outcome = account.api.outcome(of: reply, token: job.message.token, now: register.wallSeconds)
        register.noteAnswer(outcome.reason)
        if case .retry(let seconds, let reason) = outcome, Self.isOutage(reply.status) {
            return brokeDown(job, reason, reply.status, after: seconds, sentAt: sentAt, url)
        }
        (answeredAt, failsSince, failures, lastFailure) = (now, nil, 0, "")
        notePace(outcome, now)
        switch outcome {
        case .accepted(let vendorID):
            (restCount, restReason, acceptedAt) = (0, "", now)
            proved()
            register.finish(job, .accepted, "", vendorID: vendorID)
        case .retry(let seconds, let reason): register.finish(job, .retry, reason, retryAfter: seconds)
        case .rejected(let reason):
            proved()
            register.finish(job, .rejected, reason)
        case .badToken(let reason):
            proved()
            // After a refusal for another project, the credential may be wrong, unless it once had an accepted notification.
            let isCertain = acceptedAt != nil || !Self.foreignTokenReasons.contains(reason)
            register.finish(job, isCertain ? .badToken : .rejected, reason)
        case .renewToken(let reason): tokenRefused(job, reason, bearer, now)
        case .credentialRefused(let reason, let advice): credentialRefused(job, reason, advice, now)
        case .quotaUsedUp(let until, let reason): quotaUsedUp(job, until, reason, now)
        case .postponed(let until, let reason):
            proved()
            register.giveBack(job, reason, retryAfter: min(86_400, max(1, until - register.wallSeconds)))
        case .tooFast(let seconds, let reason):
            proved()
            // The vendor did not take the message, so the gateway counts no attempt.
            register.giveBack(job, reason, retryAfter: seconds)
        case .unknown(let reason):
            register.metrics.unknownAnswers += 1
            if register.noteUnknown(reason) {
                register.log.write(
                    "vendorUnknown", "\(name): the answer \(reason) is unknown; its messages are retried")
            }
            register.finish(job, .retry, reason)
        }
    }

    private static func isOutage(_ status: Int) -> Bool { status == 408 || (500...599).contains(status) }

    /// Handles the answer of a vendor in an outage, which pauses the lane as an unanswered request does.
    private func brokeDown(
        _ job: VendorJob, _ reason: String, _ status: Int, after seconds: Int64?, sentAt: UInt64, _ url: String
    ) {
        if sentAt >= answeredAt, backOff(reason, sentAt: sentAt), SenderLog.isLogged(failures) {
            register.log.write(
                "vendorFails", "\(name): \(VendorSender.host(of: url)): \(reason) (\(failures) in a row)")
        }
        // With 503 the vendor did not take the message, so the gateway counts no attempt.
        guard status != 503 else { return register.giveBack(job, reason, retryAfter: seconds) }
        register.finish(job, .retry, reason, retryAfter: seconds)
    }

    /// Notes an answer that only a valid credential gets.
    private func proved() {
        isProven = true
        refusedJobs = []
    }

    private func notePace(_ outcome: VendorOutcome, _ now: UInt64) {
        let wasSlowed = pace.isSlowed
        var isTooFast = false
        if case .tooFast = outcome { isTooFast = true }
        guard pace.note(isTooFast: isTooFast, now), !wasSlowed else { return }
        register.log.write(
            "vendorTooFast", "\(name): the vendor's rate limit is exceeded; the rate of requests is reduced")
    }

    private func quotaUsedUp(_ job: VendorJob, _ until: Int64, _ reason: String, _ now: UInt64) {
        proved()
        if !isQuotaUsedUp, !isRetired {
            let seconds = min(86_400, max(1, until - register.wallSeconds))
            quotaUntil = register.wallSeconds + seconds
            restReason = reason
            register.log.write(
                "quotaUsedUp", "\(name): \(reason): no message is accepted for \(seconds / 60) minutes")
        }
        register.giveBack(job, reason, retryAfter: min(86_400, max(1, until - register.wallSeconds)))
    }

    private func tokenRefused(_ job: VendorJob, _ reason: String, _ bearer: String?, _ now: UInt64) {
        guard job.hasRenewedToken, !isRetired else {
            token.refuse(bearer)
            job.hasRenewedToken = true
            return again(job, reason)
        }
        // If the lane backs off, the token is dropped, too. After a refusal of this job only, the other jobs keep the token.
        let advice = "the vendor refuses the access token that it just issued: check the credential"
        if credentialRefused(job, reason, advice, now) { token.refuse(bearer) }
    }

    /// Handles a refused credential.
    ///
    /// A vendor may answer with the code for a wrong credential when it refuses one device. One job therefore does not stop a
    /// lane that works.
    ///
    /// - Returns: whether the lane pauses.
    @discardableResult
    private func credentialRefused(_ job: VendorJob, _ reason: String, _ advice: String, _ now: UInt64) -> Bool {
        guard !isRetired else {
            again(job, reason)
            return false
        }
        // A backoff ends the proof that an accepted notification gave.
        let isTrusted = acceptedAt.map { $0 >= restsUntil && now < $0 + Self.proofMilliseconds } ?? false
        refusedJobs.insert(job.id)
        guard isResting(now) || !isTrusted || refusedJobs.count >= Self.refusalLimit else {
            register.finish(job, .retry, reason)
            return false
        }
        refused(reason, advice, now)
        register.giveBack(job, reason, retryAfter: restSeconds(now))
        return true
    }

    /// Starts a backoff of the credential, whose length doubles.
    private func refused(_ reason: String, _ advice: String, _ now: UInt64) {
        guard !isResting(now) else { return }
        (isProven, restReason, refusedJobs) = (false, reason, [])
        restsUntil = now + min(settings.rest.upperBound, settings.rest.lowerBound << UInt64(min(restCount, 10)))
        restCount += 1
        register.log.write("credentialRefused", "\(name): \(reason): \(advice)")
        register.mark(self)
    }

    private func again(_ job: VendorJob, _ reason: String) {
        guard !register.isStopping, !isEvicted else { return register.giveBack(job, reason) }
        // After a reload another lane serves the app.
        isRetired ? sender.begin(job) : add(job)
    }

    /// Handles a request without an answer; the vendor may have the notification if the request was sent.
    private func lost(_ job: VendorJob, _ failure: HTTPCallFailure, sentAt: UInt64, _ url: String) {
        if failure.kind == .cancelled {
            if failure.mayHaveArrived { job.mayBeTaken = true }
            return register.giveBack(job, "senderStops")
        }
        let host = VendorSender.host(of: url)
        if sentAt >= answeredAt { connectionFailed(failure.cause, at: host, sentAt: sentAt) }
        guard failure.mayHaveArrived else {
            job.tries -= 1
            return again(job, lastFailure.isEmpty ? "connectionFailed" : lastFailure)
        }
        register.metrics.unknown += 1
        job.mayBeTaken = true
        register.finish(job, .retry, failure.kind == .tooLarge ? "answerTooLarge" : "noAnswer")
    }

    /// Starts or extends the pause after a failure.
    ///
    /// Failures of requests that were sent before the last counted failure are not counted again. The result is then false.
    private func backOff(_ reason: String, sentAt: UInt64) -> Bool {
        let now = loopNow
        failsSince = failsSince ?? now
        guard failures == 0 || sentAt > failedAt else { return false }
        failedAt = now
        failures += 1
        let pause = min(settings.pause.upperBound, settings.pause.lowerBound << UInt64(min(failures - 1, 12)))
        triesAt = now + .random(in: pause / 2...pause)
        lastFailure = reason
        return true
    }

    private func connectionFailed(_ cause: String, at host: String, sentAt: UInt64) {
        guard backOff("connectionFailed: " + cause, sentAt: sentAt) else { return }
        register.metrics.connectionsFailed += 1
        register.log.connectionFailed(name, host, cause, count: failures)
    }

    // MARK: Access tokens

    /// Requests a new access token, unless a request is under way or the last one has just failed.
    private func renewToken(_ now: UInt64) {
        guard !isRetired, !register.isStopping, token.mayBegin(now) else { return }
        guard let request = account.api.tokenRequest(now: register.wallSeconds) else {
            return refused("NoMemory", "the token request could not be made", now)
        }
        token.begin()
        sender.metrics.tokenRequests += 1
        sender.transport.submit(settings.call(request, account)) { [self] answer in
            received(answer, sentAt: now, request.url)
        }
    }

    private func received(_ answer: VendorTransport.Answer, sentAt: UInt64, _ url: String) {
        let now = loopNow
        register.mark(self)
        switch answer {
        case .success(let reply):
            switch account.api.readToken(VendorReply(reply), now: register.wallSeconds) {
            case .success(let fresh):
                token.succeed(fresh)
                (failsSince, failures, lastFailure, answeredAt) = (nil, 0, "", now)
            case .failure(.retry(let seconds, let reason)): tokenFailed(reason, after: seconds, now)
            case .failure(.credentialRefused(let reason, let advice)):
                sender.metrics.tokenFailures += 1
                token.fail(now, milliseconds: settings.pause.upperBound)
                // A token that is still valid stays in use.
                if token.isUsable(now: register.wallSeconds) {
                    register.log.write("tokenFailed", "\(name): \(reason): \(advice)")
                } else {
                    token.allow()
                    refused(reason, advice, now)
                }
            }
        case .failure(let failure):
            if failure.kind == .cancelled { return token.fail(now, milliseconds: 0) }
            if !token.isUsable(now: register.wallSeconds) {
                connectionFailed(failure.cause, at: VendorSender.host(of: url), sentAt: sentAt)
            }
            tokenFailed(failure.cause, after: nil, now)
        }
    }

    private func tokenFailed(_ reason: String, after seconds: Int64?, _ now: UInt64) {
        sender.metrics.tokenFailures += 1
        let longest = min(settings.pause.upperBound, settings.pause.lowerBound << UInt64(min(token.failureCount, 12)))
        let pause = max(UInt64(seconds ?? 0) * 1_000, .random(in: longest / 2...longest))
        token.fail(now, milliseconds: pause)
        if !token.isUsable(now: register.wallSeconds) {
            failsSince = failsSince ?? now
            if lastFailure.isEmpty { lastFailure = "noAccessToken: " + reason }
        }
        let count = token.failureCount
        if SenderLog.isLogged(count) {
            register.log.write("tokenFailed", "\(name): \(reason) (\(count) in a row)")
        }
    }
}
