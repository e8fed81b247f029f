import Delivery
import MessageStore
import TestKit
import Testing
import Wire

@testable import Gateway

@Suite("Metrics")
struct MetricsTests {
    private func render(_ figures: MetricFigures) -> [String] {
        String(decoding: MetricsPage.render(figures), as: UTF8.self).split(separator: "\n").map(String.init)
    }

    @Test("samples of several loops add up, and every line follows the text format")
    func loopsAddUp() throws {
        var figures = MetricFigures()
        (figures.deviceConnections, figures.senderConnections) = (5, 2)
        (figures.status.disk, figures.status.certificates) = ((1, 2), [ListenerExpiry(listener: "device", end: 3)])
        figures.status.clockOffset = -250
        figures.hook = HookState()
        figures.cluster = ClusterFigures()
        figures.cluster?.links = [ClusterFigures.Link(peer: "10.0.0.2:7100")]
        figures.appIDs = ["one"]
        for loop in 1...3 {
            var part = LoopFigures()
            for counter in LoopCounter.allCases { part.metrics.count(counter, loop) }
            part.metrics.observe(.request, microseconds: Int64(loop) * 100)
            part.shard.accepted = UInt64(loop)
            part.shard.finals[Int(FinalState.deliveredOffline.rawValue) - 1] = UInt64(loop)
            part.shard.liveBroadcasts = 4 - loop
            part.apps = [AppStatistics()]
            figures.loops.append(part)
        }
        let lines = render(figures)
        #expect(lines.contains("longwire_messages_accepted_total 6"))
        #expect(lines.contains("longwire_messages_ended_total{state=\"deliveredOffline\"} 6"))
        #expect(lines.contains("longwire_acks_received_total 6"))
        #expect(lines.contains("longwire_http_requests_total{listener=\"admin\",status=\"4xx\"} 6"))
        #expect(lines.contains(#"longwire_connections{listener="device"} 5"#))
        #expect(lines.contains("longwire_clock_offset_seconds -0.25"))
        #expect(lines.contains("longwire_broadcasts_live 3"), "every loop has the same ones")
        #expect(
            lines.contains("longwire_http_request_seconds_bucket{le=\"0.00005\"} 0")
                || lines.contains("longwire_http_request_seconds_bucket{le=\"5e-05\"} 0"))
        #expect(lines.contains("longwire_http_request_seconds_bucket{le=\"0.0001\"} 1"))
        #expect(lines.contains("longwire_http_request_seconds_bucket{le=\"+Inf\"} 3"))
        #expect(lines.contains("longwire_http_request_seconds_sum 0.0006"))
        #expect(lines.contains("longwire_http_request_seconds_count 3"))
        try validate(lines)
    }

    /// Checks the format of a page: HELP and TYPE once and first, one family after another, valid names and values.
    private func validate(_ lines: [String]) throws {
        let sample =
            /(?<name>[a-z_][a-z0-9_]*)(\{(?<labels>[a-z]+="([^"\\\n]|\\[\\"n])*"(,[a-z]+="([^"\\\n]|\\[\\"n])*")*)\})? (?<value>-?[0-9.]+(e[+-]?[0-9]+)?|\+Inf|NaN)/
        var family = "", kind = ""
        var seenFamilies: Set<String> = [], seenSamples: Set<String> = []
        for line in lines {
            if line.hasPrefix("# HELP ") {
                family = String(line.split(separator: " ")[2])
                #expect(seenFamilies.insert(family).inserted, "\(family) stands twice")
                kind = ""
            } else if line.hasPrefix("# TYPE ") {
                let words = line.split(separator: " ")
                #expect(String(words[2]) == family)
                kind = String(words[3])
                #expect(["counter", "gauge", "histogram"].contains(kind))
                #expect((kind == "counter") == family.hasSuffix("_total"))
            } else {
                let match = try #require(line.wholeMatch(of: sample), "\(line)")
                let name = String(match.output.name)
                if kind == "histogram" {
                    #expect(["_bucket", "_sum", "_count"].contains { name == family + $0 })
                } else {
                    #expect(name == family)
                }
                #expect(seenSamples.insert(String(line.prefix { $0 != " " })).inserted, "\(line) stands twice")
            }
        }
        #expect(seenFamilies == Set(MetricCatalogue.all.map(\.name)))
    }

    @Test("a shard's counters of several apps are on the page, by app if a metric has that label")
    func runningShard() {
        let harness = DeliveryHarness()
        let other = DeliveryHarness.otherApp
        let phone = harness.register(token: "aa")
        let neighbour = harness.register(token: "aa", app: other)
        for _ in 0..<3 { #expect(harness.publish(phone).code == .accepted) }
        harness.acknowledge(phone, 2)
        harness.disconnect(neighbour)
        for _ in 0..<2 { #expect(harness.publish(neighbour, app: other).code == .accepted) }
        _ = harness.lease(1)

        var lines = page(of: harness)
        for line in [
            "longwire_messages_accepted_total 5",
            "longwire_messages_pending 3",
            "longwire_messages_ended_total{state=\"delivered\"} 2",
            "longwire_devices_registered_total 2",
            "longwire_devices_reachable 1",
            "longwire_handoff_jobs_created_total{channel=\"apns\"} 2",
            "longwire_handoff_jobs_leased_total{channel=\"apns\"} 1",
            "longwire_handoff_jobs_under_lease{channel=\"apns\"} 1",
            "longwire_handoff_jobs_due{channel=\"apns\"} 1",
            "longwire_app_connected_devices{app=\"app\"} 1",
            "longwire_app_connected_devices{app=\"other\"} 0",
            "longwire_app_messages_accepted_total{app=\"app\"} 3",
            "longwire_app_messages_accepted_total{app=\"other\"} 2",
            "longwire_app_messages_undelivered_total{app=\"other\",state=\"expired\"} 0",
            "longwire_app_handoff_jobs_due{app=\"app\",channel=\"apns\"} 0",
            "longwire_app_handoff_jobs_due{app=\"other\",channel=\"apns\"} 1",
            "longwire_app_feed_items{app=\"app\",type=\"upstream\"} 0",
            "longwire_app_feed_items{app=\"other\",type=\"events\"} 0",
            "longwire_app_feed_oldest_seconds{app=\"app\",type=\"upstream\"} 0",
            "longwire_feed_oldest_seconds 0",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
        harness.advance(61_000)
        harness.advance(10_800_000)
        lines = page(of: harness)
        for line in [
            "longwire_messages_pending 0",
            "longwire_handoff_leases_lapsed_total{channel=\"apns\"} 1",
            "longwire_handoff_jobs_due{channel=\"apns\"} 0",
            "longwire_app_messages_undelivered_total{app=\"app\",state=\"expired\"} 1",
            "longwire_app_messages_undelivered_total{app=\"other\",state=\"expired\"} 2",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
    }

    private func page(of harness: DeliveryHarness) -> Set<String> {
        var figures = MetricFigures()
        var part = LoopFigures()
        part.shard = harness.statistics
        part.apps = harness.shard.statistics(of: harness.apps.map(\.key))
        figures.loops = [part]
        figures.appIDs = harness.apps.map(\.appID)
        return Set(render(figures))
    }

    @Test("label values cannot break a line")
    func escaping() {
        var figures = MetricFigures()
        figures.appIDs = ["a\"b\\c\nd"]
        figures.loops = [LoopFigures()]
        figures.loops[0].apps = [AppStatistics()]
        #expect(render(figures).contains(#"longwire_app_connected_devices{app="a\"b\\c\nd"} 0"#))
    }

    @Test("without a hook its metrics are absent")
    func noHook() {
        #expect(!render(MetricFigures()).contains { $0.contains("longwire_hook") })
    }

    @Test("buckets are cumulative and include their bounds, and negative times count as zero")
    func histogram() {
        var histogram = MetricHistogram()
        for value in [-5, 50, 51, 10_000_000, 10_000_001] as [Int64] { histogram.observe(value) }
        #expect(histogram.counts.first == 2)
        #expect(histogram.counts[1] == 1)
        #expect(histogram.counts.suffix(2) == [1, 1])
        #expect(histogram.sum == 20_000_102)
    }

    @Test("the committer's powers of two are buckets of seconds")
    func commitTimes() {
        var figures = MetricFigures()
        figures.store.commitTimes = [1, 2, 3]
        figures.store.totalCommitTime = 2_000_000
        let lines = render(figures).filter { $0.hasPrefix("longwire_store_group_commit_seconds") }
        #expect(lines.count == 5)
        #expect(lines[1].hasSuffix("} 3") && lines[1] != lines[0])
        #expect(lines[2] == "longwire_store_group_commit_seconds_bucket{le=\"+Inf\"} 6")
        #expect(lines[3] == "longwire_store_group_commit_seconds_sum 2")
        #expect(lines[4] == "longwire_store_group_commit_seconds_count 6")
        #expect(MetricHistogram(powersOfTwo: [1, 2, 3], sum: 0).bounds == [2, 4])
    }

    @Test("a snapshot does not change while the loop counts")
    func snapshot() {
        var metrics = LoopMetrics()
        metrics.count(.turns)
        let snapshot = metrics
        metrics.count(.turns, 4)
        #expect(snapshot[.turns] == 1)
        #expect(metrics[.turns] == 5)
    }

    @Test("every refusal and every close has its counter")
    func mappings() {
        #expect(LoopCounter.refused(.accepted) == nil)
        #expect(LoopCounter.refused(.busy) == .refusedBusy)
        #expect(LoopCounter.closed(.badAck) == .closedForProtocol)
    }
}
