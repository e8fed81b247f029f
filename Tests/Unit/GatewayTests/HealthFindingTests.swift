import Delivery
import Testing
import Wire

@testable import Gateway

@Suite("Health findings")
struct HealthFindingTests {
    /// Figures with one fault for each name; a new name does not compile without its own.
    private static func bring(_ name: HealthFinding.Name, _ figures: inout MetricFigures, _ health: inout ClusterHealth)
    {
        switch name {
        case .storeRefusesWrites: figures.acceptsWrites = false
        case .clockDiffers: figures.status.clockOffset = 20_000
        case .certificateExpired: figures.status.certificates = [ListenerExpiry(listener: "device", end: 999)]
        case .certificateEnds:
            figures.status.certificates = [ListenerExpiry(listener: "device", end: 1_000 + 86_400)]
        case .hookFailing: figures.hook = failing
        case .webhookFailing: figures.webhooks = ["demo/events": failing]
        case .noSender: figures.loops[0].apps[0].dueJobs[.apns] = 3
        case .damagedRows: figures.loops[0].shard.damagedRows = 1
        case .diskLow: figures.status.disk = (free: 9, all: 100)
        case .connectionsFull: figures.deviceConnections = 95
        case .partitionsWithoutOwner: health.partsWithoutOwner = [7]
        case .linksDown: health.linksDown = ["10.0.0.2:7090"]
        case .redisAway: health.redisAwaySince = 5
        case .logLinesLost: figures.lostLogLines = 2
        }
    }

    private static var failing: HookState {
        var state = HookState()
        (state.failingSince, state.lastStatus) = (1, 500)
        return state
    }

    private static var healthy: MetricFigures {
        var figures = MetricFigures()
        figures.loops = [LoopFigures()]
        figures.loops[0].apps = [AppStatistics()]
        figures.status.connections = ConnectionLimits(devices: 100, senders: 1, http: 1, admin: 1)
        figures.status.certificates = [ListenerExpiry(listener: "device", end: 1_000 + 100 * 86_400)]
        figures.status.disk = (free: 50, all: 100)
        figures.webhooks = ["demo/events": HookState()]
        figures.hook = HookState()
        figures.hook?.channels = [.apns, .hms]
        figures.deviceConnections = 94
        return figures
    }

    @Test("a healthy gateway has no finding")
    func healthy() {
        var watch = HealthWatch()
        for minute in 0..<5 {
            var figures = Self.healthy
            figures.uptimeMilliseconds = Int64(minute) * 60_000
            #expect(watch.findings(figures, ClusterHealth(), wall: 1_000).isEmpty)
        }
    }

    @Test("each fault is found alone, with a text and a remedy", arguments: HealthFinding.Name.allCases)
    func each(name: HealthFinding.Name) {
        var watch = HealthWatch()
        var (figures, health) = (Self.healthy, ClusterHealth())
        Self.bring(name, &figures, &health)
        _ = watch.findings(figures, health, wall: 1_000)
        figures.uptimeMilliseconds += HealthWatch.leaseTimeout
        let found = watch.findings(figures, health, wall: 1_000)
        #expect(found.map(\.name) == [name])
        #expect(found.allSatisfy { !$0.text.isEmpty && !$0.advice.isEmpty })
    }

    @Test("client authorities have findings, texts and samples of their own")
    func clientAuthorities() {
        var watch = HealthWatch()
        var figures = Self.healthy
        figures.status.certificates.append(
            ListenerExpiry(listener: "device", part: .clientAuthorities, end: 1_000 + 86_400))
        let soon = watch.findings(figures, nil, wall: 1_000)
        #expect(soon.map(\.name) == [.certificateEnds] && soon.map(\.subject) == ["device.clientAuthorities"])
        #expect(soon[0].text.contains("ends in 1 days"))
        let over = watch.findings(figures, nil, wall: 90_000)
        #expect(over.map(\.name) == [.certificateExpired] && over.map(\.severity) == [.problem])
        #expect(over[0].text == "all clientAuthorities of device.tls have expired, so every client is refused")
        let page = String(decoding: MetricsPage.render(figures), as: UTF8.self)
        #expect(page.contains("longwire_certificate_end_seconds{listener=\"device\"} 8641000\n"))
        #expect(page.contains("longwire_certificate_end_seconds{listener=\"device.clientAuthorities\"} 87400\n"))
    }

