/// A run as one page that needs nothing else: no script, no font, no picture from anywhere.
///
/// It is well-formed XML as well as HTML, so that any reader of either can check it.
struct HTMLReport {
    private let report: Report
    private let mode: Mode
    private let requirements: [Requirement]

    init(_ report: Report, mode: Mode, _ requirements: [Requirement]) {
        (self.report, self.mode, self.requirements) = (report, mode, requirements)
    }

    var text: String {
        let plots = [throughput, percentiles, latency, processors, memory].map(\.figure).joined()
        return """
            <!DOCTYPE html>
            <html lang="en" xmlns="http://www.w3.org/1999/xhtml">
            <head>
            <meta charset="utf-8"/>
            <meta name="viewport" content="width=device-width, initial-scale=1"/>
            <meta name="color-scheme" content="light dark"/>
            <title>\(Self.escaped(report.title))</title>
            <style>\(Self.style)</style>
            </head>
            <body>
            <h1>\(Self.escaped(report.title))</h1>
            \(header)\(verdict)\(notes)\(plots)\(table)\(failures)</body>
            </html>

            """
    }

    // MARK: Text

    private var header: String {
        let headline = report.headline.map { "<p class=\"headline\">\(Self.escaped($0))</p>\n" } ?? ""
        let rows = (report.header?.lines ?? []).map { name, value in
            "<tr><td>\(Self.escaped(name))</td><td>\(Self.escaped(value))</td></tr>"
        }
        return headline + (rows.isEmpty ? "" : "<table><tbody>\(rows.joined())</tbody></table>\n")
    }

    private var verdict: String {
        guard !requirements.isEmpty else { return "" }
        let failed = report.failed(requirements)
        let rows = zip(requirements, report.verdicts(requirements)).map { requirement, line in
            "<li class=\"\(failed.contains(requirement) ? "bad" : "good")\">\(Self.escaped(line))</li>"
        }
        return "<h2>Conditions</h2>\n<ul>\(rows.joined())</ul>\n"
    }

    private var notes: String {
        guard !report.notes.isEmpty else { return "" }
        return "<ul class=\"notes\">\(report.notes.map { "<li>\(Self.escaped($0))</li>" }.joined())</ul>\n"
    }

    private var table: String {
        let rows = report.metrics.map { metric in
            "<tr><td>\(Self.escaped(metric.title))</td><td class=\"value\">\(Self.escaped(metric.text))</td>"
                + "<td><code>\(Self.escaped(metric.name))</code></td></tr>"
        }
        return "<h2>Figures</h2>\n<table><thead><tr><th>what</th><th>value</th><th>name for --require</th></tr></thead>"
            + "<tbody>\(rows.joined(separator: "\n"))</tbody></table>\n"
    }

    private var failures: String {
        guard !report.failures.isEmpty else { return "" }
        let rows = report.failures.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.map { text, count in
            "<tr><td class=\"value\">\(Metric.grouped(Double(count)))</td><td>\(Self.escaped(text))</td></tr>"
        }
        return "<h2>Refusals and failures</h2>\n<table><tbody>\(rows.joined())</tbody></table>\n"
    }

    // MARK: Plots

    private var start: Int64 { report.samples.first?.time ?? 0 }

    private func seconds(_ time: Int64) -> Double { Double(time - start) / 1e9 }

    private var steps: [(Sampler.Sample, Sampler.Sample)] { Array(zip(report.samples, report.samples.dropFirst())) }

    private var throughput: Plot {
        let kinds: [(String, KeyPath<Sampler.Sample, Int>)] = [
            ("accepted", \.accepted), ("delivered", \.delivered), ("settled", \.settled), ("connected", \.connected),
        ]
        let lines = kinds.compactMap { name, path -> Plot.Line? in
            guard let last = report.samples.last, last[keyPath: path] > 0 else { return nil }
            return Plot.Line(
                name: name,
                points: steps.map { before, after in
                    let time = max(Double(after.time - before.time) / 1e9, 1e-9)
                    return (seconds(after.time), Double(after[keyPath: path] - before[keyPath: path]) / time)
                })
        }
        return overTime("Throughput over time, a second", lines) { Metric.grouped($0) }
    }

