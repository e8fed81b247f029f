import Delivery
import Testing
import Wire

@testable import MessageStore

@Suite("Rows that wait for their groups")
struct HeldRowsTests {
    private static func row(_ group: Int, _ number: UInt64) -> SpilledRow {
        SpilledRow(
            key: StoreKey(Bucket(UInt16(group)), .job, ownerHigh: 1, ownerLow: number), value: nil, wakeAt: 0,
            coldAlarm: 0, slot: noSlot, version: 0, block: 0)
    }

    private static func numbers(_ held: HeldRows, _ groups: [Int]) -> [[UInt64]] {
        held.rows(of: groups).map { $0.map(\.key.ownerLow) }
    }

    @Test("an entry leaves the log once no group waits for it or an earlier one")
    func trimming() {
        var held = HeldRows()
        #expect(held.isEmpty && held.takeFinished() == nil)
        held.add([Self.row(1, 1), Self.row(2, 2), Self.row(1, 3)], upTo: 10)
        held.add([Self.row(2, 4)], upTo: 20)
        held.add([Self.row(1, 5), Self.row(2, 6)], upTo: 30)
        #expect(held.groups == [1, 2] && held.takeFinished() == nil)
        held.remove([2])
        // The first group has not received its rows. The second one has, and waits for the first.
        #expect(held.groups == [1] && held.takeFinished() == nil && !held.isEmpty)
        held.add([Self.row(2, 7)], upTo: 40)
        held.remove([1])
        #expect(held.groups == [2] && held.takeFinished() == 30 && held.takeFinished() == nil)
        held.remove([2])
        #expect(held.takeFinished() == 40 && held.isEmpty)
    }

    @Test("a group gets its rows in their order")
    func order() {
        var held = HeldRows()
        held.add([Self.row(1, 1), Self.row(2, 2), Self.row(1, 3)], upTo: 10)
        held.add([Self.row(1, 4), Self.row(3, 5)], upTo: 20)
        #expect(Self.numbers(held, [1]) == [[1, 3], [4]])
        #expect(Self.numbers(held, [2]) == [[2]])
        #expect(Self.numbers(held, [1, 2]) == [[1, 3, 2], [4]])
        held.remove([1])
        #expect(Self.numbers(held, [1, 2, 3]) == [[2], [5]])
    }

    @Test("a collection without rows releases its entries")
    func empty() {
        var held = HeldRows()
        held.add([], upTo: 5)
        #expect(!held.isEmpty && held.groups.isEmpty)
        #expect(held.takeFinished() == 5 && held.isEmpty)
    }
}
