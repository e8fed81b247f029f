import APNs
import EventLoops
import Platform
import Testing

@testable import PushSender
@testable import FakeAPNs

@Suite("The sender and a fake Apple", .serialized) struct SenderTests {
    private func token(_ number: Int, _ prefix: String = "aa") -> String {
        prefix + String(repeating: "0", count: 8 - "\(number)".count) + "\(number)"
    }

    private func script(_ rules: FakeScript.Rule...) -> [Environment: FakeScript] {
        var script = FakeScript()
        script.rules = rules
        return [.production: script]
    }

    @Test("every job reaches Apple once, with its headers and its body, and is accepted")
    func accepted() throws {
        let rig = try Rig()
        let outcomes = try rig.send((0..<300).map { token($0) })
        #expect(outcomes.count == 300 && outcomes.allSatisfy { $0.kind == .accepted && $0.reason == "" })
        #expect(Set(outcomes.map(\.jobID)).count == 300 && rig.production.takenCount == 300)
        #expect(outcomes[0].vendorID.hasPrefix("00000000-0000-0000-0000-"))
        let first = try #require(rig.records.first)
        for part in [
            "\"topic\":\"com.example.app\"", "\"pushType\":\"alert\"", "\"priority\":\"10\"", "\"expiration\":\"0\"",
            "\"collapseId\":\"c1\"", "\"id\":\"00000000-0000-0000-0000-000000000001\"",
            "\"body\":{\"aps\":{\"alert\":\"hi\"}}", "\"taken\":true",
        ] {
            #expect(first.contains(part), "\(first)")
        }
        #expect(rig.sender.inHandCount == 0 && rig.sender.metrics.connectionsOpened == 1)
    }

    @Test("a request's delay counts from its job's due time, in the gateway's time")
    func delayFromDue() throws {
        let rig = try Rig()
        // The second job's due time is after its lease, so the delay counts from its arrival.
        for (number, waited) in [40_000, -100_000].enumerated() {
            try rig.give([token(number)], dueFor: Int64(waited))
            rig.run { rig.outcomes.count > number }
        }
        #expect(rig.sender.metrics.delays.last == 1 && rig.sender.metrics.delays.reduce(0, +) == 2)
        #expect((40_000..<80_000).contains(rig.sender.metrics.delaySum))
    }

    @Test("each documented reason has its outcome", arguments: Reason.allCases)
    func reasons(reason: Reason) throws {
        var rules = [FakeScript.Rule(prefix: "aa", status: reason.status, reason: reason.rawValue, times: 1)]
        if reason == .unregistered { rules[0].timestamp = 77 }
        var scripts = script(rules[0])
        // The other environment does not know the token either.
        scripts[.sandbox] = FakeScript()
        scripts[.sandbox]?.rules = [FakeScript.Rule(prefix: "", status: 400, reason: "BadDeviceToken")]
        let rig = try Rig(scripts: scripts)
        let outcome = try #require(try rig.send([token(1)]).first)
        switch reason.action {
        case .accept: Issue.record("no reason accepts")
        case .reject: #expect(outcome.kind == .rejected && outcome.reason == reason.rawValue)
        case .voidToken:
            #expect(outcome.kind == .badToken && outcome.reason == reason.rawValue)
            #expect(reason == .unregistered ? outcome.timestamp == 77 : outcome.timestamp > 1_700_000_000_000)
        case .tryOtherEnvironment: #expect(outcome.kind == .badToken && outcome.reason == "BadDeviceToken")
        case .retry: #expect(outcome.kind == .retry && outcome.retryAfterSeconds == 5)
        case .slowDownToken: #expect(outcome.kind == .retry && outcome.retryAfterSeconds == 5)
        case .restCredential, .keepProviderToken:
            // Apple refused the sender, not the notification.
            #expect(outcome.kind == .unsent && outcome.reason == reason.rawValue)
            #expect((outcome.retryAfterSeconds ?? 0) > 0)
        // Apple forbids another token this soon, so the lane backs off.
        case .renewProviderToken: #expect(outcome.kind == .unsent && outcome.reason == "ExpiredProviderToken")
        case .reconnect: #expect(outcome.kind == .accepted && rig.sender.metrics.connectionsOpened == 2)
        }
        #expect(rig.sender.inHandCount == 0)
    }