    private var percentiles: Plot {
        // The axis counts nines: each further step is a tenth of what was left.
        let places = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9975, 0.999, 0.9995, 0.9999, 0.99999]
        let lines = report.curves.filter { $0.histogram.count > 0 }.map { curve in
            let known = places.filter { Double(curve.histogram.count) * (1 - $0) >= 1 }
            return Plot.Line(
                name: curve.title,
                points: known.map { place in
                    (-Plot.logarithm(1 - place), Double(curve.histogram.percentile(place * 100)))
                })
        }
        return Plot(
            title: "Latency by percentile", xLabel: "percentile", lines: lines,
            xText: { nines in
                let left = (0..<Int(nines.rounded())).reduce(100.0) { left, _ in left / 10 }
                return nines < 0.5 ? "0 %" : Metric.rounded(100 - left, max(0, Int(nines.rounded()) - 2)) + " %"
            },
            yText: Self.time, xMarks: [0, 1, 2, 3, 4, 5], isLogarithmic: true)
    }

    private var latency: Plot {
        let series = report.series
        let slots = 0..<series.slotCount
        let place = { (slot: Int) in seconds(series.startedAt + Int64(slot) * series.slotLength + series.slotLength / 2)
        }
        let line = { (name: String, value: (Int) -> Int64?) in
            Plot.Line(name: name, points: slots.map { (place($0), value($0).map(Double.init)) })
        }
        // Slots behind the end of the run are empty and must not stretch the axis.
        var lines = [
            line("p50") { series.percentile(50, in: $0) }, line("p99") { series.percentile(99, in: $0) },
            line("longest") { series.count(in: $0) == 0 ? nil : series.maximum(in: $0) },
        ]
        for index in lines.indices { lines[index].points.removeAll { $0.y == nil && $0.x > (lastSecond ?? 0) } }
        return overTime("Latency over time", lines, isLogarithmic: true, Self.time)
    }

    private var lastSecond: Double? { report.samples.last.map { seconds($0.time) } }

    private var processors: Plot {
        let cores = { (value: (Sampler.Sample) -> Int64?) -> [(x: Double, y: Double?)] in
            steps.map { before, after in
                guard let from = value(before), let to = value(after) else { return (seconds(after.time), nil) }
                return (seconds(after.time), max(0, Double(to - from) / Double(max(1, after.time - before.time))))
            }
        }
        var lines = [Plot.Line(name: "generator", points: cores { $0.generatorCPU })]
        if report.gatewayProcess != nil {
            lines.insert(Plot.Line(name: "gateway", points: cores { $0.serverCPU }), at: 0)
        }
        return overTime("CPU over time, cores", lines) { Metric.rounded($0, 1) }
    }

    private var memory: Plot {
        let points = report.samples.map { (x: seconds($0.time), y: $0.serverMemory.map { Double($0) / 1_048_576 }) }
        return overTime("The gateway's resident memory over time", [Plot.Line(name: "gateway", points: points)]) {
            Metric.rounded($0, 0) + " MiB"
        }
    }

    private func overTime(
        _ title: String, _ lines: [Plot.Line], isLogarithmic: Bool = false, _ text: @escaping (Double) -> String
    ) -> Plot {
        Plot(
            title: title, xLabel: "seconds since the run began", lines: lines,
            xText: { Metric.rounded($0, (lastSecond ?? 0) < 20 ? 1 : 0) }, yText: text, isLogarithmic: isLogarithmic)
    }

    private static func time(_ nanoseconds: Double) -> String {
        let (value, unit) =
            nanoseconds >= 1e9
            ? (nanoseconds / 1e9, "s")
            : nanoseconds >= 1e6
                ? (nanoseconds / 1e6, "ms") : nanoseconds >= 1e3 ? (nanoseconds / 1e3, "µs") : (nanoseconds, "ns")
        return Metric.rounded(value, value < 10 && value != value.rounded() ? 1 : 0) + " " + unit
    }

    static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            // A gateway's words may hold anything; XML allows no other control characters.
            case _ where scalar.value < 0x20 && scalar.value != 9 && scalar.value != 10: result += "\u{FFFD}"
            case "\u{FFFE}", "\u{FFFF}": result += "\u{FFFD}"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    private static let style = """
        :root{--ink:#1b1f24;--paper:#fff;--faint:#d8dee4;--soft:#57606a;--a:#0b62c4;--b:#b3470b;--c:#1a7f37;--d:#8250df;\
        --bad:#b3261e}
        @media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--faint:#30363d;--soft:#9aa4af;--a:#58a6ff;\
        --b:#f0883e;--c:#3fb950;--d:#bc8cff;--bad:#ff7b72}}
        body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:780px;margin:2em auto;\
        padding:0 1em}
        h1{font-size:1.3em}h2{font-size:1.1em}figure{margin:1.5em 0}figcaption{font-weight:600}
        svg{width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}.grid{stroke:var(--faint)}
        .line{fill:none;stroke-width:1.6}.c0{stroke:var(--a)}.c1{stroke:var(--b)}.c2{stroke:var(--c)}.c3{stroke:var(--d)}
        .legend .key{margin-right:1.2em}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}
        .k0{background:var(--a)}.k1{background:var(--b)}.k2{background:var(--c)}.k3{background:var(--d)}
        table{border-collapse:collapse;width:100%}td,th{padding:.2em .6em;border-bottom:1px solid var(--faint);\
        text-align:left}
        .value{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.bad{color:var(--bad);font-weight:600}
        .notes{border-left:3px solid var(--b);padding:.4em 1.6em}code{color:var(--soft)}
        """
}
