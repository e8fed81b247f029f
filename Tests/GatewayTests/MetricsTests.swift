import Delivery
import Testing
import Wire

@testable import Gateway

@Suite("Metrics")
struct MetricsTests {
    private func render(_ page: MetricsPage) -> [String] {
        String(decoding: page.render(), as: UTF8.self).split(separator: "\n").map(String.init)
    }

    @Test("samples of several loops add up, and every line is of the text format")
    func loopsAddUp() throws {
        var page = MetricsPage()
        for loop in 1...3 {
            var metrics = LoopMetrics()
            for counter in LoopCounter.allCases { metrics.count(counter, loop) }
            for timer in LoopTimer.allCases { metrics.observe(timer, microseconds: Int64(loop) * 100) }
            page.add(metrics)
        }
        page.add(.connections, 5)
        page.add(.clockOffsetSeconds, -0.25)
        let lines = render(page)
        #expect(lines.contains("longwire_messages_accepted_total 6"))
        #expect(lines.contains("longwire_messages_ended_total{state=\"deliveredOffline\"} 6"))
        #expect(lines.contains("longwire_http_requests_total{listener=\"admin\",status=\"4xx\"} 6"))
        #expect(lines.contains("longwire_connections 5"))
        #expect(lines.contains("longwire_clock_offset_seconds -0.25"))
        #expect(
            lines.contains("longwire_http_request_seconds_bucket{le=\"0.00005\"} 0")
                || lines.contains("longwire_http_request_seconds_bucket{le=\"5e-05\"} 0"))
        #expect(lines.contains("longwire_http_request_seconds_bucket{le=\"0.0001\"} 1"))
        #expect(lines.contains("longwire_http_request_seconds_bucket{le=\"+Inf\"} 3"))
        #expect(lines.contains("longwire_http_request_seconds_sum 0.0006"))
        #expect(lines.contains("longwire_http_request_seconds_count 3"))
        try validate(lines)
    }

    /// Holds a page to the format: HELP and TYPE once and first, one family after another, names and values well formed.
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
    }

    @Test("label values cannot break a line")
    func escaping() {
        var page = MetricsPage()
        page.add(.buildInformation, 1, [.version: "a\"b\\c\nd"])
        #expect(render(page).last == #"longwire_build_info{version="a\"b\\c\nd"} 1"#)
    }

    @Test("buckets are cumulative, their bounds included, and time that ran backwards counts as none")
    func histogram() {
        var histogram = MetricHistogram()
        for value in [-5, 50, 51, 10_000_000, 10_000_001] as [Int64] { histogram.observe(microseconds: value) }
        #expect(histogram.counts.first == 2)
        #expect(histogram.counts[1] == 1)
        #expect(histogram.counts.suffix(2) == [1, 1])
        #expect(histogram.sumMicroseconds == 20_000_102)
    }

    @Test("a snapshot stays as it was while the loop counts on")
    func snapshot() {
        var metrics = LoopMetrics()
        metrics.count(.messagesAccepted)
        let snapshot = metrics
        metrics.count(.messagesAccepted, 4)
        #expect(snapshot[.messagesAccepted] == 1)
        #expect(metrics[.messagesAccepted] == 5)
    }

    @Test("every end of a message, every refusal and every close has its counter")
    func mappings() {
        #expect(Set(FinalState.allCases.map(LoopCounter.ended)).count == FinalState.allCases.count)
        #expect(LoopCounter.published(.accepted) == .messagesAccepted)
        #expect(LoopCounter.closed(.badAck) == .closedForProtocol)
        for counter in LoopCounter.allCases { #expect(counter.sample.metric.kind == .counter) }
        // No two counters share a sample, or one would hide in the other.
        let samples = LoopCounter.allCases.map { counter in
            "\(counter.sample.metric)" + counter.sample.labels.map { "\($0.key)=\($0.value)" }.joined(separator: ",")
        }
        #expect(Set(samples).count == samples.count)
    }

    @Test("names are unique and help is one line")
    func names() {
        #expect(Set(Metric.allCases.map(\.name)).count == Metric.allCases.count)
        for metric in Metric.allCases {
            #expect(!metric.help.isEmpty && !metric.help.contains("\n") && !metric.help.contains("\\"))
        }
    }
}
