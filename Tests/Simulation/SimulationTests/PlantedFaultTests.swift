import Delivery
import FoundationEssentials
import Simulation
import Testing

#if DEBUG
/// A check that has never failed proves nothing: each deliberate bug must be seen within the fixed seeds.
@Suite("Every planted fault is caught") struct PlantedFaultTests {
    /// Shorter runs than those of the fixed seeds: most faults show early in some seed.
    private static let eventCount = 6_000

    @Test("by one of the fixed seeds")
    func caught() throws {
        var lines: [String] = []
        for fault in PlantedFault.allCases {
            guard let (seed, violation) = Self.search(fault) else {
                Issue.record("no seed of \(FixedSeeds.seeds) catches \(fault)")
                continue
            }
            print("planted \(fault): seed \(seed), \(violation)")
            let text = SoakSummary.escaped("\(violation.kind.rawValue): \(violation.text)")
            lines.append(#"{"fault": "\#(fault.rawValue)", "seed": \#(seed), "violation": "\#(text)"}"#)
        }
        if let path = ProcessInfo.processInfo.environment["LONGWIRE_PLANTED_REPORT"] {
            let json = "[\n" + lines.joined(separator: ",\n") + "\n]\n"
            try Data(json.utf8).write(to: URL(filePath: path))
        }
    }

    private static func search(_ fault: PlantedFault) -> (UInt64, Violation)? {
        for seed in FixedSeeds.seeds {
            let world = World(seed: seed) { $0.planted = fault }
            world.run(events: eventCount)
            if let violation = world.violation { return (seed, violation) }
        }
        return nil
    }
}
#endif
