internal import TextForms

/// A condition on one metric of the report: `p99<10ms`, `rate>=50000`, `loss=0`.
struct Requirement: Equatable {
    enum Comparison: String, CaseIterable {
        case atMost = "<=", atLeast = ">=", equal = "==", same = "=", below = "<", above = ">"
    }

    var text: String
    var metric: String
    var comparison: Comparison
    var bound: Double
    /// The unit of the bound.
    var dimension: Metric.Dimension

    /// - Throws: a usage failure for a malformed condition, an unknown metric or an unknown unit.
    init(parsing text: String, mode: Mode) throws(CommandFailure) {
        let squeezed = text.filter { $0 != " " }
        guard let start = squeezed.firstIndex(where: { "<>=".contains($0) }) else {
            throw CommandFailure.usage(
                "--require “\(text)”: write METRIC, then <, <=, >, >= or =, then a number, as in 'p99<10ms'")
        }
        let tail = squeezed[start...]
        // Two-character comparisons come first in the enum, so that “<=” is not parsed as “<”.
        guard let comparison = Comparison.allCases.first(where: { tail.hasPrefix($0.rawValue) }) else {
            throw CommandFailure.usage("--require “\(text)”: the comparison is not understood")
        }
        let name = String(squeezed[..<start])
        let full = mode.metricNames.contains(name) ? name : "\(mode.primaryLatency).\(name)"
        guard mode.metricNames.contains(full) else {
            throw CommandFailure.usage(
                "--require “\(text)”: the mode \(mode.rawValue) has no metric “\(name)”; it has "
                    + mode.metricNames.joined(separator: ", "))
        }
        let value = tail.dropFirst(comparison.rawValue.count)
        let digits = value.prefix { $0.isNumber || $0 == "." || $0 == "-" || $0 == "_" || $0 == "," }
        guard let number = Double(digits.filter { $0 != "_" && $0 != "," }) else {
            throw CommandFailure.usage("--require “\(text)”: “\(value)” is no number")
        }
        var unit = value.dropFirst(digits.count)
        if unit.hasSuffix("/s"), Metric.isRate(full) { unit = unit.dropLast(2) }
        guard let (scale, dimension) = Self.unit(String(unit)) else {
            throw CommandFailure.usage(
                "--require “\(text)”: units are ns, us, ms, s, min, B, KiB, MiB, GiB, %, k, M, and /s for rates")
        }
        let expected = Metric.dimension(of: full)
        guard dimension == expected || (dimension == .count && number == 0) else {
            throw CommandFailure.usage("--require “\(text)”: \(full) is measured in \(expected.rawValue)")
        }
        (self.text, metric, self.comparison) = (text, full, comparison)
        (bound, self.dimension) = (number * scale, dimension)
    }

    func holds(for value: Double) -> Bool {
        switch comparison {
        case .below: value < bound
        case .atMost: value <= bound
        case .above: value > bound
        case .atLeast: value >= bound
        case .equal, .same: value == bound
        }
    }

    private static func unit(_ text: String) -> (scale: Double, dimension: Metric.Dimension)? {
        switch text {
        case "": (1, .count)
        case "k": (1e3, .count)
        case "M": (1e6, .count)
        case "ns": (1, .time)
        case "us", "µs", "μs": (1e3, .time)
        case "ms": (1e6, .time)
        case "s": (1e9, .time)
        case "min": (60e9, .time)
        case "B": (1, .bytes)
        case "KiB": (1024, .bytes)
        case "MiB": (1_048_576, .bytes)
        case "GiB": (1_073_741_824, .bytes)
        case "%": (1, .percent)
        default: nil
        }
    }
}
