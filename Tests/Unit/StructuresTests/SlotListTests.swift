import Structures
import Testing

@Suite("Slot lists") struct SlotListTests {
    private struct Element {
        var links = SlotLinks<Element>()
        var otherLinks = SlotLinks<Element>()
    }

    private enum Chain: SlotChain {
        static func links(_ element: Place<Element>) -> SlotLinks<Element> { element.value.links }
        static func setLinks(_ element: Place<Element>, _ links: SlotLinks<Element>) { element.value.links = links }
    }

    private enum OtherChain: SlotChain {
        static func links(_ element: Place<Element>) -> SlotLinks<Element> { element.value.otherLinks }
        static func setLinks(_ element: Place<Element>, _ links: SlotLinks<Element>) {
            element.value.otherLinks = links
        }
    }

    @Test("values keep their places in lists of two kinds until they are removed", arguments: 1...8)
    func model(seed: UInt64) {
        var random = seed &* 0x9E37_79B9_7F4A_7C15
        func next(_ bound: Int) -> Int {
            random = random &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(random >> 33) % bound
        }
        var slab = Slab<Element>()
        var (ends, otherEnds) = (SlotEnds<Element>(), SlotEnds<Element>())
        var (model, otherModel): ([Slot<Element>], [Slot<Element>]) = ([], [])
        for _ in 0..<2_000 {
            if model.count < 3 || next(5) < 3 {
                let slot = slab.insert(Element())
                let place = next(model.count + 1)
                slab.link(slot, behind: place == 0 ? .none : model[place - 1], in: &ends, of: Chain.self)
                model.insert(slot, at: place)
                slab.link(slot, behind: otherEnds.last, in: &otherEnds, of: OtherChain.self)
                otherModel.append(slot)
            } else {
                let slot = model.remove(at: next(model.count))
                slab.unlink(slot, from: &ends, of: Chain.self)
                otherModel.removeAll { $0 == slot }
                slab.unlink(slot, from: &otherEnds, of: OtherChain.self)
                slab.remove(slot)
            }
            var (found, backwards): ([Slot<Element>], [Slot<Element>]) = ([], [])
            var slot = ends.first
            while slot != .none {
                found.append(slot)
                slot = slab[slot].links.next
            }
            slot = otherEnds.last
            while slot != .none {
                backwards.append(slot)
                slot = slab[slot].otherLinks.previous
            }
            guard found == model, Array(backwards.reversed()) == otherModel else {
                Issue.record("\(found) is not \(model), or \(backwards) backwards is not \(otherModel)")
                return
            }
        }
        #expect(ends.isEmpty == model.isEmpty)
    }
}
