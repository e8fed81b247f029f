import TestKit
import Testing

@Suite("Ports for test servers")
struct FreePortsTests {
    @Test("No port is returned twice, and none is in the kernel's ephemeral range")
    func outside() throws {
        let range = FreePorts.ephemeralRange()
        let ports = try (0..<120).map { _ in try FreePorts.take() }
        #expect(Set(ports).count == ports.count)
        #expect(!ports.contains { range.contains(Int($0)) })
    }

    @Test(
        "A range that leaves no room is ignored",
        arguments: [32_768...60_999, 20_000...65_535, 1_024...65_535])
    func blocks(_ range: ClosedRange<Int>) {
        let starts = FreePorts.blocks(outside: range)
        #expect(starts.count >= 40)
        #expect(starts.contains { range.contains($0) } == (range.lowerBound == 1_024))
    }
}
