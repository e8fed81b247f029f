import Structures
import TestKit
import Testing

@Suite("Slab") struct SlabTests {
    @Test("a value keeps its address while others are added and removed")
    func stableAddress() {
        var slab = Slab<[Int]>()
        let first = slab.insert([1])
        let place = slab.at(first)
        var others: [Slot<[Int]>] = []
        for value in 0..<5_000 { others.append(slab.insert([value])) }
        for slot in others { slab.remove(slot) }
        #expect(place == slab.at(first))
        place.value.append(7)
        #expect(slab[first] == [1, 7])
        #expect(slab.count == 1)
        #expect(slab.insert([2]).number < 5_001)
    }

    @Test("slots are visited in order, in slices, and in a circle")
    func order() {
        var slab = Slab<Int>()
        #expect(slab.slots().isEmpty)
        let slots = (0..<5).map { slab.insert($0) }
        slab.remove(slots[1])
        #expect(Array(slab.slots()) == slots)
        let slice = slab.slots(from: slots[1], limit: 3)
        #expect(Array(slice) == Array(slots[1...3]))
        #expect(Array(slab.slots(from: slice.end)) == [slots[4]])
        #expect(slab.slots(from: slab.slots().end).isEmpty)
        #expect(slots.map { slab.slot(after: $0) } == Array(slots[1...] + [slots[0]]))
        // Slots of different value types are incompatible: `slab.isOccupied(Slot<UInt>.first)` does not compile.
        #expect(MemoryLayout<Slot<[Int]>>.size == 4 && MemoryLayout<SlotLinks<[Int]>>.size == 8)
    }

    @Test("remaining values are released with the slab")
    func releases() {
        final class Witness {}
        weak var seen: Witness?
        do {
            var slab = Slab<Witness>()
            let witness = Witness()
            seen = witness
            _ = slab.insert(witness)
        }
        #expect(seen == nil)
    }
}

@Suite("Byte cells") struct ByteCellsTests {
    @Test("texts of every length are returned; a freed cell is reused, and no other text changes")
    func texts() {
        var cells = ByteCells(capacity: 35)
        func put(_ text: [UInt8]) -> (place: ByteCells.Place, isCell: Bool) {
            text.withUnsafeBytes { cells.put($0) }
        }
        var kept: [(text: [UInt8], place: ByteCells.Place, isCell: Bool)] = []
        for count in 0..<2_000 {
            let text = [UInt8](repeating: UInt8(truncatingIfNeeded: count), count: count % 70)
            let (place, isCell) = put(text)
            #expect(isCell == (text.count <= 35))
            kept.append((text, place, isCell))
            if count % 3 == 0 {
                let gone = kept.remove(at: kept.count / 2)
                cells.free(gone.place, isCell: gone.isCell)
            }
        }
        for entry in kept {
            #expect(Array(ByteCells.bytes(entry.place, isCell: entry.isCell)) == entry.text)
            cells.free(entry.place, isCell: entry.isCell)
        }
    }
}

