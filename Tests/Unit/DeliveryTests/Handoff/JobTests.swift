import Delivery
import TestKit
import Testing
import Wire

@Suite("Jobs and leases") struct JobTests {
    private func absent(_ harness: DeliveryHarness, badge: Int32? = nil) -> Phone {
        harness.register(state: .background, token: "aa", badge: badge)
    }

    @Test("a lease is committed before it is answered")
    func leaseIsDurable() {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        harness.shard.lease(
            LeaseCommand(origin: .none, channel: .apns, apps: nil, limit: 5, leaseMilliseconds: 1_000, leaseID: (1, 1)),
            now: harness.now)
        harness.drain()
        #expect(harness.leases.isEmpty)
        harness.flush()
        #expect(harness.leases.map(\.count) == [1])
        harness.crash()
        #expect(harness.lease().isEmpty)
    }

    @Test("a lease whose answer was lost names its jobs, and `unsent` makes them due again")
    func lostAnswer() throws {
        let harness = DeliveryHarness()
        for _ in 0..<2 { _ = harness.publish(absent(harness)) }
        let lost = try #require(harness.lease(1).first)
        let other = try #require(harness.lease(1).first)
        let unknown = LeaseKey((9, 9_999))
        func held(_ jobs: Job...) -> [LeasedJob]? {
            harness.ask(LeasedJobsQuery(leases: jobs.map { LeaseKey($0.leaseID) } + [unknown]))
        }
        #expect(held(lost) == [LeasedJob(lost.message, LeaseKey(lost.leaseID))])
        #expect(held(lost, other)?.count == 2 && held() == [])
        harness.settle(lost, .unsent, reason: "answerLost", retryAfter: 1_000)
        #expect(held(lost) == [])
        harness.advance(1_000)
        let again = harness.lease()
        #expect(again.map(\.message) == [lost.message] && again.map(\.attempt) == [1])
        #expect(held(other)?.map(\.message) == [other.message])
    }