    @Test("an unknown reason is recorded, and the status decides")
    func unknownReason() throws {
        let rig = try Rig(
            scripts: script(
                FakeScript.Rule(prefix: "a1", status: 400, reason: "BrandNew"),
                FakeScript.Rule(prefix: "a2", status: 503, reason: "AlsoNew", retryAfterSeconds: 9),
                FakeScript.Rule(prefix: "a3", status: 418)))
        #expect(try rig.send([token(1, "a1")])[0].kind == .rejected)
        let retried = try rig.send([token(1, "a2")])[0]
        #expect(retried.kind == .retry && retried.reason == "AlsoNew" && retried.retryAfterSeconds == 9)
        // Without a reason the answer may come from a proxy, not from Apple.
        let teapot = try rig.send([token(1, "a3")])[0]
        #expect(teapot.kind == .retry && teapot.reason == "status 418")
    }

    @Test("a token of the other environment is found there once, and remembered")
    func otherEnvironment() throws {
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "aa", status: 400, reason: "BadDeviceToken")))
        #expect(try rig.send([token(1)])[0].kind == .accepted)
        #expect(rig.production.requestCount == 1 && rig.sandbox.takenCount == 1)
        #expect(try rig.send([token(1)])[0].kind == .accepted)
        #expect(rig.production.requestCount == 1 && rig.sandbox.takenCount == 2)
    }

    @Test("a credential of one environment does not try the other one")
    func oneEnvironment() throws {
        let rig = try Rig(
            scripts: script(FakeScript.Rule(prefix: "aa", status: 400, reason: "BadDeviceToken")),
            environments: [.production])
        #expect(try rig.send([token(1)])[0].kind == .badToken && rig.sandbox.requestCount == 0)
        let none = try rig.send([token(2)], environment: .sandbox)[0]
        #expect(none.kind == .unsent && none.reason == "noCredential")
        #expect(try rig.send((3..<50).map { token($0) }, environment: .sandbox).allSatisfy { $0.kind == .unsent })
        #expect(rig.logLines.count { $0.hasPrefix("noCredential") } == 1)
        let register = rig.sender.register
        #expect(register.missing(rig.loop.now).map(\.channel) == ["apns"])
        #expect(register.missing(rig.loop.now)[0].description.hasSuffix("sandbox: no credential is configured for it"))
        #expect(register.missing(rig.loop.now + 599_000).count == 1)
        #expect(register.missing(rig.loop.now + 601_000).isEmpty)
    }

    @Test("a key without access to the other environment does not back off after the attempt")
    func scopedKey() throws {
        let rig = try Rig(
            scripts: script(FakeScript.Rule(prefix: "aa", status: 400, reason: "BadDeviceToken", times: 1)),
            scope: [.production])
        let outcome = try rig.send([token(1)])[0]
        #expect(outcome.kind == .badToken && outcome.reason == "BadDeviceToken")
        #expect(try rig.send([token(2)])[0].kind == .accepted)
        // A token registered for that environment makes its lane back off.
        let refused = try rig.send([token(3)], environment: .sandbox)[0]
        #expect(refused.kind == .unsent && refused.reason == "BadEnvironmentKeyIdInToken")
        #expect(rig.logLines.contains { $0.contains("scoped to the other environment") })
        #expect(try rig.send([token(4)])[0].kind == .accepted)
    }

    @Test("a topic without permission for the key backs off alone")
    func topic() throws {
        let rig = try Rig(topics: ["com.example.other"])
        let outcome = try rig.send([token(1)])[0]
        #expect(outcome.kind == .unsent && outcome.reason == "TopicDisallowed" && outcome.retryAfterSeconds == 1)
        let count = rig.production.requestCount
        #expect(try rig.send([token(2)])[0].reason == "TopicDisallowed" && rig.production.requestCount == count)
        #expect(rig.sender.allLanes.allSatisfy { !$0.isResting(rig.loop.now) })
    }

    @Test("a GOAWAY loses no notification and repeats none", arguments: [1, 3, 7])
    func goodbyes(perConnection: Int) throws {
        var script = FakeScript()
        (script.requestsPerConnection, script.streams) = (perConnection, 4)
        let rig = try Rig(scripts: [.production: script])
        let outcomes = try rig.send((0..<60).map { token($0) })
        #expect(outcomes.allSatisfy { $0.kind == .accepted } && rig.production.takenCount == 60)
        #expect(rig.sender.metrics.goodbyes > 0 && rig.sender.metrics.repeated == 0)
    }

    @Test("streams above a GOAWAY's last id are sent again at once, on a new connection")
    func goodbyeBelow() throws {
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "ab", deed: .goodbyeBelow, times: 2)))
        let outcomes = try rig.send([token(1), token(2, "ab"), token(3, "ab"), token(4)])
        #expect(outcomes.allSatisfy { $0.kind == .accepted } && rig.production.takenCount == 4)
        #expect(rig.sender.metrics.refused >= 1 && rig.sender.metrics.repeated == 0)
    }

    @Test("a GOAWAY in place of the settings is handled, and connection attempts are paced")
    func goodbyeFirst() throws {
        var script = FakeScript()
        script.refusedConnections = 3
        let rig = try Rig(scripts: [.production: script])
        #expect(try rig.send([token(1)])[0].kind == .accepted)
        #expect(rig.sender.metrics.connectionsFailed == 3 && rig.sender.metrics.connectionsOpened == 4)
    }

    @Test(
        "a request without an answer is sent again with the same ids, and counted",
        arguments: [FakeScript.Deed.resetTaken, .silence, .cutTaken])
    func unknown(deed: FakeScript.Deed) throws {
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "ab", deed: deed, times: 1)))
        #expect(try rig.send([token(1, "ab")])[0].kind == .accepted)
        #expect(rig.production.takenCount == 2 && rig.sender.metrics.repeated == 1)
        #expect(rig.sender.metrics.unknown == 1)
        let ids = rig.records.compactMap { $0.split(separator: "\"id\":\"").last?.prefix(36) }
        #expect(Set(ids).count == 1 && rig.records.allSatisfy { $0.contains("\"collapseId\":\"c1\"") })
    }

    @Test("an unresponsive Apple gets a few requests, then the gateway gets the job back")
    func neverAnswered() throws {
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "ab", deed: .resetTaken)))
        let outcome = try rig.send([token(1, "ab")])[0]
        #expect(outcome.kind == .retry && outcome.reason == "noAnswer" && rig.production.takenCount == 3)
    }

    @Test("an Apple that refuses every stream does not keep the sender permanently busy")
    func alwaysRefused() throws {
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "ab", deed: .goodbyeBelow)))
        let outcome = try rig.send([token(1, "ab")])[0]
        #expect(outcome.kind == .unsent && rig.production.takenCount == 0)
    }

    @Test("with few streams each, several connections are used, up to the limit")
    func pool() throws {
        var script = FakeScript()
        script.streams = 2
        script.rules = [FakeScript.Rule(prefix: "", delayMilliseconds: 60)]
        var limits = Rig.quick
        (limits.connections, limits.requestMilliseconds) = (3, 20_000)
        let rig = try Rig(scripts: [.production: script], limits: limits)
        let outcomes = try rig.send((0..<40).map { token($0) })
        #expect(outcomes.allSatisfy { $0.kind == .accepted } && rig.production.takenCount == 40)
        #expect(rig.sender.metrics.connectionsOpened == 3)
    }

    @Test("one provider token serves all requests, and a slow clock is reported")
    func providerToken() throws {
        let rig = try Rig(tokenInterval: 1_200)
        #expect(try rig.send((0..<50).map { token($0) }).allSatisfy { $0.kind == .accepted })
        let slow = try Rig()
        slow.clockError = -2 * 3_600_000
        let outcome = try slow.send([token(1)])[0]
        #expect(outcome.kind == .unsent && outcome.reason == "ExpiredProviderToken")
        let fast = try Rig()
        fast.clockError = 2 * 3_600_000
        #expect(try fast.send([token(1)])[0].reason == "InvalidProviderToken")
        #expect(fast.logLines.contains { $0.contains("clock") })
    }

    @Test(
        "a refused provider token is signed anew once; then the credential backs off, with a log entry")
    func expiredProviderToken() throws {
        let rig = try Rig(
            scripts: script(FakeScript.Rule(prefix: "", status: 403, reason: "ExpiredProviderToken")),
            limits: Rig.patient)
        // The first token is old enough to be replaced when Apple refuses it.
        rig.clockError = -25 * 60_000
        try rig.give([token(1)])
        rig.run { rig.production.requestCount == 1 }
        rig.clockError = 0
        rig.run { rig.outcomes.count == 1 }
        #expect(rig.outcomes[0].kind == .unsent && rig.outcomes[0].reason == "ExpiredProviderToken")
        #expect(Set(rig.records.compactMap { Rig.number("issuedAt", in: $0) }).count == 2)
        // Apple allows no third token for twenty minutes. Jobs are returned without a request until then.
        let more = try rig.send((2..<30).map { token($0) })
        #expect(more.allSatisfy { $0.kind == .unsent && ($0.retryAfterSeconds ?? 0) > 1_000 })
        #expect(rig.production.requestCount == 2)
        #expect(rig.logLines.contains { $0.contains("if this repeats, the machine's clock is wrong") })
        // Then the token is signed anew, and a valid one ends the backoff.
        var later = FakeScript()
        later.clockSeconds = 21 * 60
        rig.production.play(later)
        rig.clockError = 21 * 60_000
        rig.loopError = 21 * 60_000
        rig.run { true }
        #expect(try rig.send([token(40)])[0].kind == .accepted)
        #expect(Set(rig.records.compactMap { Rig.number("issuedAt", in: $0) }).count == 3)
    }

    @Test("a provider token that Apple cannot verify makes the credential back off with growing delays")
    func invalidProviderToken() throws {
        let rig = try Rig(
            scripts: script(FakeScript.Rule(prefix: "", status: 403, reason: "InvalidProviderToken", times: 3)),
            limits: Rig.patient)
        for (round, rest) in [30, 60, 120].enumerated() {
            let outcome = try rig.send([token(round)])[0]
            #expect(outcome.kind == .unsent && outcome.retryAfterSeconds == Int64(rest), "\(round) \(outcome)")
            #expect(rig.production.requestCount == round + 1)
            let early = try rig.send([token(100 + round)])[0]
            #expect(early.kind == .unsent && early.reason == "InvalidProviderToken")
            #expect(rig.production.requestCount == round + 1)
            rig.loopError += 120_000
            rig.run { true }
        }
        #expect(try rig.send([token(9)])[0].kind == .accepted)
        #expect(Set(rig.records.compactMap { Rig.number("issuedAt", in: $0) }).count == 1)
        #expect(rig.logLines.contains { $0.contains("check the key file") })
    }

    @Test("a wrong clock is reported with its difference", arguments: [-2 * 3_600, 600])
    func wrongClock(seconds: Int64) throws {
        let rig = try Rig(limits: Rig.patient)
        rig.clockError = seconds * 1_000
        let outcome = try rig.send([token(1)])[0]
        #expect(outcome.kind == .unsent)
        #expect(outcome.reason == (seconds < 0 ? "ExpiredProviderToken" : "InvalidProviderToken"))
        let difference = try #require(rig.sender.clockDifference)
        #expect(abs(difference.seconds - seconds) <= 60)
        #expect(difference.description.contains(seconds < 0 ? "behind" : "ahead of"))
        // The log has the difference if the refusal has it.
        #expect(rig.logLines.contains { $0.contains("\(difference)") })
    }

    @Test("a slow Apple costs no lease: late jobs are returned before its end, and other lanes continue")
    func slow() throws {
        var scripts: [Environment: FakeScript] = [:]
        scripts[.production] = FakeScript()
        scripts[.production]?.streams = 4
        scripts[.production]?.rules = [FakeScript.Rule(prefix: "", delayMilliseconds: 400)]
        var limits = Rig.quick
        (limits.connections, limits.requestMilliseconds) = (2, 5_000)
        let rig = try Rig(scripts: scripts, limits: limits)
        // A lease of eight seconds: a request starts within the first, and ends at least two seconds before the lease.
        let start = rig.loop.now
        try rig.give((0..<200).map { token($0) }, leaseMilliseconds: 8_000)
        #expect(try rig.send([token(500)], environment: .sandbox)[0].kind == .accepted)
        var streams = 0
        rig.run {
            streams = max(streams, rig.sender.allLanes.reduce(0) { $0 + $1.streamCount })
            return rig.outcomes.count == 201
        }
        #expect(streams <= 2 * 4 && rig.loop.now < start + 8_000)
        let back = rig.outcomes.filter { $0.kind != .accepted }
        #expect(back.count >= 150 && back.allSatisfy { $0.kind == .unsent && $0.reason == "notSentInTime" })
        #expect(rig.production.requestCount == 200 - back.count && rig.production.takenCount == 200 - back.count)
        #expect(rig.sender.metrics.unknown == 0 && rig.sender.inHandCount == 0)
    }

    @Test("an Apple that does not read gets only what a connection buffers, and the connection is closed")
    func deaf() throws {
        var script = FakeScript()
        script.deafConnections = 2
        var limits = Rig.quick
        (limits.streams, limits.connections, limits.tries) = (50, 1, 10)
        let rig = try Rig(scripts: [.production: script], limits: limits)
        let body = "{\"aps\":{\"alert\":\"" + String(repeating: "x", count: 3_500) + "\"}}"
        try rig.give((0..<400).map { token($0) }, body: body)
        var streams = 0
        rig.run {
            streams = max(streams, rig.sender.allLanes.reduce(0) { $0 + $1.streamCount })
            return rig.outcomes.count == 400
        }
        #expect(
            rig.outcomes.allSatisfy { $0.kind == .accepted }, "\(rig.outcomes.first { $0.kind != .accepted } as Any)")
        // At most two connections at a time: a suspect one and its successor.
        #expect(streams <= 2 * 50 && rig.sender.metrics.connectionsOpened >= 3)
        // An unverified credential is tried with a few requests on each connection.
        #expect(rig.sender.metrics.unknown >= 2 * 16 && rig.sender.metrics.unknown == rig.sender.metrics.repeated)
    }

    @Test("a request that violates Apple's rules is not sent, and an unreadable job is named")
    func rules() throws {
        let rig = try Rig()
        #expect(try rig.send(["xyz0"])[0].kind == .badToken)
        let large = "{\"aps\":{},\"x\":\"" + String(repeating: "a", count: 5_000) + "\"}"
        #expect(try rig.send([token(1)], body: large)[0].reason == "PayloadTooLarge")
        _ = try rig.sender.take(Array(#"{"jobs":[{"jobId":"j","leaseId":"l","tokenKind":"new"}]}"#.utf8)) { _ in
            JobLease(left: 1)
        }
        rig.run { rig.outcomes.count == 3 }
        #expect(rig.outcomes[2].kind == .rejected && rig.outcomes[2].reason == "unreadable tokenKind")
        _ = try rig.sender.take(Array(#"{"jobs":[{"leaseId":"l"},{"jobId":"j"}]}"#.utf8)) { _ in JobLease(left: 1) }
        #expect(rig.sender.metrics.jobsUnreadable == 3)
        for text in ["", "[]", "{}", "{\"jobs\":3}", "{\"jobs\":[{}]}x"] {
            #expect(throws: HandoffJobReader.Failure.self) {
                try rig.sender.take(Array(text.utf8)) { _ in JobLease(left: 1) }
            }
        }
        #expect(rig.production.requestCount == 0)
    }

    @Test("a device with too many requests backs off, and another one does not")
    func tooManyRequests() throws {
        let rig = try Rig(
            scripts: script(
                FakeScript.Rule(prefix: "ab", status: 429, reason: "TooManyRequests", retryAfterSeconds: 30, times: 1)))
        let first = try rig.send([token(1, "ab")])[0]
        #expect(first.kind == .retry && first.retryAfterSeconds == 30)
        let second = try rig.send([token(1, "ab")])[0]
        #expect(second.kind == .unsent && rig.production.requestCount == 1)
        #expect(try rig.send([token(2, "ab")])[0].kind == .accepted)
    }

    @Test("a job whose lease ends soon is returned unsent")
    func leaseEnds() throws {
        var script = FakeScript()
        script.refusedConnections = 1_000
        let rig = try Rig(scripts: [.production: script])
        try rig.give([token(1)], leaseMilliseconds: 2_300)
        rig.run { rig.outcomes.count == 1 }
        #expect(rig.outcomes[0].kind == .unsent && rig.production.requestCount == 0)
    }

    @Test("a job that arrives twice is sent once, and its result has the newest lease")
    func repeated() throws {
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "", delayMilliseconds: 100)))
        try rig.give([token(1)])
        rig.run { rig.production.requestCount == 1 }
        rig.giveAgain(lease: "second")
        rig.run { rig.outcomes.count == 1 }
        for _ in 0..<50 { rig.loop.step(at: SystemClock.monotonicMilliseconds, isTick: true) }
        #expect(rig.outcomes.map(\.leaseID) == ["second"] && rig.production.requestCount == 1)
    }

    @Test("a server that sends no settings is disconnected, and the next connection is used")
    func silentServer() throws {
        var script = FakeScript()
        script.silentConnections = 2
        let rig = try Rig(scripts: [.production: script])
        #expect(try rig.send([token(1)])[0].kind == .accepted && rig.sender.metrics.connectionsFailed == 2)
    }

    @Test("answers to an old provider token do not affect the new one")
    func oldTokenRefused() throws {
        let rig = try Rig(
            scripts: script(
                FakeScript.Rule(
                    prefix: "", status: 403, reason: "ExpiredProviderToken", delayMilliseconds: 50, times: 16)))
        // The first token is old enough to be replaced when Apple refuses it.
        rig.clockError = -25 * 60_000
        try rig.give((0..<16).map { token($0) })
        rig.run { rig.production.requestCount == 16 }
        rig.clockError = 0
        rig.run { rig.outcomes.count == 16 }
        #expect(rig.outcomes.allSatisfy { $0.kind == .accepted }, "\(rig.outcomes)")
    }

    @Test("an outage does not use up leases: each lease is followed by a longer wait")
    func outage() throws {
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "", status: 503, reason: "ServiceUnavailable")))
        var pauses: [Int64?] = []
        for attempt in 1...7 { pauses.append(try rig.send([token(attempt)], attempt: attempt)[0].retryAfterSeconds) }
        #expect(pauses == [5, 30, 180, 1_080, 3_600, 3_600, 3_600])
    }

    @Test("a reload sends waiting jobs with the new credential, and the old one opens no connection")
    func reload() throws {
        var script = FakeScript()
        script.streams = 1
        script.rules = [FakeScript.Rule(prefix: "", delayMilliseconds: 100)]
        var limits = Rig.quick
        limits.connections = 1
        let rig = try Rig(scripts: [.production: script], limits: limits)
        try rig.give((0..<5).map { token($0) })
        rig.run { rig.production.requestCount == 1 }
        rig.sender.reload(credentials: [:], otherCredentials: [rig.credential(named: "new")])
        rig.run { rig.outcomes.count == 5 }
        #expect(rig.outcomes.allSatisfy { $0.kind == .accepted } && rig.production.takenCount == 5)
        #expect(rig.sender.metrics.connectionsOpened == 2 && rig.sender.allLanes.map(\.name) == ["new/production"])
    }

    @Test("jobs that hang at Apple are returned when the stop has waited long enough")
    func abandon() throws {
        var limits = Rig.quick
        limits.requestMilliseconds = 20_000
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "", deed: .silence)), limits: limits)
        try rig.give([token(1)])
        rig.run { rig.production.requestCount == 1 }
        rig.sender.beginStop()
        rig.sender.abandon()
        rig.run { rig.outcomes.count == 1 }
        #expect(rig.outcomes[0].kind == .retry && rig.sender.inHandCount == 0)
    }

    @Test("a sender that stops before a delayed answer does not affect the fake")
    func leavesEarly() throws {
        let rig = try Rig(scripts: script(FakeScript.Rule(prefix: "", delayMilliseconds: 200)))
        try rig.give([token(1)])
        rig.run { rig.production.requestCount == 1 }
        rig.sender.beginStop()
        rig.sender.abandon()
        let end = SystemClock.monotonicMilliseconds + 400
        rig.run { SystemClock.monotonicMilliseconds > end }
        #expect(rig.outcomes.count == 1)
    }

    @Test("an unreachable Apple keeps only its share of the jobs, and the other one gets all of its own")
    func awayApple() throws {
        var script = FakeScript()
        script.refusedConnections = 100_000
        var limits = Rig.quick
        limits.failingJobs = 10
        let rig = try Rig(scripts: [.production: script], limits: limits)
        try rig.give((0..<100).map { token($0) }, leaseMilliseconds: 600_000)
        rig.run { rig.outcomes.count == 90 && rig.asideCount == 10 }
        #expect(rig.outcomes.allSatisfy { $0.kind == .unsent && $0.reason.hasPrefix("connectionFailed") })
        #expect(rig.outcomes.allSatisfy { (5...60).contains($0.retryAfterSeconds ?? 0) })
        #expect(try rig.send((200..<300).map { token($0) }, environment: .sandbox).allSatisfy { $0.kind == .accepted })
        #expect(rig.sender.inHandCount == 10 && rig.sender.failingCount == 1)
        // Later jobs are returned at once. After recovery the waiting jobs are sent.
        let more = try rig.send([token(400)])
        #expect(more[0].kind == .unsent)
        rig.run { rig.asideCount == 10 }
    }

    @Test("a ping detects an unresponsive Apple within seconds, and its jobs are set aside")
    func silentApple() throws {
        var script = FakeScript()
        script.deafConnections = 1
        var limits = Rig.patient
        (limits.silenceMilliseconds, limits.pongMilliseconds) = (200, 200)
        let rig = try Rig(scripts: [.production: script], limits: limits)
        var aside = 0
        try rig.give([token(1)])
        rig.run {
            aside = max(aside, rig.asideCount)
            return rig.outcomes.count == 1
        }
        // The request timeout of twenty seconds would have exceeded this test's wait.
        #expect(rig.outcomes[0].kind == .accepted && rig.sender.metrics.unknown == 1 && aside == 1)
        #expect(rig.sender.metrics.connectionsOpened == 2)
        rig.run { rig.asideCount == 0 }
    }

    @Test("jobs that arrive near the end of their leases are not sent")
    func lateLease() throws {
        let rig = try Rig(limits: Rig.patient)
        for (number, left) in [-5_000, 0, 21_000].enumerated() {
            try rig.give([token(number)], left: Int64(left), dueFor: 1_000)
            rig.run { rig.outcomes.count == number + 1 }
            #expect(rig.outcomes[number].kind == .unsent && rig.outcomes[number].reason == "notSentInTime")
        }
        #expect(rig.production.requestCount == 0)
        // The job is in time; its delay counts from its due time, however long the answer took.
        try rig.give([token(9)], left: 30_000, dueFor: 1_000)
        rig.run { rig.outcomes.count == 4 }
        #expect(rig.outcomes[3].kind == .accepted && rig.sender.metrics.delaySum < 20_000)
    }

    @Test("a job leased again before its end was reported is not sent again")
    func unreportedOutcome() throws {
        let rig = try Rig()
        for (number, kind) in [JobOutcome.Kind.accepted, .badToken].enumerated() {
            let id = "job\(number + 1)"
            rig.unreported[id] = JobOutcome(jobID: id, leaseID: "old", kind: kind, reason: "", vendorID: "v")
            let outcome = try rig.send([token(number)], attempt: 2)[0]
            #expect(outcome == JobOutcome(jobID: id, leaseID: "lease", kind: kind, reason: "", vendorID: "v"))
        }
        #expect(rig.production.requestCount == 0 && rig.sender.inHandCount == 0)
        #expect(rig.sender.metrics.repeatedOutcomes == 2)
    }

    @Test("an invalid key costs a few requests and one connection, whatever waits")
    func probes() throws {
        var script = FakeScript()
        script.rules = [FakeScript.Rule(prefix: "", status: 403, reason: "InvalidProviderToken", delayMilliseconds: 50)]
        let rig = try Rig(scripts: [.production: script], limits: Rig.patient)
        let outcomes = try rig.send((0..<300).map { token($0) })
        #expect(outcomes.allSatisfy { $0.kind == .unsent && $0.reason == "InvalidProviderToken" })
        #expect(rig.production.requestCount == 16 && rig.sender.metrics.connectionsOpened == 1)
        #expect(rig.logLines.count { $0.hasPrefix("credentialRefused") } == 1)
        // After the backoff it is tried with few requests again. Once Apple accepts it, all are sent.
        rig.production.play(FakeScript())
        rig.loopError += 40_000
        rig.run { true }
        #expect(try rig.send((300..<500).map { token($0) }).allSatisfy { $0.kind == .accepted })
    }

    @Test("a bad token is dropped after a number of leases if the other environment is unreachable")
    func otherEnvironmentAway() throws {
        var scripts = script(FakeScript.Rule(prefix: "aa", status: 400, reason: "BadDeviceToken"))
        scripts[.sandbox] = FakeScript()
        scripts[.sandbox]?.refusedConnections = 100_000
        for (attempt, kind) in [(1, JobOutcome.Kind.retry), (2, .retry), (3, .badToken)] {
            // Each lease may be another sender's.
            let rig = try Rig(scripts: scripts)
            try rig.give([token(1)], leaseMilliseconds: 3_000, attempt: attempt)
            rig.run { rig.outcomes.count == 1 }
            #expect(rig.outcomes[0].kind == kind && rig.outcomes[0].reason == "BadDeviceToken")
        }
    }

    @Test("a bad token is dropped at once if the credential backs off in the other environment")
    func otherEnvironmentRests() throws {
        let rig = try Rig(
            scripts: script(FakeScript.Rule(prefix: "aa", status: 400, reason: "BadDeviceToken")),
            scope: [.production], limits: Rig.patient)
        #expect(try rig.send([token(3)], environment: .sandbox)[0].reason == "BadEnvironmentKeyIdInToken")
        let outcome = try rig.send([token(1)])[0]
        #expect(outcome.kind == .badToken && outcome.reason == "BadDeviceToken")
    }

    @Test("a refusal of a replaced credential is ignored: the job is sent with the new one")
    func refusedAfterReload() throws {
        let rig = try Rig(
            scripts: script(
                FakeScript.Rule(
                    prefix: "", status: 403, reason: "InvalidProviderToken", delayMilliseconds: 100, times: 1)),
            limits: Rig.patient)
        try rig.give([token(1)])
        rig.run { rig.production.requestCount == 1 }
        rig.sender.reload(credentials: [:], otherCredentials: [rig.credential(named: "new")])
        rig.run { rig.outcomes.count == 1 }
        #expect(rig.outcomes[0].kind == .accepted && rig.production.requestCount == 2)
    }

    @Test("a stop returns unsent jobs, and requests in flight get their answers")
    func stop() throws {
        var script = FakeScript()
        script.streams = 1
        script.rules = [FakeScript.Rule(prefix: "", delayMilliseconds: 100)]
        var limits = Rig.quick
        limits.connections = 1
        let rig = try Rig(scripts: [.production: script], limits: limits)
        try rig.give((0..<10).map { token($0) })
        rig.run { rig.production.requestCount == 1 }
        rig.sender.beginStop()
        rig.run { rig.outcomes.count == 10 }
        #expect(rig.outcomes.count { $0.kind == .accepted } == 1)
        #expect(rig.outcomes.count { $0.kind == .unsent && $0.reason == "senderStops" } == 9)
        #expect(rig.production.takenCount == 1 && rig.sender.inHandCount == 0)
    }
}
