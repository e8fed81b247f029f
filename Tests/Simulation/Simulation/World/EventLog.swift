/// The last events of a run as numbers; text is only created when a run fails.
struct EventLog {
    private struct Line {
        var time: Int64
        var what: StaticString
        var first: Int64
        var second: Int64
        var third: Int64
    }

    private var lines: [Line] = []
    private var next = 0
    private let capacity: Int

    init(capacity: Int) {
        self.capacity = capacity
        lines.reserveCapacity(capacity)
    }

    mutating func note(_ time: Int64, _ what: StaticString, _ first: Int64 = 0, _ second: Int64 = 0, _ third: Int64 = 0)
    {
        let line = Line(time: time, what: what, first: first, second: second, third: third)
        if lines.count < capacity {
            lines.append(line)
        } else {
            lines[next] = line
            next = next + 1 == capacity ? 0 : next + 1
        }
    }

    var text: [String] {
        (0..<lines.count).map { index in
            let line = lines[(next + index) % lines.count]
            return "\(line.time) \(line.what) \(line.first) \(line.second) \(line.third)"
        }
    }
}
