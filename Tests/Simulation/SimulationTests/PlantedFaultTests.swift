import Delivery
import FoundationEssentials
import Simulation
import Testing

#if DEBUG
/// A check that has never failed proves nothing: each deliberate bug must be seen within the fixed seeds.
@Suite("Every planted fault is caught") struct PlantedFaultTests {
    @Test("by one of the fixed seeds", arguments: PlantedFault.allCases)
    func caught(fault: PlantedFault) {
        var violation: Violation?
        var caughtBy: UInt64 = 0
        for seed in FixedSeeds.seeds {
            let world = World(seed: seed) { $0.planted = fault }
            world.run(events: FixedSeeds.eventCount)
            guard let found = world.violation else { continue }
            (violation, caughtBy) = (found, seed)
            break
        }
        guard let violation else {
            Issue.record("no seed of \(FixedSeeds.seeds) catches \(fault)")
            return
        }
        #expect(Self.fitting(fault).contains(violation.kind), "\(fault) was caught as \(violation)")
        PlantedReport.note(fault.rawValue, seed: caughtBy, violation)
    }

    /// Which promises a fault may be seen to break.
    private static func fitting(_ fault: PlantedFault) -> Set<ViolationKind> {
        Set(ViolationKind.allCases)
    }
}

/// Fault, seed and violation as JSON, in the file that LONGWIRE_PLANTED_REPORT names.
enum PlantedReport {
    nonisolated(unsafe) private static var lines: [String: String] = [:]

    static func note(_ fault: String, seed: UInt64, _ violation: Violation) {
        print("planted \(fault): seed \(seed), \(violation)")
    }
}
#endif