    @Test("the jobs of a lease that waits for the disk are not known yet")
    func lostWhileReading() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        harness.crash()
        harness.advance(1)
        let key = LeaseKey((7, 7))
        harness.shard.lease(
            LeaseCommand(
                origin: .none, channel: .apns, apps: nil, limit: 5, leaseMilliseconds: 60_000, leaseID: key.words),
            now: harness.now)
        #expect(harness.isBusy(LeasedJobsQuery(leases: [key])))
        #expect(harness.ask(LeasedJobsQuery(leases: [key]))?.count == 1)
    }

    @Test("a job is complete: token, environment, topic, absolute expiration, body with the badge")
    func completeJob() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness, badge: 4)
        let outcome = harness.publish(phone, timeToLive: 60_000, badge: .add(3))
        let job = try #require(harness.lease().first)
        #expect(job.message == outcome.message)
        #expect(job.token == "aa")
        #expect(job.environment == .production)
        #expect(job.topic == "com.example.app")
        #expect(job.expiration == harness.now + 60_000)
        #expect(job.collapseID == outcome.message.description)
        #expect(job.attempt == 1)
        #expect(String(decoding: job.body, as: UTF8.self) == #"{"aps":{"alert":"x","badge":7}}"#)
    }

    @Test("the msgId is written into its placeholder, before or after the badge's")
    func holes() {
        let zeros = String(repeating: "0", count: 32)
        var text = #"{"badge":,"id":"\#(zeros)"}"#
        let id = MessageID(high: 1, low: 2)
        let body = text.withUTF8 {
            Shard.rendered(
                VendorContent(
                    channel: .apns, tokenKind: .alert, pushType: .alert, priority: 5, badge: .set(1),
                    body: UnsafeRawBufferPointer($0),
                    messageIDOffset: 16, badgeOffset: 9, collapseID: UnsafeRawBufferPointer(start: nil, count: 0)),
                message: id, badge: 12)
        }
        #expect(String(decoding: body, as: UTF8.self) == #"{"badge":12,"id":"\#(id)"}"#)
    }

    @Test("the badge is applied once per message, in its first lease; a retry has the current value")
    func badgeOnce() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness, badge: 0)
        _ = harness.publish(phone, "a", badge: .add(1))
        let first = try #require(harness.lease().first)
        harness.settle(first, .retry, retryAfter: 1_000)
        _ = harness.publish(phone, "b", badge: .add(1))
        _ = harness.lease()
        harness.advance(1_000)
        let again = try #require(harness.lease().first)
        #expect(again.message == first.message)
        #expect(again.attempt == 2)
        #expect(String(decoding: again.body, as: UTF8.self).contains(#""badge":2}"#))
        harness.crash()
        #expect(harness.status(phone)?.badge == 2)
    }

    @Test("the badge is never negative, and the client's own value wins")
    func badgeFloor() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness, badge: 1)
        _ = harness.publish(phone, badge: .add(-5))
        _ = harness.lease()
        #expect(harness.status(phone)?.badge == 0)
        harness.update(phone) { $0.badge = 9 }
        #expect(harness.status(phone)?.badge == 9)
    }

    @Test("an expired lease returns the job; after maxAttempts it is exhausted")
    func lapse() {
        let harness = DeliveryHarness { $0.maxAttempts = 2 }
        let phone = absent(harness)
        let outcome = harness.publish(phone)
        #expect(harness.lease(milliseconds: 5_000).count == 1)
        harness.advance(4_999)
        #expect(harness.lease().isEmpty)
        harness.advance(1)
        #expect(harness.lease(milliseconds: 5_000).map(\.attempt) == [2])
        harness.advance(5_000)
        #expect(harness.lease().isEmpty)
        #expect(harness.statistics[.apns].jobsExhausted == 1)
        #expect(harness.trace(outcome.message)?.finalState == nil)
        harness.become(.foreground, phone)
        #expect(harness.delivered.count == 1)
    }

    @Test("a job returned unsent is due again after the given time, and its leases use no attempt")
    func unsent() throws {
        let harness = DeliveryHarness { $0.maxAttempts = 2 }
        let phone = absent(harness)
        let outcome = harness.publish(phone)
        for round in 0..<50 {
            let job = try #require(harness.lease().first, "round \(round)")
            #expect(job.attempt == 1)
            #expect(harness.settle(job, .unsent, retryAfter: 9_000) == .recorded)
            #expect(harness.settle(job, .unsent, retryAfter: 9_000) == .recorded)
            if round == 20 { harness.crash() }
            // A returned lease no longer counts, except for a later acceptance by the vendor.
            #expect(harness.settle(job, .retry) == .stale)
            harness.advance(8_999)
            #expect(harness.lease().isEmpty)
            harness.advance(1)
        }
        let steps = try #require(harness.trace(outcome.message)).steps
        #expect(steps.map(\.event) == [.accepted, .jobDue, .leased, .unsent])
        #expect(harness.statistics[.apns].resultsUnsent == 29 && harness.statistics[.apns].jobsExhausted == 0)
        // Two counted leases exhaust the job.
        harness.settle(try #require(harness.lease().first), .retry, retryAfter: 1_000)
        harness.advance(1_000)
        let last = try #require(harness.lease().first)
        #expect(last.attempt == 2)
        harness.settle(last, .retry, retryAfter: 1_000)
        #expect(harness.statistics[.apns].jobsExhausted == 1 && harness.lease().isEmpty)
        #expect(harness.imbalance() == nil)
    }

    @Test("a returned job waits a second at least, five without a time, and ends with its message")
    func unsentDelay() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        let outcome = harness.publish(phone, timeToLive: 60_000)
        harness.settle(try #require(harness.lease().first), .unsent, retryAfter: 1)
        harness.advance(999)
        #expect(harness.lease().isEmpty)
        harness.advance(1)
        harness.settle(try #require(harness.lease().first), .unsent)
        harness.advance(4_999)
        #expect(harness.lease().isEmpty)
        harness.advance(1)
        harness.settle(try #require(harness.lease().first), .unsent, retryAfter: 86_400_000)
        harness.advance(60_000)
        #expect(harness.finalState(outcome.message) == .expired)
        #expect(harness.imbalance() == nil)
    }

    @Test("strategy 4 goes live when the vendor cannot be reached in time")
    func unsentVendorFirst() throws {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let outcome = harness.publish(phone, strategy: .vendorElseLive)
        harness.settle(try #require(harness.lease().first), .unsent, retryAfter: 20_000)
        #expect(harness.delivered.isEmpty)
        harness.advance(20_000)
        harness.settle(try #require(harness.lease().first), .unsent, retryAfter: 20_000)
        #expect(harness.delivered.map(\.isOffline) == [true])
        harness.acknowledge(phone, harness.delivered[0].sequence)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
        #expect(harness.imbalance() == nil)
    }

    @Test("an expired lease returns the job also after a crash")
    func lapseAfterCrash() {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        _ = harness.lease(milliseconds: 5_000)
        harness.crash()
        harness.advance(4_999)
        #expect(harness.lease().isEmpty)
        harness.advance(1)
        #expect(harness.lease().map(\.attempt) == [2])
        #expect(harness.store.violations.isEmpty)
    }

    @Test("results are idempotent by job and lease, before and after the message's end")
    func idempotent() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        let job = try #require(harness.lease().first)
        #expect(harness.settle(job, .accepted) == .recorded)
        #expect(harness.settle(job, .accepted) == .recorded)
        #expect(harness.statistics[.apns].resultsAccepted == 1)
        let other = harness.publish(phone, strategy: .vendorOnly)
        let second = try #require(harness.lease().first)
        #expect(second.message == other.message)
        harness.settle(second, .accepted)
        #expect(harness.settle(second, .accepted) == .recorded)
        harness.crash()
        #expect(harness.settle(second, .accepted) == .recorded)
        #expect(harness.statistics[.apns].alertedTwice == 0)
    }

    @Test("a late accepted always counts and cancels an unleased copy; other late outcomes are stale")
    func late() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        let outcome = harness.publish(phone)
        let job = try #require(harness.lease(milliseconds: 1_000).first)
        harness.advance(1_000)
        #expect(harness.settle(job, .rejected) == .stale)
        #expect(harness.hasDueJobs)
        #expect(harness.settle(job, .accepted) == .recorded)
        #expect(!harness.hasDueJobs)
        harness.become(.foreground, phone)
        #expect((harness.delivered.first?.alertedAt ?? 0) > 0)
        #expect(harness.trace(outcome.message)?.finalState == nil)
    }

    @Test("an ack before the lease is committed cancels the job; the vendor's later result is alertedTwice")
    func ackBeforeLease() throws {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let outcome = harness.publish(phone)
        harness.advance(10_000)
        harness.shard.lease(
            LeaseCommand(
                origin: .none, channel: .apns, apps: nil, limit: 5, leaseMilliseconds: 60_000, leaseID: (1, 1)),
            now: harness.now)
        harness.acknowledge(phone, 1)
        #expect(harness.leases.map(\.count) == [0])
        harness.shard.settle(
            [JobResult(job: outcome.message, leaseID: (1, 1), outcome: .accepted)], apps: nil, origin: .none,
            now: harness.now)
        harness.flush()
        #expect(harness.verdicts.last?.first?.verdict == .recorded)
        let trace = harness.trace(outcome.message)
        #expect(trace?.finalState == .deliveredOffline)
        #expect(trace?.steps.contains { $0.event == .alertedTwice } == true)
        #expect(harness.statistics[.apns].alertedTwice == 1)
        #expect(harness.imbalance() == nil)
    }

    @Test("a result counts only under a lease of the job, pending or ended", arguments: [1, 2, 4])
    func madeUpLease(strategy: UInt8) throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        let outcome = harness.publish(phone, strategy: try #require(Strategy(rawValue: strategy)))
        var job = try #require(harness.lease().first)
        let given = job.leaseID
        job.leaseID = (7, 7)
        for told in JobResult.Outcome.allCases {
            #expect(harness.settle(job, told) == .stale)
        }
        #expect(harness.extend(job, milliseconds: 60_000) == .stale)
        #expect(harness.trace(outcome.message)?.finalState == nil)
        #expect(harness.status(phone)?.tokens.map(\.isQuarantined) == [false])
        harness.crash()
        #expect(harness.settle(job, .accepted) == .stale)
        job.leaseID = given
        #expect(harness.settle(job, .accepted) == .recorded)
        harness.advance(7_200_000)
        #expect(harness.finalState(outcome.message) == .handedOff)
        job.leaseID = (7, 7)
        #expect(harness.settle(job, .accepted) == .stale)
        #expect(harness.statistics[.apns].resultsAccepted == 1)
        #expect(harness.imbalance() == nil)
    }

    @Test("another app's job is unknown to a caller without access to the app, pending or ended")
    func foreignApp() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        let outcome = harness.publish(phone, strategy: .vendorOnly)
        let job = try #require(harness.lease().first)
        let others: Set<AppKey> = [DeliveryHarness.otherApp]
        for told in JobResult.Outcome.allCases {
            #expect(harness.settle(job, told, apps: others) == .unknownJob)
        }
        #expect(harness.extend(job, milliseconds: 60_000, apps: others) == .unknownJob)
        #expect(harness.status(phone)?.tokens.map(\.isQuarantined) == [false])
        harness.crash()
        #expect(harness.settle(job, .accepted, apps: others) == .unknownJob)
        #expect(harness.trace(outcome.message)?.finalState == nil)
        #expect(harness.settle(job, .accepted, apps: [DeliveryHarness.app]) == .recorded)
        #expect(harness.finalState(outcome.message) == .handedOff)
        #expect(harness.settle(job, .accepted, apps: others) == .unknownJob)
        #expect(harness.extend(job, milliseconds: 60_000, apps: others) == .unknownJob)
        #expect(harness.extend(job, milliseconds: 60_000, apps: [DeliveryHarness.app]) == .cancelled)
    }

    @Test("an accepted of any lease counts once, however late and however often it is reported")
    func everyGivenLease() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        let outcome = harness.publish(phone)
        let first = try #require(harness.lease(milliseconds: 1_000).first)
        harness.advance(1_000)
        let second = try #require(harness.lease(milliseconds: 1_000).first)
        harness.advance(1_000)
        harness.crash()
        for round in 0..<2 {
            #expect(harness.settle(first, .accepted) == .recorded)
            #expect(harness.settle(second, .accepted) == .recorded)
            harness.crash()
            #expect(harness.statistics[.apns].resultsAccepted == 0, "round \(round)")
        }
        let steps = try #require(harness.trace(outcome.message)).steps
        #expect(steps.filter { $0.event == .vendorAccepted }.count == 2)
    }

    @Test("sixteen leases of a job are remembered; an accepted under a forgotten one also counts once")
    func leasesAreBounded() throws {
        let harness = DeliveryHarness { $0.maxAttempts = 1_000 }
        let phone = absent(harness)
        let outcome = harness.publish(phone)
        var leases: [Job] = []
        for _ in 0..<18 {
            leases.append(try #require(harness.lease(milliseconds: 1_000).first))
            harness.advance(1_000)
        }
        for told in JobResult.Outcome.allCases where told != .accepted {
            #expect(harness.settle(leases[0], told) == .stale)
        }
        harness.crash()
        #expect(harness.settle(leases[0], .accepted) == .recorded)
        #expect(harness.settle(leases[0], .accepted) == .recorded)
        #expect(harness.lease().isEmpty && alerts(harness) == 1)
        // Another forgotten lease adds nothing, before or after the message's end.
        #expect(harness.settle(leases[1], .accepted) == .recorded)
        harness.advance(7_200_000)
        #expect(harness.finalState(outcome.message) == .handedOff)
        harness.crash()
        #expect(harness.settle(leases[0], .accepted) == .recorded)
        #expect(harness.statistics[.apns].resultsAccepted == 0)
        for _ in 0..<2 { #expect(harness.settle(leases[1], .accepted) == .recorded) }
        #expect(harness.settle(leases[1], .rejected) == .stale)
        #expect(alerts(harness) == 1 && harness.imbalance() == nil)
    }

    @Test("a lease that the vendor may have seen is remembered, however often others return the job")
    func leaseBeforeGivingBack() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        let lost = try #require(harness.lease(milliseconds: 1_000).first)
        harness.advance(1_000)
        for _ in 0..<40 {
            harness.settle(try #require(harness.lease().first), .unsent)
            harness.advance(5_000)
        }
        #expect(harness.settle(lost, .accepted) == .recorded)
        #expect(harness.lease().isEmpty && alerts(harness) == 1)
        #expect(harness.settle(lost, .accepted) == .recorded)
        #expect(harness.statistics[.apns].resultsAccepted == 1)
    }

    @Test("an accepted under a forgotten lease after the ack is one extra alert, reported and counted once")
    func forgottenLeaseAfterAck() throws {
        let harness = DeliveryHarness { $0.maxAttempts = 1_000 }
        var phone = absent(harness)
        let outcome = harness.publish(phone)
        var leases: [Job] = []
        for _ in 0..<17 {
            leases.append(try #require(harness.lease(milliseconds: 1_000).first))
            harness.advance(1_000)
        }
        harness.connect(&phone)
        harness.acknowledge(phone, 1)
        for _ in 0..<3 { #expect(harness.settle(leases[0], .accepted) == .recorded) }
        #expect(harness.statistics[.apns].alertedTwice == 1 && alerts(harness) == 1)
        #expect(harness.trace(outcome.message)?.steps.filter { $0.event == .alertedTwice }.count == 1)
    }

    @Test("a silent push shows nothing, so its message is not delivered as alerted", arguments: [false, true])
    func silent(isCold: Bool) throws {
        let harness = DeliveryHarness()
        var phone = absent(harness)
        _ = harness.publish(phone, "silent", pushType: .background)
        _ = harness.publish(phone, "loud")
        for job in harness.lease() { harness.settle(job, .accepted) }
        if isCold { harness.crash() }
        harness.connect(&phone)
        #expect(harness.delivered.map(\.payload) == ["silent", "loud"])
        #expect(harness.delivered.map { $0.alertedAt > 0 } == [false, true])
        #expect(harness.delivered.allSatisfy { $0.isOffline })
    }

    @Test("an accepted after the message's end counts once, for a day and across restarts")
    func lateOnce() throws {
        let harness = DeliveryHarness()
        let phone = harness.register(token: "aa")
        let outcome = harness.publish(phone)
        harness.advance(10_000)
        let job = try #require(harness.lease().first)
        harness.acknowledge(phone, 1)
        let before = alerts(harness)
        for _ in 0..<3 {
            #expect(harness.settle(job, .accepted) == .recorded)
            harness.store.cool()
        }
        #expect(harness.statistics[.apns].alertedTwice == 1)
        harness.crash()
        for _ in 0..<3 { #expect(harness.settle(job, .accepted) == .recorded) }
        #expect(harness.statistics[.apns].alertedTwice == 0)
        #expect(alerts(harness) == before + 1)
        #expect(harness.trace(outcome.message)?.steps.filter { $0.event == .alertedTwice }.count == 1)
    }

    /// Returns the vendor's acceptances in the rows of all days.
    private func alerts(_ harness: DeliveryHarness) -> UInt32 {
        var sum: UInt32 = 0
        harness.store.loadAll(table: .counters) { sum += CountersRow($0.value)?.extra[.alerted] ?? 0 }
        return sum
    }

    @Test("extend prolongs a lease, and returns cancelled once the message is acked")
    func extend() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        let job = try #require(harness.lease(milliseconds: 1_000).first)
        #expect(harness.extend(job, milliseconds: 30_000) == .recorded)
        harness.advance(20_000)
        #expect(harness.lease().isEmpty)
        harness.become(.foreground, phone)
        harness.acknowledge(phone, 1)
        #expect(harness.extend(job, milliseconds: 1_000) == .cancelled)
        #expect(harness.extend(Self.unknown(job), milliseconds: 1_000) == .unknownJob)
    }

    private static func unknown(_ job: Job) -> Job {
        var other = job
        other.message = MessageID(bucket: Bucket(1), acceptedAt: 5, digest: 5)
        return other
    }

    @Test("badToken quarantines only the token that was sent, unless it was registered again since")
    func badToken() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        let job = try #require(harness.lease().first)
        let before = harness.now
        harness.advance(1_000)
        harness.update(phone) { $0.tokens = [VendorToken(token: "aa")] }
        harness.settle(job, .badToken, timestamp: before)
        #expect(harness.status(phone)?.tokens.map(\.isQuarantined) == [false])
        let again = try #require(harness.lease().first)
        harness.settle(again, .badToken, timestamp: harness.now)
        #expect(harness.status(phone)?.tokens.map(\.isQuarantined) == [true])
        #expect(harness.publish(phone).fallbackReason == .noToken)
        harness.update(phone) { $0.tokens = [VendorToken(token: "bb")] }
        #expect(harness.publish(phone).fallback == .due)
        #expect(harness.lease().map(\.token) == ["bb"])
    }

    @Test("a device keeps the reason of the vendor's last refusal until the vendor accepts a message")
    func vendorFailure() throws {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        #expect(harness.status(phone)?.vendorFailure == nil)
        let message = harness.publish(phone).message
        harness.settle(try #require(harness.lease().first), .retry, reason: "ServiceUnavailable")
        var failure = VendorFailure(
            message: message, at: harness.now, outcome: .retry, attempts: 1, reason: "ServiceUnavailable")
        #expect(harness.status(phone)?.vendorFailure == failure)
        #expect(harness.trace(message)?.attempts == 1 && harness.trace(message)?.vendorReason == "ServiceUnavailable")
        // The same reason is not written again, but another one is.
        harness.advance(10_000)
        harness.settle(try #require(harness.lease().first), .retry, reason: "ServiceUnavailable")
        #expect(harness.status(phone)?.vendorFailure == failure)
        harness.advance(70_000)
        harness.settle(try #require(harness.lease().first), .badToken, reason: "Unregistered")
        failure.at = harness.now
        (failure.outcome, failure.attempts, failure.reason) = (.badToken, 3, "Unregistered")
        #expect(harness.status(phone)?.vendorFailure == failure)
        harness.update(phone) { $0.tokens = [VendorToken(token: "bb")] }
        #expect(harness.status(phone)?.vendorFailure == failure, "a new token is no word of the vendor")
        _ = harness.publish(phone, "next")
        harness.settle(try #require(harness.lease().first), .accepted)
        #expect(harness.status(phone)?.vendorFailure == nil)
        failure.message = harness.publish(phone, "last").message
        harness.settle(try #require(harness.lease().first), .rejected, reason: "PayloadEmpty")
        failure.at = harness.now
        (failure.outcome, failure.attempts, failure.reason) = (.rejected, 1, "PayloadEmpty")
        harness.crash()
        #expect(harness.status(phone)?.vendorFailure == failure)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("jobs of single pushes are leased before bulk jobs, and only for the allowed apps")
    func order() {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        let bulk = harness.publish(phone, "bulk", isBulk: true)
        let single = harness.publish(phone, "single")
        #expect(harness.lease(apps: [DeliveryHarness.otherApp]).isEmpty)
        #expect(!harness.hasDueJobs(for: [DeliveryHarness.otherApp]))
        #expect(harness.lease().map(\.message) == [single.message, bulk.message])
    }

    @Test("due jobs are found again after a crash, each once, with cold devices and messages")
    func leasesAfterCrash() {
        let harness = DeliveryHarness()
        let phones = (0..<20).map { _ in absent(harness) }
        for phone in phones { _ = harness.publish(phone) }
        harness.crash()
        harness.advance(1)
        #expect(Set(harness.lease().map(\.message)).count == 20)
        #expect(harness.lease().isEmpty)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("the read-ahead of due jobs is bounded and refilled from the store")
    func readAhead() {
        var limits = ShardLimits()
        limits.dueJobReadAhead = 8
        limits.alarmBatch = 4
        let harness = DeliveryHarness(limits: limits)
        let phones = (0..<40).map { _ in absent(harness) }
        for phone in phones { _ = harness.publish(phone) }
        harness.store.cool()
        #expect(harness.statistics[.apns].dueJobs <= 9)
        var seen: Set<MessageID> = []
        for _ in 0..<40 {
            harness.advance(1)
            #expect(harness.statistics[.apns].dueJobs <= 16)
            for job in harness.lease(5) { #expect(seen.insert(job.message).inserted) }
        }
        #expect(seen.count == 40)
        // Each was counted when its message was accepted, and not again when it was loaded.
        #expect(harness.statistics[.apns].jobsCreated == 40)
    }

    @Test("a request repeated after its row was dropped overwrites no pending message")
    func repeatedLate() {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        func push() -> PublishOutcome {
            harness.publish(phone, strategy: .vendorOnly, requestKey: (7, 8), requestDigest: 1, followsRequest: true)
        }
        let first = push()
        #expect(push().message == first.message)
        harness.store.cool()
        harness.store.dropEphemeralRows()
        harness.advance(10)
        let second = push()
        #expect(second.code == .accepted && second.message != first.message && harness.rowCount(.vendorMessage) == 2)
        #expect(Set(harness.lease().map(\.message)) == [first.message, second.message])
        harness.advance(8_000_000)
        #expect(harness.finalState(first.message) != nil && harness.finalState(second.message) != nil)
        #expect(harness.statistics.pending == 0)
    }

    @Test("a job whose message or device cannot be read is retried later")
    func failedReads() {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        harness.crash()
        harness.advance(1)
        harness.store.failingReads = [harness.store.readCount + 1]
        #expect(harness.lease().isEmpty)
        harness.advance(1_000)
        #expect(harness.lease().count == 1)
    }

    @Test("alarms that cannot be read are retried once a second until they succeed")
    func failedAlarms() {
        let harness = DeliveryHarness()
        let phone = absent(harness)
        _ = harness.publish(phone)
        harness.crash()
        harness.store.readsFailFrom = harness.store.readCount + 1
        for _ in 0..<5 {
            let before = harness.store.readCount
            harness.advance(1_000)
            #expect(harness.store.readCount == before + 1)
            #expect(harness.shard.nextTimer > harness.now, "a loop that slept until then would not sleep")
        }
        harness.store.readsFailFrom = .max
        harness.advance(1_000)
        #expect(harness.lease().count == 1)
    }

    @Test("a job for the channel of a later version is not leased and ends with its message")
    func foreignChannel() throws {
        for comesBack in [false, true] {
            let harness = DeliveryHarness()
            var phone = harness.register(state: .background, token: "aa")
            let message = harness.publish(phone, "p", timeToLive: 60_000).message
            #expect(harness.hasDueJobs)
            // The row as a later version would have stored it: the channel's number is 15.
            for (key, row) in harness.store.visibleRows where key.table == .message {
                var bytes = row.value
                // The content's channel, its length, three bytes and its body; then the payload of one byte.
                let place = bytes.count - 1 - 33 - 2
                #expect(Array(bytes[place - 1...place + 1]) == [1, 0, 33])
                bytes[place] = 15
                harness.store.beginBatch(key.bucket)
                harness.store.put(
                    key, wakeAt: row.wakeAt, prior: .maybe(wakeAt: row.wakeAt), byteCount: bytes.count
                ) { $0.copyBytes(from: bytes) }
                _ = harness.store.endBatch()
            }
            harness.store.sync()
            harness.crash()
            harness.advance(1_000)
            #expect(harness.lease().isEmpty && !harness.hasDueJobs && harness.statistics[.apns].jobsCreated == 0)
            #expect(harness.trace(message)?.finalState == nil && harness.trace(message)?.channel == nil)
            if comesBack {
                harness.connect(&phone)
                #expect(harness.takeDelivered().map(\.payload) == ["p"], "the live channel has it all the same")
                harness.acknowledge(phone, 1)
                #expect(harness.finalState(message) == .deliveredOffline)
            } else {
                harness.advance(61_000)
                #expect(harness.finalState(message) == .expired && harness.lease().isEmpty)
            }
            #expect(harness.statistics.damagedRows == 0 && harness.rowCount(.job) == 0)
        }
    }
}
