internal import TextForms

struct Report: Sendable {
    var title: String
    var header: RunHeader?
    var headlineNames: [String] = []
    var metrics: [Metric] = []
    var failures: [String: Int] = [:]
    /// Warnings for the reader: the limits of the run, and missing measurements.
    var notes: [String] = []

    /// The bottleneck, or `nil` in modes without one.
    var bottleneck: Bottleneck?
    var gatewayProcess: Int32?

    init(title: String) { self.title = title }

    mutating func add(_ name: String, _ value: Double, _ title: String) {
        metrics.append(Metric(name, value, title))
    }

    mutating func add(latency histogram: Histogram, as name: String, _ title: String) {
        guard histogram.count > 0 else { return }
        for (suffix, percent) in [("p50", 50), ("p90", 90), ("p99", 99), ("p99.9", 99.9)] {
            add("\(name).\(suffix)", Double(histogram.percentile(percent)), "\(title), \(suffix)")
        }
        add("\(name).max", Double(histogram.maximum), "\(title), longest")
    }

    /// Returns the value that a requirement is compared with, or `nil` if it was not measured.
    func value(of name: String) -> Double? { metrics.first { $0.name == name }?.value }

    /// Returns the failed requirements; a metric that was not measured fails its requirement.
    func failed(_ requirements: [Requirement]) -> [Requirement] {
        requirements.filter { requirement in
            guard let value = value(of: requirement.metric) else { return true }
            return !requirement.holds(for: value)
        }
    }

    func table(_ requirements: [Requirement]) -> String {
        let width = metrics.map(\.title.count).max() ?? 0
        let valueWidth = metrics.map(\.text.count).max() ?? 0
        var lines = [title]
        if let header { lines += header.lines.map { "  \($0.name): \($0.value)" } }
        if let headline { lines += ["", "  \(headline)"] }
        lines.append("")
        for metric in metrics {
            let left = metric.title + String(repeating: " ", count: width - metric.title.count)
            let right = String(repeating: " ", count: valueWidth - metric.text.count) + metric.text
            lines.append("  \(left)  \(right)")
        }
        if !failures.isEmpty {
            lines += ["", "Refusals and failures"]
            for (text, count) in failures.sorted(by: { ($1.value, $0.key) < ($0.value, $1.key) }) {
                lines.append("  \(Metric.grouped(Double(count))) × \(text)")
            }
        }
        if !notes.isEmpty { lines += [""] + notes }
        if !requirements.isEmpty { lines += [""] + verdicts(requirements).map { "  " + $0 } }
        return lines.joined(separator: "\n") + "\n"
    }

    var headline: String? {
        let found = headlineNames.compactMap { name in metrics.first { $0.name == name } }
        return found.isEmpty ? nil : found.map { "\($0.text) \($0.title)" }.joined(separator: "; ")
    }

    func verdicts(_ requirements: [Requirement]) -> [String] {
        let failed = failed(requirements)
        return requirements.map { requirement in
            let found = metrics.first { $0.name == requirement.metric }?.text ?? "not measured"
            return "\(failed.contains(requirement) ? "FAILED" : "holds ")  \(requirement.text)  (\(found))"
        }
    }

    /// Returns one line of JSON; times are in nanoseconds, sizes in bytes.
    func json(mode: Mode, _ requirements: [Requirement]) -> String {
        let failed = failed(requirements)
        let metrics = self.metrics.map { "\(JSONString.quoted($0.name)):\(Self.number($0.value))" }
        let failures = self.failures.sorted { $0.key < $1.key }.map { "\(JSONString.quoted($0.key)):\($0.value)" }
        let conditions = requirements.map { requirement in
            "{\"condition\":\(JSONString.quoted(requirement.text)),\"holds\":\(!failed.contains(requirement))}"
        }
        let bottleneck = self.bottleneck.map { JSONString.quoted($0.rawValue) } ?? "null"
        let process = gatewayProcess.map(String.init) ?? "null"
        let (mode, title) = (JSONString.quoted(mode.rawValue), JSONString.quoted(title))
        let notes = notes.map { JSONString.quoted($0) }
        let header = self.header.map { "\"run\":\($0.json)," } ?? ""
        let headline = headlineNames.filter { value(of: $0) != nil }.map { JSONString.quoted($0) }
        return
            "{\"format\":1,\(header)\"headline\":[\(headline.joined(separator: ","))],\"mode\":\(mode),\"title\":\(title),"
            + "\"metrics\":{\(metrics.joined(separator: ","))},\"failures\":{\(failures.joined(separator: ","))},"
            + "\"bottleneck\":\(bottleneck),\"serverPID\":\(process),\"cores\":\(ProcessMeter.coreCount()),"
            + "\"notes\":[\(notes.joined(separator: ","))],"
            + "\"requirements\":[\(conditions.joined(separator: ","))]}\n"
    }

    private static func number(_ value: Double) -> String {
        guard value.isFinite else { return "null" }
        return value == value.rounded() && value.magnitude < 1e15 ? "\(Int64(value))" : "\(value)"
    }
}
