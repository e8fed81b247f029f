internal import TextForms

/// What a number of runs covered and found.
public struct SoakSummary: Sendable {
    public private(set) var seeds = 0
    public private(set) var events = 0
    public private(set) var states = Set<UInt64>()
    public private(set) var faults = FaultCounts()
    /// One line a failed seed.
    public private(set) var failures: [String] = []
    public var seconds = 0.0

    public init() {}

    public mutating func add(_ world: World) {
        seeds += 1
        events += world.eventCount
        states.formUnion(world.states)
        faults.add(world.faults)
        if let violation = world.violation { failures.append("seed \(world.seed): \(violation)") }
    }

    public var eventsPerSecond: Int { seconds > 0 ? Int(Double(events) / seconds) : 0 }

    public var table: String {
        var lines = [
            "seeds               \(seeds)", "events              \(events)", "events per second   \(eventsPerSecond)",
            "distinct states     \(states.count)", "failures            \(failures.count)",
        ]
        for fault in Fault.allCases { lines.append("  \(fault.rawValue): \(faults[fault])") }
        return (lines + failures).joined(separator: "\n")
    }

    public var json: String {
        let counts = Fault.allCases.map { #""\#($0.rawValue)": \#(faults[$0])"# }.joined(separator: ", ")
        let failed = failures.map { JSONString.quoted($0) }.joined(separator: ", ")
        return #"{"seeds": \#(seeds), "events": \#(events), "eventsPerSecond": \#(eventsPerSecond), "#
            + #""distinctStates": \#(states.count), "faults": {\#(counts)}, "failures": [\#(failed)]}"# + "\n"
    }
}
