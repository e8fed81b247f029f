/// Gathers samples and renders them in the Prometheus text format, version 0.0.4.
///
/// Samples of the same metric and labels add up, so that each loop's share can be thrown in as it comes. Built anew
/// for each scrape, on whatever thread holds the snapshots.
package struct MetricsPage {
    private enum Sample {
        case number(Double)
        case histogram(MetricHistogram)
    }
    private struct Family {
        var order: [String] = []
        var samples: [String: Sample] = [:]
    }
    private var families: [Metric: Family] = [:]

    package static let contentType = "text/plain; version=0.0.4; charset=utf-8"

    package init() {}

    /// Adds to a counter or a gauge.
    package mutating func add(_ metric: Metric, _ value: Double, _ labels: KeyValuePairs<MetricLabel, String> = [:]) {
        precondition(metric.kind != .histogram, "a histogram needs a histogram")
        let key = Self.render(labels)
        var sum = value
        if case .number(let old)? = families[metric]?.samples[key] { sum += old }
        put(metric, key, .number(sum))
    }

    package mutating func add(
        _ metric: Metric, _ value: some BinaryInteger, _ labels: KeyValuePairs<MetricLabel, String> = [:]
    ) {
        add(metric, Double(value), labels)
    }

    /// Adds to a histogram.
    package mutating func add(
        _ metric: Metric, _ histogram: MetricHistogram, _ labels: KeyValuePairs<MetricLabel, String> = [:]
    ) {
        precondition(metric.kind == .histogram, "only a histogram takes one")
        let key = Self.render(labels)
        var sum = histogram
        if case .histogram(let old)? = families[metric]?.samples[key] { sum.add(old) }
        put(metric, key, .histogram(sum))
    }

    /// Adds what one loop counted.
    package mutating func add(_ loop: LoopMetrics) {
        for counter in LoopCounter.allCases {
            let (metric, labels) = counter.sample
            add(metric, loop[counter], labels)
        }
        for timer in LoopTimer.allCases { add(timer.metric, loop[timer]) }
    }

    private mutating func put(_ metric: Metric, _ key: String, _ sample: Sample) {
        var family = families[metric] ?? Family()
        if family.samples.updateValue(sample, forKey: key) == nil { family.order.append(key) }
        families[metric] = family
    }

    /// The page: families in the order of `Metric`, each with its HELP and TYPE once.
    package func render() -> [UInt8] {
        var page: [UInt8] = []
        for metric in Metric.allCases {
            guard let family = families[metric] else { continue }
            page += "# HELP \(metric.name) \(metric.help)\n# TYPE \(metric.name) \(metric.kind.rawValue)\n".utf8
            for key in family.order {
                switch family.samples[key] {
                case .number(let value):
                    page += "\(metric.name)\(key.isEmpty ? "" : "{\(key)}") \(Self.number(value))\n".utf8
                case .histogram(let histogram): Self.append(histogram, metric, key, to: &page)
                case nil: break
                }
            }
        }
        return page
    }

    private static func append(_ histogram: MetricHistogram, _ metric: Metric, _ key: String, to page: inout [UInt8]) {
        let comma = key.isEmpty ? "" : key + ","
        var cumulative: UInt64 = 0
        for (index, count) in histogram.counts.enumerated() {
            cumulative += count
            let bound =
                index < MetricHistogram.boundsMicroseconds.count
                ? number(Double(MetricHistogram.boundsMicroseconds[index]) / 1_000_000) : "+Inf"
            page += "\(metric.name)_bucket{\(comma)le=\"\(bound)\"} \(cumulative)\n".utf8
        }
        let labels = key.isEmpty ? "" : "{\(key)}"
        page += "\(metric.name)_sum\(labels) \(number(Double(histogram.sumMicroseconds) / 1_000_000))\n".utf8
        page += "\(metric.name)_count\(labels) \(cumulative)\n".utf8
    }

    private static func render(_ labels: KeyValuePairs<MetricLabel, String>) -> String {
        labels.map { "\($0.key.rawValue)=\"\(escaped($0.value))\"" }.joined(separator: ",")
    }

    private static func escaped(_ value: String) -> String {
        var result = ""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\\": result += "\\\\"
            case "\"": result += "\\\""
            case "\n": result += "\\n"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    /// Whole numbers without a fraction: they are exact up to 2⁵³ and read better.
    private static func number(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
        if value == value.rounded(), abs(value) < 9_007_199_254_740_992 { return "\(Int64(value))" }
        return "\(value)"
    }
}
