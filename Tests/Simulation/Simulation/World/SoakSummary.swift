internal import TextForms

/// The coverage and findings of several runs.
package struct SoakSummary: Sendable {
    package private(set) var seeds = 0
    package private(set) var events = 0
    package private(set) var states = Set<UInt64>()
    package private(set) var faults = FaultCounts()
    /// One line for each failed seed.
    package private(set) var failures: [String] = []
    package var seconds = 0.0

    package init() {}

    package mutating func add(_ world: World) {
        seeds += 1
        events += world.eventCount
        states.formUnion(world.states)
        faults.add(world.faults)
        if let violation = world.violation { failures.append("seed \(world.seed): \(violation)") }
    }

    package var eventsPerSecond: Int { seconds > 0 ? Int(Double(events) / seconds) : 0 }

    package var table: String {
        var lines = [
            "seeds               \(seeds)", "events              \(events)", "events per second   \(eventsPerSecond)",
            "distinct states     \(states.count)", "failures            \(failures.count)",
        ]
        for fault in Fault.allCases { lines.append("  \(fault.rawValue): \(faults[fault])") }
        return (lines + failures).joined(separator: "\n")
    }

    package var json: String {
        let counts = Fault.allCases.map { #""\#($0.rawValue)": \#(faults[$0])"# }.joined(separator: ", ")
        let failed = failures.map { JSONString.quoted($0) }.joined(separator: ", ")
        return #"{"seeds": \#(seeds), "events": \#(events), "eventsPerSecond": \#(eventsPerSecond), "#
            + #""distinctStates": \#(states.count), "faults": {\#(counts)}, "failures": [\#(failed)]}"# + "\n"
    }
}
