import Delivery
import TestKit
import Testing
import Wire

@testable import MessageStore

@Suite("Young index")
struct YoungIndexTests {
    private static let cid = DeviceID(high: 7, low: 9)

    private static func key(_ item: UInt64) -> StoreKey { StoreKey(Bucket(3), .message, cid, item: item) }

    private static func items(_ index: borrowing YoungIndex, from item: UInt64) -> [UInt64] {
        var found: [UInt64] = []
        var slot = index.firstSlot(from: key(item))
        while slot != noSlot {
            found.append(index[slot].pointee.item)
            slot = index[slot].pointee.itemAfter
        }
        return found
    }

    @Test("rows added and removed in any order stay in item order", arguments: 0..<20 as Range<UInt64>)
    func order(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var index = YoungIndex()
        var model: Set<UInt64> = []
        for step in 0..<400 {
            let item: UInt64 =
                switch Int.random(in: 0..<4, using: &random) {
                case 0: UInt64(1_000 + step)  // A new sequence.
                case 1: UInt64(step)  // The next removal, before all others.
                default: UInt64.random(in: 1...1_500, using: &random)
                }
            if model.contains(item), Bool.random(using: &random) {
                if let slot = index.find(Self.key(item)) { index.remove(slot) }
                model.remove(item)
            } else {
                _ = index.findOrInsert(Self.key(item))
                model.insert(item)
            }
            let start = Bool.random(using: &random) ? 0 : UInt64.random(in: 0...1_600, using: &random)
            #expect(Self.items(index, from: start) == model.filter { $0 >= start }.sorted(), "step \(step)")
        }
    }
}
