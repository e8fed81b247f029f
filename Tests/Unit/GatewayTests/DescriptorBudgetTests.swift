import Testing

@testable import Gateway

@Suite("The budget of descriptors")
struct DescriptorBudgetTests {
    private func granted(_ capacity: Int, loops: Int = 2, own: Bool = false) throws -> ConnectionLimits {
        try DescriptorBudget(capacity: capacity, loopCount: loops, hasOwnTables: own).limits(GatewayLimits())
    }

    private func total(_ limits: ConnectionLimits) -> Int {
        limits.devices + limits.senders + limits.http + limits.admin
    }

    @Test("with enough descriptors the configured limits apply")
    func plenty() throws {
        let wanted = GatewayLimits()
        let limits = try granted(1 << 20)
        #expect(!limits.isBelow(wanted))
        #expect(limits.devices == wanted.connections && limits.admin == wanted.adminConnections)
    }

    @Test(
        "with few descriptors the store comes first, and every listener keeps a share",
        arguments: [512, 1_024, 4_096, 20_000, 65_536])
    func few(capacity: Int) throws {
        for loops in [1, 2, 8] {
            let budget = try DescriptorBudget(capacity: capacity, loopCount: loops, hasOwnTables: false)
            let limits = budget.limits(GatewayLimits())
            #expect(total(limits) + budget.storeFileCount + loops * (12 + budget.closingPerLoop) + 96 <= capacity)
            #expect(limits.devices >= 16 && limits.http >= 16 && limits.senders >= 4 && limits.admin >= 4)
            #expect(limits.isBelow(GatewayLimits()))
        }
    }

    @Test(
        "a relayed device uses two descriptors, and takes none from other kinds",
        arguments: [1_024, 4_096, 20_000])
    func relayed(capacity: Int) throws {
        let budget = try DescriptorBudget(capacity: capacity, loopCount: 2, hasOwnTables: false)
        let limits = budget.limits(GatewayLimits())
        let others = limits.senders + limits.http + limits.admin
        #expect(limits.hasRoom(devices: limits.devices, relayEnds: 0))
        // Half as many devices fit if all of them are relayed.
        let most = (0...limits.devices).last { limits.hasRoom(devices: $0, relayEnds: $0) }
        #expect(most == limits.devices / 2)
        #expect(
            limits.deviceDescriptors + others + budget.storeFileCount + 2 * (12 + budget.closingPerLoop) + 96
                <= capacity)
        // With enough descriptors for both ends, relayed devices are bounded like all others.
        let plenty = try granted(1 << 22)
        #expect(plenty.hasRoom(devices: plenty.devices, relayEnds: plenty.devices))
        #expect(!plenty.hasRoom(devices: plenty.devices + 1, relayEnds: 0))
    }

    @Test("with a table per loop each loop has a share, and the shares add up to the whole")
    func ownTables() throws {
        let limits = try granted(20_000, loops: 4, own: true)
        #expect(limits.devices > 60_000 && limits.devices <= limits.devicesPerLoop * 4)
        #expect(limits.devicesPerLoop + limits.sendersPerLoop + (limits.http + limits.admin) / 4 < 20_000)
    }

    @Test("too few descriptors are an error that states the required number")
    func tooFew() throws {
        let failure = #expect(throws: DescriptorShortage.self) { _ = try granted(100) }
        #expect(failure?.description.contains("LimitNOFILE") == true)
    }
}
