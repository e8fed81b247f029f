import Testing

@testable import Gateway

@Suite("Route")
struct RouteTests {
    @Test("every field survives at both ends of its range, and a word of an unknown kind is invalid")
    func roundTrip() {
        for kind in 1...9 as ClosedRange<UInt8> {
            guard let kind = Route.Kind(rawValue: kind) else { continue }
            for node in [0, 1, Route.nodeLimit - 1] {
                for loop in [0, 1, Route.loopLimit - 1] {
                    for slot in [0, 1, UInt32(Route.slotLimit - 1)] {
                        for stamp in [1, Route.stampMask] {
                            let route = Route(kind, node: node, loop: loop, slot: slot, stamp: stamp)
                            #expect(Route(route.word) == route)
                        }
                    }
                }
            }
        }
        #expect(Route(0) == nil)
        #expect(Route(.max) == nil)
    }
}
