import Testing
import Wire

@testable import LongwireClient

@Suite("Processed set")
struct ProcessedSetTests {
    @Test("without holes the position follows the newest message across gaps")
    func gaps() {
        var set = ProcessedSet(sequence: 4)
        for sequence: UInt64 in [7, 12, 13] { set.insert(sequence, holes: []) }
        #expect(set == ProcessedSet(sequence: 13))
    }

    @Test("a hole holds the position just below it, and later numbers are a range")
    func hole() {
        var set = ProcessedSet(sequence: 4)
        set.insert(9, holes: [7])
        #expect(set.sequence == 6)
        #expect(set.ranges == [SequenceRange(first: 8, last: 9)])
        set.insert(12, holes: [7])
        #expect(set.ranges == [SequenceRange(first: 8, last: 12)])
        set.insert(7, holes: [])
        #expect(set == ProcessedSet(sequence: 12))
    }

    @Test("holes lie in no range, in whatever order they are filled", arguments: 0..<64 as Range<UInt64>)
    func anyOrder(seed: UInt64) {
        var generator = SplitMix(state: seed)
        let arrived = (1...20).map { UInt64($0 * 3) }
        var open = arrived
        var set = ProcessedSet()
        for sequence in arrived.shuffled(using: &generator) {
            open.removeAll { $0 == sequence }
            set.insert(sequence, holes: open)
            #expect(set.contains(sequence), "seed \(seed)")
            for hole in open { #expect(!set.contains(hole), "seed \(seed): \(hole) is claimed in \(set)") }
            #expect(set.ranges.count <= open.count)
        }
        #expect(set == ProcessedSet(sequence: 60))
    }

    @Test("ranges stored in any order are joined")
    func joining() {
        let ranges = [(9, 9), (4, 5), (6, 7), (20, 22), (21, 30), (2, 3), (8, 1)].map {
            SequenceRange(first: UInt64($0.0), last: UInt64($0.1))
        }
        let set = ProcessedSet(sequence: 1, ranges: ranges)
        #expect(set.sequence == 7)
        #expect(set.ranges == [SequenceRange(first: 9, last: 9), SequenceRange(first: 20, last: 30)])
    }
}
