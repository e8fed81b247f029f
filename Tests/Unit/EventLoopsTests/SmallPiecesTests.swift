@testable import EventLoops
import Testing

@Suite("Small memory cells")
struct SmallPiecesTests {
    @Test("a cell grows into malloc's memory with its bytes, and is reused after it is freed")
    func cells() throws {
        try #require(EventMemory.isInstalled)
        let cell = try #require(EventMemory.allocate(16))
        #expect(EventMemory.isCell(cell))
        #expect(UInt(bitPattern: cell) % 16 == 0)
        for offset in 0..<16 { cell.storeBytes(of: UInt8(offset), toByteOffset: offset, as: UInt8.self) }
        #expect(EventMemory.reallocate(cell, 12) == cell)
        let wider = try #require(EventMemory.reallocate(cell, 400))
        #expect(!EventMemory.isCell(wider))
        for offset in 0..<16 { #expect(wider.load(fromByteOffset: offset, as: UInt8.self) == UInt8(offset)) }
        EventMemory.release(wider)
        let large = try #require(EventMemory.allocate(17))
        #expect(!EventMemory.isCell(large))
        EventMemory.release(large)
        EventMemory.release(nil)
    }

    @Test("cells are distinct", arguments: [1, 200])
    func distinct(count: Int) {
        let cells = (0..<count).compactMap { _ in EventMemory.allocate(8) }
        #expect(Set(cells).count == count)
        for cell in cells { EventMemory.release(cell) }
    }

    @Test("a rough count is never too small, and at most a thousandth too large")
    func roughCounts() {
        for count in [0, 1, 2_047, 2_048, 2_049, 65_536, 100_000, 256 << 10, 8 << 20, 1 << 28, (1 << 30) - 1] {
            let value = ApproximateCount(atLeast: count).value
            #expect(value >= count && value <= count + count / 1_000)
        }
    }
}
