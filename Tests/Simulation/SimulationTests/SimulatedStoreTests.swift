import Simulation
import Testing

@Suite("The simulation") struct SimulationSmokeTests {
    @Test("runs", arguments: 0..<5 as Range<UInt64>) func runs(seed: UInt64) {
        let world = World(seed: seed)
        world.run(events: 5_000)
        if let text = world.report { Issue.record("\(text)") }
    }
}
