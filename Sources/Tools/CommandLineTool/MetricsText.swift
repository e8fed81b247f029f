struct MetricsText {
    struct Sample {
        let name: String
        let labels: [String: String]
        let value: Double
    }

    let samples: [Sample]

    init(_ text: String) {
        samples = text.split(separator: "\n").compactMap { line in
            guard !line.hasPrefix("#"), let space = line.lastIndex(of: " "),
                let value = Double(line[line.index(after: space)...])
            else { return nil }
            let head = line[..<space]
            guard let brace = head.firstIndex(of: "{") else {
                return Sample(name: String(head), labels: [:], value: value)
            }
            return Sample(
                name: String(head[..<brace]), labels: Self.labels(head[head.index(after: brace)...].dropLast()),
                value: value)
        }
    }

    /// Parses `a="x",b="y"`, with `\"`, `\\` and `\n` in the values.
    private static func labels(_ text: Substring) -> [String: String] {
        var (labels, name, value): ([String: String], String, String) = ([:], "", "")
        var (isInside, isEscaped) = (false, false)
        for character in text {
            if isInside {
                if isEscaped {
                    value.append(character == "n" ? "\n" : character)
                    isEscaped = false
                } else if character == "\\" {
                    isEscaped = true
                } else if character == "\"" {
                    labels[name] = value
                    (isInside, name, value) = (false, "", "")
                } else {
                    value.append(character)
                }
            } else if character == "\"" {
                isInside = true
            } else if character != "=", character != "," {
                name.append(character)
            }
        }
        return labels
    }

    /// Returns the sum over all labels.
    func sum(_ name: String) -> Double { samples.reduce(0) { $1.name == name ? $0 + $1.value : $0 } }

    func values(_ name: String, by label: String) -> [(String, Double)] {
        var sums: [String: Double] = [:]
        for sample in samples where sample.name == name { sums[sample.labels[label] ?? "", default: 0] += sample.value }
        return sums.sorted { $0.key < $1.key }
    }

    /// Returns the upper end of the bucket that contains a quantile of a histogram, and the number of values.
    func quantile(_ share: Double, of name: String) -> (end: Double, count: Double) {
        let count = sum(name + "_count")
        let buckets = values(name + "_bucket", by: "le").compactMap { end, value in
            (end == "+Inf" ? .infinity : Double(end)).map { (end: $0, value: value) }
        }.sorted { $0.end < $1.end }
        return (buckets.first { $0.value >= share * count }?.end ?? .infinity, count)
    }

    static func number(_ value: Double) -> String {
        value == value.rounded() && abs(value) < 1e15 ? String(Int64(value)) : String(value)
    }
}
