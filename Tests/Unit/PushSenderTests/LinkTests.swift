import EventLoops
import Platform
import Testing

@testable import PushSender

/// A gateway on a separate loop, with answers from the test.
private final class GatewayStub {
    struct Call: Sendable {
        var path: String
        var body: String
    }
    struct State: Sendable {
        var calls: [Call] = []
        /// Receives a call and its number on its path, starting at 1; returns a status and a body.
        var answer: @Sendable (Call, Int) -> (Int, String) = { _, _ in (200, "{\"jobs\":[]}") }
    }

    let state = Lock(State())
    let url: String
    private let loop: EventLoop

    init(_ answer: @escaping @Sendable (Call, Int) -> (Int, String)) throws {
        let loop = try EventLoop(index: 0, name: "gateway-stub")
        self.loop = loop
        state.withLock { $0.answer = answer }
        let socket = try ListeningSocket("127.0.0.1:0")
        url = "http://\(socket.address)"
        _ = try HTTPServer(on: loop, socket: socket) { [state] exchange in
            let call = Call(path: exchange.rawTarget, body: String(decoding: exchange.body, as: UTF8.self))
            let (count, answer) = state.withLock { state in
                state.calls.append(call)
                return (state.calls.count { $0.path == call.path }, state.answer)
            }
            let (status, body) = answer(call, count)
            let headers = status == 503 ? [(name: "Retry-After", value: "86400")] : []
            exchange.respond(status: status, headers: headers, body: Array(body.utf8))
        }
        try loop.start()
    }

    func calls(_ path: String) -> [Call] { state.withLock { $0.calls.filter { $0.path == "/v1/handoff/" + path } } }

    func stop() {
        loop.stop()
        loop.join()
    }