    @Test("due jobs are a finding only after a minute in which no sender leased one of the channel")
    func leases() {
        var watch = HealthWatch()
        var figures = Self.healthy
        figures.loops[0].apps[0].dueJobs[.apns] = 3
        func look(after milliseconds: Int64) -> Bool {
            figures.uptimeMilliseconds += milliseconds
            return !watch.findings(figures, nil, wall: 1_000).isEmpty
        }
        #expect(!look(after: 0) && !look(after: 59_000))
        figures.loops[0].shard.vendors[.apns].leasesGiven += 1
        #expect(!look(after: 2_000) && !look(after: 10_000) && !look(after: 59_000))
        #expect(look(after: 1_000))
        // A sender that waits for another channel, or may not lease the app's jobs, does not help.
        figures.loops[0].waitingLongPolls = 1
        #expect(look(after: 10_000))
        figures.loops[0].shard.vendors[.fcm].leasesGiven += 1
        #expect(look(after: 10_000))
        figures.loops[0].waitingLongPolls = 0
        figures.hook?.failingSince = 1
        #expect(watch.findings(figures, nil, wall: 1_000).map(\.name) == [.hookFailing])
        figures.uptimeMilliseconds += 70_000
        #expect(watch.findings(figures, nil, wall: 1_000).map(\.name) == [.hookFailing])
        figures.hook?.failingSince = nil
        figures.loops[0].apps[0].dueJobs[.apns] = 0
        #expect(!look(after: 70_000) && !look(after: 70_000))
    }

    @Test("a failing receiver's finding has the cause, or the status")
    func causes() {
        var watch = HealthWatch()
        var figures = Self.healthy
        figures.hook?.failingSince = 1
        figures.hook?.lastFailure = .certificate
        figures.hook?.lastCause = "certificate has expired"
        figures.webhooks["demo/events"] = Self.failing
        let texts = watch.findings(figures, nil, wall: 1_000).map(\.text)
        #expect(texts[0] == "the handoff hook fails: certificate has expired")
        #expect(texts[1] == "the webhook of demo/events fails: it answers 500")
    }

    @Test("a failing hook hides due jobs of its own channels only")
    func failingHook() {
        var watch = HealthWatch()
        var figures = Self.healthy
        for channel in [VendorChannel.apns, .hms, .fcm] { figures.loops[0].apps[0].dueJobs[channel] = 1 }
        func look(after milliseconds: Int64) -> [String] {
            figures.uptimeMilliseconds += milliseconds
            return watch.findings(figures, nil, wall: 1_000).map { "\($0.name) \($0.subject)" }
        }
        figures.hook?.channels = [.hms]
        #expect(look(after: 0) == [])
        figures.hook?.failingSince = 1
        // The one-minute wait of the other channels began before the hook failed.
        #expect(look(after: 60_000) == ["hookFailing ", "noSender apns", "noSender fcm"])
        figures.hook?.channels = VendorChannel.vendors
        #expect(look(after: 60_000) == ["hookFailing "])
    }

    @Test("problems come before advice, and the log gets each change once")
    func changes() {
        var report = HealthReport()
        var figures = Self.healthy
        (figures.lostLogLines, figures.acceptsWrites) = (1, false)
        let first = report.look(at: figures, nil, wall: 1_000)
        #expect(first.began.map(\.name) == [.storeRefusesWrites, .logLinesLost] && first.ended.isEmpty)
        figures.lostLogLines = 2
        #expect(report.look(at: figures, nil, wall: 1_000).began.isEmpty)
        figures.acceptsWrites = true
        let last = report.look(at: figures, nil, wall: 1_000)
        #expect(last.began.isEmpty && last.ended.map(\.name) == [.storeRefusesWrites])
        #expect(report.findings.map(\.name) == [.logLinesLost])
    }
}