@Suite("Ring") struct RingTests {
    @Test("the ring keeps the order through growth and wrap-around")
    func order() {
        var ring = Ring<Int>(capacity: 4)
        var expected: [Int] = []
        for round in 0..<200 {
            ring.append(round)
            expected.append(round)
            if round % 3 != 0 { #expect(ring.popFirst() == expected.removeFirst()) }
        }
        #expect(ring.count == expected.count)
        #expect(ring[1] == expected[1])
        while let value = ring.popFirst() { #expect(value == expected.removeFirst()) }
        #expect(expected.isEmpty)
    }
}

@Suite("Wide map") struct WideMapTests {
    @Test(
        "the map agrees with a dictionary, also for keys that collide without a seed",
        arguments: [0, 1, 2])
    func seeds(seed: UInt64) {
        var map = WideMap(seed: (seed, ~seed))
        // Without a seed both words of each key combined to 5.
        let keys = (0..<5_000 as Range<UInt64>).map { ($0, $0 &* 0x9E37_79B9_7F4A_7C15 ^ 5) }
        for (index, key) in keys.enumerated() { map.set(key.0, key.1, UInt32(index)) }
        for (index, key) in keys.enumerated() { #expect(map[key.0, key.1] == UInt32(index)) }
        for key in keys.dropLast() { _ = map.remove(key.0, key.1) }
        #expect(map.count == 1 && map[keys[4_999].0, keys[4_999].1] == 4_999)
    }

    @Test("the map agrees with a dictionary over random operations, including colliding keys")
    func model() {
        var random = SeededGenerator(seed: 11)
        var map = WideMap()
        var model: [UInt64: UInt32] = [:]
        for _ in 0..<20_000 {
            let key = UInt64.random(in: 0..<700, using: &random) << 40
            if Bool.random(using: &random) {
                let value = UInt32.random(in: 0..<1_000, using: &random)
                map.set(key, 7, value)
                model[key] = value
            } else {
                #expect(map.remove(key, 7) == model.removeValue(forKey: key))
            }
            #expect(map.count == model.count)
        }
        for key in UInt64(0)..<700 { #expect(map[key << 40, 7] == model[key << 40]) }
    }
}

@Suite("Slot index") struct SlotIndexTests {
    private func find(
        _ key: (high: UInt64, low: UInt64), _ index: borrowing SlotIndex, _ keys: [(high: UInt64, low: UInt64)]
    ) -> UInt32? {
        var probe = index.probe(key.high, key.low)
        while let slot = index.next(&probe) {
            if keys[Int(slot)] == key { return slot }
        }
        return nil
    }

    @Test("the index agrees with a set over random operations, through many splits", arguments: [700, 40_000])
    func model(keyCount: UInt64) {
        var random = SeededGenerator(seed: 11)
        // The record has its slot's key, as in a slab. Half of the keys differ in one word only.
        let keys = (0..<keyCount).map { (high: $0 % 2 == 0 ? $0 << 40 : 7, low: $0 % 2 == 0 ? 7 : $0) }
        var index = SlotIndex(seed: (1, 2))
        var model: Set<UInt32> = []
        for _ in 0..<keyCount * 4 {
            let slot = UInt32.random(in: 0..<UInt32(keyCount), using: &random)
            let key = keys[Int(slot)]
            #expect((find(key, index, keys) == slot) == model.contains(slot))
            // More are added than removed, so that the index grows.
            if !model.contains(slot) {
                index.insert(slot, key.high, key.low) { keys[Int($0)] }
                model.insert(slot)
            } else if Int.random(in: 0..<3, using: &random) == 0 {
                #expect(index.remove(slot, key.high, key.low) { keys[Int($0)] })
                model.remove(slot)
            }
        }
        #expect(index.count == model.count)
        for slot in 0..<UInt32(keyCount) {
            #expect((find(keys[Int(slot)], index, keys) == slot) == model.contains(slot))
            if !model.contains(slot) {
                #expect(!index.remove(slot, keys[Int(slot)].high, keys[Int(slot)].low) { keys[Int($0)] })
            }
        }
        for slot in model { index.remove(slot, keys[Int(slot)].high, keys[Int(slot)].low) { keys[Int($0)] } }
        #expect(index.count == 0)
    }
}

@Suite("Slot index and an adversary") struct SlotIndexAdversaryTests {
    @Test("keys whose words cancel out without a secret are found, and take no more room than others")
    func chosenKeys() {
        let multiplier: UInt64 = 0x9E37_79B9_7F4A_7C15
        let keys = (0..<UInt64(3_000)).map { (high: $0, low: 7 ^ ($0 &* multiplier)) }
        var index = SlotIndex()
        for (slot, key) in keys.enumerated() { index.insert(UInt32(slot), key.high, key.low) { keys[Int($0)] } }
        for (slot, key) in keys.enumerated() {
            var probe = index.probe(key.high, key.low)
            var isFound = false
            while let found = index.next(&probe) { isFound = isFound || found == UInt32(slot) }
            #expect(isFound)
        }
        for (slot, key) in keys.enumerated() {
            #expect(index.remove(UInt32(slot), key.high, key.low) { keys[Int($0)] })
        }
        #expect(index.count == 0)
    }
}

@Suite("Paged array") struct PagedArrayTests {
    @Test("written values keep their places; all others are blank")
    func stays() {
        var array = PagedArray(repeating: UInt32(9))
        let first = array.pointer(3)
        first.pointee = 1
        array.pointer(1 << 20).pointee = 2
        #expect(array[3] == 1)
        #expect(array.pointer(3) == first)
        #expect(array[1 << 20] == 2)
        #expect(array[4] == 9)
        #expect(array[5_000] == 9)
        #expect(array.existing(5_000) == nil)
        #expect(array.existing(.max) == nil)
    }
}

@Suite("Timer wheel") struct TimerWheelTests {
    @Test("the wheel agrees with a sorted list at every distance", arguments: [1, 64] as [Int64])
    func model(resolution: Int64) {
        var random = SeededGenerator(seed: 11)
        var now: Int64 = 1_795_000_000_000
        var wheel = TimerWheel(resolution: resolution, now: now)
        var model: [UInt32: Int64] = [:]
        for _ in 0..<20_000 {
            let id = UInt32.random(in: 0..<300, using: &random)
            switch Int.random(in: 0..<4, using: &random) {
            case 0...1:
                let distance = Int64(1) << Int64.random(in: 0..<34, using: &random)
                let time = now + Int64.random(in: -10...distance, using: &random)
                wheel.schedule(id, at: time)
                model[id] = time
            case 2:
                wheel.cancel(id)
                model[id] = nil
            default:
                now += Int64.random(in: 0...Int64(1) << Int64.random(in: 0..<20, using: &random), using: &random)
                if let earliest = model.values.min() {
                    #expect(wheel.earliest < max(earliest, now) + resolution)
                }
                var expired: [UInt32] = []
                wheel.advance(to: now, expired: &expired)
                for id in expired {
                    let time = model.removeValue(forKey: id)
                    #expect(time != nil && time! <= now)
                }
                for time in model.values { #expect(time > now - resolution) }
            }
            #expect(wheel.count == model.count)
        }
    }

    @Test("an overdue timer expires at once")
    func overdue() {
        var wheel = TimerWheel(resolution: 1, now: 1_000)
        wheel.schedule(9, at: 500)
        var expired: [UInt32] = []
        wheel.advance(to: 1_000, expired: &expired)
        #expect(expired == [9])
        let isScheduled = wheel.isScheduled(9)
        #expect(!isScheduled)
        #expect(wheel.earliest == .max)
    }
}