    /// Returns the gateway's answer to a report: the same verdict for each result.
    static func verdicts(_ call: Call, _ verdict: String = "recorded") -> String {
        let jobs = call.body.split(separator: #""jobId":""#).dropFirst().compactMap { $0.split(separator: "\"").first }
        let items = jobs.map { #"{"jobId":"\#($0)","verdict":"\#(verdict)"}"# }
        return #"{"results":[\#(items.joined(separator: ","))]}"#
    }
}

@Suite("The sender's link to the gateway", .serialized) struct LinkTests {
    private func settings(_ url: String) -> GatewayLink.Settings {
        var settings = GatewayLink.Settings(url: url)
        (settings.leaseSeconds, settings.waitSeconds, settings.jobs) = (60, 20, 8)
        (settings.callMilliseconds, settings.pause) = (5_000, 10...20)
        return settings
    }

    private func outcome(_ id: String, _ kind: JobOutcome.Kind = .accepted) -> JobOutcome {
        JobOutcome(jobID: id, leaseID: "l", kind: kind)
    }

    /// Runs a link until the test's body returns, and stops it as the program does.
    private func withLink(
        _ stub: GatewayStub, _ settings: GatewayLink.Settings, leases: Bool = true,
        jobs: @escaping GatewayLink.JobTaker = { _, _, taken in taken(0) }, _ body: (GatewayLink) -> Void
    ) throws {
        let link = try GatewayLink(settings, token: { "token" }, log: { _, _ in })
        try link.start(leases: leases, jobs: jobs)
        body(link)
        link.stopLeasing()
        link.joinLeaser()
        link.stopReporting()
        link.abandon()
        link.joinReporter()
        stub.stop()
    }

    private func wait(
        _ what: String, sourceLocation: SourceLocation = #_sourceLocation, until isDone: () -> Bool
    ) {
        for _ in 0..<10_000 {
            if isDone() { return }
            Pause.milliseconds(2)
        }
        Issue.record("waited in vain: \(what)", sourceLocation: sourceLocation)
    }

    @Test("a lease is requested with its waiting time, and counts from the call")
    func asked() throws {
        let stub = try GatewayStub { _, _ in (200, "{\"jobs\":[]}") }
        let asked = Lock<[UInt64]>([])
        let start = SystemClock.monotonicMilliseconds
        try withLink(
            stub, settings(stub.url),
            jobs: { _, askedAt, taken in
                asked.withLock { $0.append(askedAt) }
                taken(0)
            }
        ) { _ in wait("a lease") { !asked.withLock { $0.isEmpty } } }
        #expect(stub.calls("lease")[0].body.contains("\"leaseSeconds\":80,"))
        #expect(asked.withLock { $0.allSatisfy { $0 >= start && $0 <= SystemClock.monotonicMilliseconds } })
        var longest = settings("")
        longest.leaseSeconds = 300
        #expect(longest.askedSeconds == 300)
    }

    @Test("nothing is leased while results cannot be reported, and no result is dropped")
    func reportsFail() throws {
        let works = Lock(false)
        let stub = try GatewayStub { call, _ in
            guard call.path == "/v1/handoff/results" else { return (200, "{\"jobs\":[]}") }
            return works.withLock { $0 } ? (200, GatewayStub.verdicts(call)) : (503, "busy")
        }
        try withLink(stub, settings(stub.url)) { link in
            wait("a lease") { stub.calls("lease").count > 0 }
            link.took(2)
            link.take([outcome("a"), outcome("b", .unsent)])
            wait("failed reports") { link.figures.reportFailures > 3 && link.room == 0 }
            #expect(link.figures.held == 2)
            works.withLock { $0 = true }
            wait("the report") { link.figures.reports == 1 }
            #expect(link.figures.outcomesDropped == 0)
            wait("no outcome is left") { link.figures.held == 0 && link.unreported().isEmpty }
            let count = stub.calls("lease").count
            wait("leases go on") { stub.calls("lease").count > count }
        }
    }

    @Test("final outcomes are remembered until the gateway has them")
    func unreported() throws {
        let stub = try GatewayStub { _, _ in (503, "busy") }
        try withLink(stub, settings(stub.url), leases: false) { link in
            link.take([outcome("a"), outcome("b", .unsent), outcome("c", .badToken), outcome("d", .retry)])
            wait("a report") { link.figures.reportFailures > 0 }
            link.take([outcome("e", .rejected)])
            #expect(Set(link.unreported().keys) == ["a", "c", "e"])
        }
    }

    @Test("a result is reported until the gateway accepts it, however often its store fails")
    func storeFails() throws {
        let stub = try GatewayStub { call, count in
            if !call.body.contains("\"bad\"") { return (200, GatewayStub.verdicts(call)) }
            // Twenty failures of the store, then a valid verdict.
            if count > 21 { return (200, GatewayStub.verdicts(call, "stale")) }
            let bad = "{\"jobId\":\"bad\",\"verdict\":\"storeFailed\"}"
            let good = "{\"jobId\":\"good\",\"verdict\":\"recorded\"}"
            return (200, count == 21 ? "{}" : "{\"results\":[\(good),\(bad)]}")
        }
        try withLink(stub, settings(stub.url), leases: false) { link in
            link.took(2)
            link.take([outcome("good"), outcome("bad")])
            wait("it is kept") { link.figures.held == 1 && stub.calls("results").count > 12 }
            #expect(Set(link.unreported().keys) == ["bad"])
            #expect(!stub.calls("results")[1].body.contains("\"good\""))
            wait("it is taken") { link.figures.held == 0 }
            #expect(link.figures.outcomesDropped == 0 && stub.calls("results").count == 22)
            #expect(link.figures.verdicts == ["storeFailed": 20, "stale": 1])
        }
    }

    @Test("results that a partition refuses delay no others, and use room only above the bound")
    func partIsAway() throws {
        let isAway = Lock(true)
        let stub = try GatewayStub { call, _ in
            guard call.path == "/v1/handoff/results" else { return (200, "{\"jobs\":[]}") }
            let isKept = call.body.contains("\"away") && isAway.withLock { $0 }
            return (200, GatewayStub.verdicts(call, isKept ? "storeFailed" : "recorded"))
        }
        var settings = settings(stub.url)
        settings.pause = 2_000...2_000
        try withLink(stub, settings, leases: false) { link in
            for round in 1...3 {
                link.took(8)
                link.take((0..<8).map { outcome("away\(8 * round + $0)") })
                wait("they are kept") { stub.calls("results").count == round }
                wait("their room") { link.room == (round == 1 ? 8 : 0) }
            }
            #expect(link.figures.held == 24 && link.figures.waiting == 24)
            // A result of another partition is not delayed.
            link.took(1)
            link.take([outcome("here")])
            wait("it is reported") { stub.calls("results").contains { $0.body.contains("\"here\"") } }
            #expect(!stub.calls("results").last!.body.contains("away"))
            isAway.withLock { $0 = false }
            link.stopReporting()
            wait("all are taken") { link.figures.held == 0 }
            #expect(link.figures.outcomesDropped == 0)
        }
    }

    @Test("a stop without the gateway drops unreported results and returns their number")
    func abandoned() throws {
        let stub = try GatewayStub { call, _ in (200, GatewayStub.verdicts(call, "storeFailed")) }
        var settings = settings(stub.url)
        settings.pause = 60_000...60_000
        let link = try GatewayLink(settings, token: { "token" }, log: { _, _ in })
        try link.start(leases: false) { _, _, taken in taken(0) }
        link.took(2)
        link.take([outcome("a"), outcome("b")])
        wait("they are kept") { link.figures.reports == 1 }
        link.abandon()
        link.stopReporting()
        link.joinReporter()
        #expect(link.figures.outcomesDropped == 2 && link.figures.held == 0)
        stub.stop()
    }

    @Test("a result that the gateway calls malformed is sent alone, and the others are reported")
    func malformed() throws {
        let stub = try GatewayStub { call, _ in
            call.body.contains("\"x3\"") ? (400, "malformed") : (200, GatewayStub.verdicts(call))
        }
        try withLink(stub, settings(stub.url), leases: false) { link in
            link.took(6)
            link.take((0..<6).map { outcome("x\($0)") })
            wait("all are through") { link.figures.held == 0 }
            #expect(link.figures.outcomesDropped == 1 && link.room == 8)
        }
    }

    @Test("jobs of an unreachable Apple take no room from others, and at most double the bound")
    func setAside() throws {
        let stub = try GatewayStub { _, _ in (200, "{\"jobs\":[]}") }
        try withLink(stub, settings(stub.url), leases: false) { link in
            link.took(8)
            #expect(link.room == 0)
            link.setAside(3)
            #expect(link.room == 3)
            link.took(3)
            #expect(link.room == 0)
            link.setAside(500)
            #expect(link.room == 5)
            link.took(5)
            #expect(link.room == 0)
        }
    }

    @Test("a gateway's long pause is shortened, and early empty answers do not cause a busy loop")
    func pauses() throws {
        let stub = try GatewayStub { _, count in count == 1 ? (503, "busy") : (200, "{\"jobs\":[]}") }
        var settings = settings(stub.url)
        (settings.pause, settings.longestPause) = (50...60, 70)
        try withLink(stub, settings) { _ in
            wait("leases") { stub.calls("lease").count > 3 }
            let (count, start) = (stub.calls("lease").count, SystemClock.monotonicMilliseconds)
            wait("more leases") { stub.calls("lease").count >= count + 5 }
            // Each call waits for its pause: five need at least four pauses, however slow the machine is.
            #expect(SystemClock.monotonicMilliseconds - start >= 4 * 50 - 10)
        }
    }
}
