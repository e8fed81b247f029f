internal import Delivery
internal import JSON
internal import PushAPI

/// The values of the console's overview over the last hour, so that a console that was just opened has its plots.
///
/// Each health look adds a point. A point is a time and one `Float` for each series, so an hour takes 17 KiB. A restart begins
/// with no points.
struct MetricHistory: Sendable {
    /// A line of a plot: a metric of the catalogue, and how its points are computed.
    struct Series: Sendable {
        enum Kind: String, Sendable {
            /// The value itself.
            case gauge
            /// The increase of a counter per second since the previous look.
            case rate
            /// The 99th percentile since the previous look.
            case p99
        }

        let kind: Kind
        let metric: String
        let labels: [(name: MetricLabel, value: String)]
        fileprivate let samples: [MetricSample]
        fileprivate let divisor: Double

        /// Selects the samples of a metric that have these labels, among others.
        init(_ kind: Kind, _ metric: String, _ labels: MetricSample.Labels = [:]) {
            (self.kind, self.metric, self.labels) = (kind, metric, labels.map { ($0.key, $0.value) })
            let found = MetricCatalogue.all.first { $0.name == metric }
            divisor = found?.unit.divisor ?? 1
            samples = (found?.samples ?? []).filter { sample in
                labels.allSatisfy { label in sample.labels.contains { $0 == (label.key, label.value) } }
            }
        }

        var sampleCount: Int { samples.count }

        /// Returns the sum of the samples.
        fileprivate func total(_ figures: MetricFigures) -> Double? {
            let values = samples.compactMap { sample -> Double? in
                if case .number(let value) = sample.source { value(figures) } else { nil }
            }
            return values.isEmpty ? nil : values.reduce(0, +) / divisor
        }

        fileprivate func histogram(_ figures: MetricFigures) -> MetricHistogram? {
            if case .histogram(let value)? = samples.first?.source { value(figures) } else { nil }
        }
    }

    /// The cumulative values of a look, from which the next look computes rates and quantiles.
    private struct Reading: Sendable {
        var at: Int64
        var totals: [Double?]
        var histograms: [MetricHistogram?]
    }

    static let series = [
        Series(.rate, "longwire_messages_accepted_total"),
        Series(.rate, "longwire_messages_ended_total", [.state: "delivered"]),
        Series(.rate, "longwire_messages_ended_total", [.state: "deliveredOffline"]),
        Series(.rate, "longwire_handoff_results_total", [.outcome: "accepted"]),
        Series(.p99, "longwire_http_request_seconds"),
        Series(.p99, "longwire_store_group_commit_seconds"),
        Series(.gauge, "longwire_messages_pending"),
        Series(.gauge, "longwire_handoff_jobs_due"),
        Series(.gauge, "longwire_sessions", [.role: "device"]),
        Series(.gauge, "longwire_http_connections", [.listener: "http"]),
    ]
    /// The interval between health looks.
    static let intervalSeconds: Int64 = 10
    /// The number of points in an hour.
    static let capacity = 360

    private var last: Reading?
    /// The times of the points in milliseconds since the machine's start, oldest first.
    private var times: [Int64] = []
    /// The values of each point, in the order of `series`; NaN for none.
    private var values: [Float] = []

    init() {
        // Builds the catalogue at the gateway's start rather than in the first look.
        _ = Self.series
    }

    var count: Int { times.count }

    /// Adds a point of a look that began at `now`, in milliseconds since the machine's start.
    mutating func add(_ figures: MetricFigures, at now: Int64) {
        let reading = Reading(
            at: now, totals: Self.series.map { $0.kind == .p99 ? nil : $0.total(figures) },
            histograms: Self.series.map { $0.kind == .p99 ? $0.histogram(figures) : nil })
        if times.count >= Self.capacity {
            times.removeFirst()
            values.removeFirst(Self.series.count)
        }
        times.append(now)
        for index in Self.series.indices { values.append(point(index, reading).map { Float($0) } ?? .nan) }
        last = reading
    }

    private func point(_ index: Int, _ reading: Reading) -> Double? {
        let series = Self.series[index]
        if series.kind == .gauge { return reading.totals[index] }
        guard let last, reading.at > last.at else { return nil }
        switch series.kind {
        case .rate:
            guard let total = reading.totals[index], let before = last.totals[index] else { return nil }
            // A counter can only fall if its partition's figures are not here yet.
            return max(0, total - before) * 1_000 / Double(reading.at - last.at)
        case .p99:
            guard let histogram = reading.histograms[index], let before = last.histograms[index] else { return nil }
            return histogram.quantile(0.99, since: before).map { $0 / series.divisor }
        case .gauge: return nil
        }
    }

    /// Returns the points as the answer of `GET /v1/metrics/history`.
    ///
    /// `time` is the gateway time, and `now` the same moment in milliseconds since the machine's start. The points' times are
    /// derived from both, so that an adjustment of gateway time leaves their distances unchanged.
    func answer(time: GatewayTime, now: Int64) -> APIResponse {
        var writer = JSONWriter(capacity: 1_024 + values.count * 8)
        writer.object { writer in
            writer.member("time", time)
            writer.member("intervalSeconds", Self.intervalSeconds)
            writer.array("times") { writer in
                for point in times { writer.integer(time - (now - point)) }
            }
            writer.array("series") { writer in
                for (index, series) in Self.series.enumerated() {
                    writer.object { writer in
                        writer.member("metric", series.metric)
                        writer.object("labels") { writer in
                            for label in series.labels { writer.member(text: label.name.rawValue, label.value) }
                        }
                        writer.member("kind", series.kind.rawValue)
                        writer.array("values") { writer in
                            for point in times.indices {
                                // NaN becomes `null`. Rounding removes the digits that a `Float` does not have.
                                let value = Double(values[point * Self.series.count + index])
                                writer.double((value * 1_000_000).rounded() / 1_000_000)
                            }
                        }
                    }
                }
            }
        }
        return APIResponse(status: 200, body: writer.bytes)
    }
}
