import Delivery
import PushAPI
import Testing

@testable import Gateway

@Suite("The plots of the last hour") struct MetricHistoryTests {
    /// Returns figures with these totals of one loop.
    private func figures(accepted: UInt64 = 0, sessions: Int = 0, requests: [Int64] = []) -> MetricFigures {
        var figures = MetricFigures()
        var part = LoopFigures()
        part.shard.accepted = accepted
        part.deviceSessions = sessions
        for request in requests { part.metrics.observe(.request, microseconds: request) }
        figures.loops = [part, LoopFigures()]
        return figures
    }

    private func answer(_ history: MetricHistory, time: Int64 = 0, now: Int64 = 0) -> String {
        String(decoding: history.answer(time: time, now: now).body, as: UTF8.self)
    }

    @Test("each series selects samples of one metric of the catalogue")
    func series() throws {
        for series in MetricHistory.series {
            let metric = try #require(MetricCatalogue.all.first { $0.name == series.metric }, "\(series.metric)")
            #expect(series.sampleCount > 0, "\(series.metric)")
            switch series.kind {
            case .gauge: #expect(metric.kind == .gauge, "\(series.metric)")
            case .rate: #expect(metric.kind == .counter, "\(series.metric)")
            case .p99: #expect(metric.kind == .histogram && series.sampleCount == 1, "\(series.metric)")
            }
        }
        // The sum over all channels.
        #expect(MetricHistory.series[3].sampleCount > 1)
    }

    @Test("a point has the rate and the p99 since the point before, and the value of a gauge")
    func points() {
        var history = MetricHistory()
        history.add(figures(accepted: 100, sessions: 3), at: 5_000)
        history.add(figures(accepted: 150, sessions: 4, requests: [900]), at: 15_000)
        history.add(figures(accepted: 150, requests: [900]), at: 35_000)
        // A partition that moves in brings its counters later.
        history.add(figures(accepted: 20), at: 45_000)
        let text = answer(history, time: 1_000_000, now: 46_000)
        for part in [
            #"{"time":1000000,"intervalSeconds":10,"times":[959000,969000,989000,999000],"series":[{"#,
            #"{"metric":"longwire_messages_accepted_total","labels":{},"kind":"rate","values":[null,5.0,0.0,0.0]}"#,
            #"{"metric":"longwire_sessions","labels":{"role":"device"},"kind":"gauge","values":[3.0,4.0,0.0,0.0]}"#,
            // One value in the bucket from 500 µs to 1 ms.
            #""longwire_http_request_seconds","labels":{},"kind":"p99","values":[null,0.000995,null,null]}"#,
        ] {
            #expect(text.contains(part), "\(part) in \(text)")
        }
    }

    @Test("an hour of points is kept")
    func bounded() {
        var history = MetricHistory()
        for number in 0..<1_000 as Range<Int64> {
            history.add(figures(sessions: Int(number)), at: number * MetricHistory.intervalSeconds * 1_000)
        }
        #expect(history.count == MetricHistory.capacity)
        let text = answer(history, now: 9_990_000)
        #expect(text.contains(#""times":[-3590000,"#) && text.contains(#""values":[640.0,641.0,"#))
        #expect(text.contains("998.0,999.0]"))
    }

    @Test("a quantile counts only values since the earlier histogram")
    func quantiles() {
        var histogram = MetricHistogram()
        let empty = histogram
        #expect(histogram.quantile(0.5, since: empty) == nil)
        for _ in 0..<4 { histogram.observe(60) }
        #expect(histogram.quantile(0.5, since: empty) == 75)
        let before = histogram
        histogram.observe(20_000_000)
        #expect(histogram.quantile(0.99, since: before) == 10_000_000)
        #expect(histogram.quantile(0.5, since: histogram) == nil)
    }
}
