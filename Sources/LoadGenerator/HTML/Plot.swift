/// One diagram as inline SVG: lines over a common axis, with a grid, labels and a legend.
///
/// Colours come from the page's style, so that a plot is readable in light and dark.
struct Plot {
    struct Line {
        var name: String
        /// A gap in the line where y is `nil`.
        var points: [(x: Double, y: Double?)]
    }

    var title: String
    var xLabel: String
    var lines: [Line]
    /// How a value of each axis is written.
    var xText: (Double) -> String
    var yText: (Double) -> String
    /// Where the x axis has its marks; chosen evenly when empty.
    var xMarks: [Double] = []
    /// Latencies of a microsecond and of a second stand in one diagram only so.
    var isLogarithmic = false

    private static let width = 720.0, height = 280.0, left = 76.0, right = 34.0, top = 14.0, bottom = 44.0

    /// Nothing to see with fewer than two points.
    var isEmpty: Bool { lines.allSatisfy { $0.points.count(where: { $0.y != nil }) < 2 } }

    /// A figure element; empty text for an empty plot.
    var figure: String {
        guard !isEmpty else { return "" }
        let all = lines.flatMap(\.points).compactMap { point in point.y.map { (x: point.x, y: $0) } }
        let xLow = all.map(\.x).min() ?? 0
        let xHigh = max(all.map(\.x).max() ?? 1, xLow + 1e-9)
        let marks = isLogarithmic ? logarithmicMarks(all.map(\.y)) : evenMarks(all.map(\.y).max() ?? 1)
        let (yLow, yHigh) = (scaled(marks.first ?? 0), scaled(marks.last ?? 1))
        let xPlace = { (x: Double) in
            Self.left + (x - xLow) / (xHigh - xLow) * (Self.width - Self.left - Self.right)
        }
        let yPlace = { (y: Double) in
            Self.height - Self.bottom
                - (scaled(y) - yLow) / max(yHigh - yLow, 1e-12) * (Self.height - Self.top - Self.bottom)
        }
        var svg: [String] = []
        for mark in marks {
            let y = Self.number(yPlace(mark))
            svg.append(
                "<path class=\"grid\" d=\"M\(Self.number(Self.left)) \(y)H\(Self.number(Self.width - Self.right))\"/>")
            svg.append(Self.label(Self.left - 8, yPlace(mark) + 4, "end", yText(mark)))
        }
        let chosen = xMarks.isEmpty ? (0...5).map { xLow + (xHigh - xLow) * Double($0) / 5 } : xMarks
        for mark in chosen where mark >= xLow && mark <= xHigh {
            svg.append(Self.label(xPlace(mark), Self.height - Self.bottom + 18, "middle", xText(mark)))
        }
        svg.append(Self.label((Self.left + Self.width - Self.right) / 2, Self.height - 6, "middle", xLabel))
        for (index, line) in lines.enumerated() {
            var path = ""
            var isDown = false
            for point in line.points {
                guard let y = point.y else {
                    isDown = false
                    continue
                }
                path += "\(isDown ? "L" : "M")\(Self.number(xPlace(point.x))) \(Self.number(yPlace(y)))"
                isDown = true
            }
            guard !path.isEmpty else { continue }
            svg.append("<path class=\"line c\(index % 4)\" d=\"\(path)\"/>")
        }
        let legend = lines.enumerated().map { index, line in
            "<span class=\"key\"><i class=\"k\(index % 4)\"></i>\(HTMLReport.escaped(line.name))</span>"
        }
        return "<figure><figcaption>\(HTMLReport.escaped(title))</figcaption>"
            + "<div class=\"legend\">\(legend.joined())</div>"
            + "<svg viewBox=\"0 0 \(Self.number(Self.width)) \(Self.number(Self.height))\" role=\"img\" "
            + "aria-label=\"\(HTMLReport.escaped(title))\">\(svg.joined())</svg></figure>\n"
    }

    private func scaled(_ value: Double) -> Double { isLogarithmic ? Self.logarithm(max(value, 1)) : value }

    /// From zero to a round number above the largest value.
    private func evenMarks(_ largest: Double) -> [Double] {
        var step = 1.0
        while step * 5 < largest { step *= 10 }
        while step > 1e-6, step / 10 * 5 >= largest { step /= 10 }
        for factor in [0.2, 0.5, 1] where step * factor * 5 >= largest {
            return (0...5).map { Double($0) * step * factor }
        }
        return (0...5).map { Double($0) * step }
    }

    /// Powers of ten around all values.
    private func logarithmicMarks(_ values: [Double]) -> [Double] {
        let positive = values.map { max($0, 1) }
        var low = 1.0
        while low * 10 <= positive.min() ?? 1 { low *= 10 }
        var marks = [low]
        while marks[marks.count - 1] < positive.max() ?? 1 { marks.append(marks[marks.count - 1] * 10) }
        if marks.count == 1 { marks.append(low * 10) }
        return marks
    }

    /// To the base of ten, good to a pixel: the module has no mathematics library to ask.
    static func logarithm(_ value: Double) -> Double {
        // value = significand × 2^exponent; the significand's logarithm by a short series around 1.
        let exponent = Double(value.exponent)
        let ratio = (value.significand - 1) / (value.significand + 1)
        let square = ratio * ratio
        let natural = 2 * ratio * (1 + square / 3 + square * square / 5 + square * square * square / 7)
        return (exponent * 0.693147180559945 + natural) / 2.302585092994046
    }

    private static func label(_ x: Double, _ y: Double, _ anchor: String, _ text: String) -> String {
        "<text x=\"\(number(x))\" y=\"\(number(y))\" text-anchor=\"\(anchor)\">\(HTMLReport.escaped(text))</text>"
    }

    private static func number(_ value: Double) -> String { Metric.rounded(value, 1) }
}
