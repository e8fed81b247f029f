struct Metric: Equatable, Sendable {
    enum Dimension: String, Sendable {
        /// Nanoseconds.
        case time
        case bytes
        case percent
        /// A number, or a rate per second.
        case count
    }

    var name: String
    var value: Double
    var title: String

    var dimension: Dimension { Self.dimension(of: name) }

    init(_ name: String, _ value: Double, _ title: String) {
        (self.name, self.value, self.title) = (name, value, title)
    }

    /// Returns a metric's unit, derived from its name, so that a requirement can be checked before the run.
    static func dimension(of name: String) -> Dimension {
        if name.hasSuffix("PerConnection") { return .bytes }
        if name == "generatorBusy" { return .percent }
        if name.hasSuffix("Seconds") || name.hasSuffix("CPU") || name.contains(".") { return .time }
        return .count
    }

    static func isRate(_ name: String) -> Bool { name == "rate" || name.hasSuffix("Rate") }

    var text: String {
        switch dimension {
        case .time:
            if value >= 1e9 { return Self.rounded(value / 1e9, 2) + " s" }
            if value >= 1e6 { return Self.rounded(value / 1e6, 2) + " ms" }
            return Self.rounded(value / 1e3, value < 1e5 ? 2 : 0) + " µs"
        case .bytes:
            if value.magnitude >= 10_240 { return Self.rounded(value / 1024, 1) + " KiB" }
            return Self.rounded(value, 0) + " B"
        case .percent: return Self.rounded(value, 0) + " %"
        case .count:
            if value.magnitude < 100, value != value.rounded() { return Self.rounded(value, 2) }
            return Self.grouped(value)
        }
    }

    static func rounded(_ value: Double, _ digits: Int) -> String {
        guard value.isFinite, value.magnitude < 1e15 else { return "—" }
        let scale = (0..<digits).reduce(1.0) { scale, _ in scale * 10 }
        let whole = Int64((value.magnitude * scale).rounded())
        let sign = value < 0 && whole > 0 ? "-" : ""
        guard digits > 0 else { return "\(sign)\(whole)" }
        let fraction = String(whole % Int64(scale))
        let zeros = String(repeating: "0", count: digits - fraction.count)
        return "\(sign)\(whole / Int64(scale)).\(zeros)\(fraction)"
    }

    /// Returns a whole number with thousands separators: 115,000.
    static func grouped(_ value: Double) -> String {
        let digits = rounded(value.magnitude, 0)
        var text = ""
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.count - index) % 3 == 0 { text.append(",") }
            text.append(digit)
        }
        return value < 0 ? "-" + text : text
    }
}
