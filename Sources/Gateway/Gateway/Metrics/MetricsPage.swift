internal import Delivery

package enum MetricsPage {
    /// Renders the catalogue in the Prometheus text format 0.0.4; a metric without samples is left out.
    package static func render(_ figures: MetricFigures) -> [UInt8] {
        var page: [UInt8] = []
        for metric in MetricCatalogue.all {
            var lines = ""
            for sample in metric.samples { append(sample, of: metric, figures, to: &lines) }
            guard !lines.isEmpty else { continue }
            page += "# HELP \(metric.name) \(metric.help)\n# TYPE \(metric.name) \(metric.kind.rawValue)\n".utf8
            page += lines.utf8
        }
        return page
    }

    private static func append(
        _ sample: MetricSample, of metric: Metric, _ figures: MetricFigures, to lines: inout String
    ) {
        let labels = sample.labels.map { label($0.name, $0.value) }
        switch sample.source {
        case .number(let value):
            guard let value = value(figures) else { return }
            lines += line(metric.name, labels, value / metric.unit.divisor)
        case .histogram(let value):
            if let histogram = value(figures) { append(histogram, metric, labels, to: &lines) }
        case .links(let value):
            for link in figures.cluster?.links ?? [] {
                lines += line(metric.name, [label(.peer, link.peer)] + labels, value(link) / metric.unit.divisor)
            }
        case .apps(let value):
            for (index, id) in figures.appIDs.enumerated() {
                let sum = figures.loops.reduce(0) { $0 + value($1.apps[index]) }
                lines += line(metric.name, [label(.app, id)] + labels, sum / metric.unit.divisor)
            }
        }
    }

    private static func append(
        _ histogram: MetricHistogram, _ metric: Metric, _ labels: [String], to lines: inout String
    ) {
        var cumulative: UInt64 = 0
        for (index, count) in histogram.counts.enumerated() {
            cumulative += count
            let bound =
                index < histogram.bounds.count
                ? number(Double(histogram.bounds[index]) / metric.unit.divisor) : "+Inf"
            lines += line("\(metric.name)_bucket", labels + ["le=\"\(bound)\""], Double(cumulative))
        }
        lines += line("\(metric.name)_sum", labels, Double(histogram.sum) / metric.unit.divisor)
        lines += line("\(metric.name)_count", labels, Double(cumulative))
    }

    private static func line(_ name: String, _ labels: [String], _ value: Double) -> String {
        "\(name)\(labels.isEmpty ? "" : "{\(labels.joined(separator: ","))}") \(number(value))\n"
    }

    private static func label(_ name: MetricLabel, _ value: String) -> String {
        var text = "\(name.rawValue)=\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\\": text += "\\\\"
            case "\"": text += "\\\""
            case "\n": text += "\\n"
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text + "\""
    }

    /// Formats a number; whole numbers, which are exact up to 2⁵³, have no fraction.
    private static func number(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
        if value == value.rounded(), abs(value) < 9_007_199_254_740_992 { return "\(Int64(value))" }
        return "\(value)"
    }
}
