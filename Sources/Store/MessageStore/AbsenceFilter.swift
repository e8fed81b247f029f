// Bloom filters of the request ids in the ordered store. Each period has a chain of filters, each twice the size of the previous
// one. Few ids thus need little memory, and many ids do not raise the false-positive rate. The owner of a request row is a
// digest, so its two words serve as the two hashes.

internal import Delivery

private struct PeriodFilter: ~Copyable {
    private static let probeCount: UInt64 = 6
    private static let firstByteCount = 16 << 10

    private var filters: [(bits: UnsafeMutablePointer<UInt64>, wordCount: Int, count: Int)] = []
    private(set) var byteCount = 0

    init() {}
    deinit { for filter in filters { filter.bits.deallocate() } }

    mutating func insert(_ key: StoreKey) {
        // Ten bits per key.
        if filters.last.map({ $0.count * 10 >= $0.wordCount * 64 }) ?? true {
            let wordCount = (filters.last.map { $0.wordCount * 2 } ?? Self.firstByteCount / 8)
            let bits = UnsafeMutablePointer<UInt64>.allocate(capacity: wordCount)
            bits.initialize(repeating: 0, count: wordCount)
            filters.append((bits, wordCount, 0))
            byteCount += wordCount * 8
        }
        let last = filters.count - 1
        let bitCount = UInt64(filters[last].wordCount) * 64
        for probe in 0..<Self.probeCount {
            let bit = (key.ownerLow &+ probe &* (key.ownerHigh | 1)) % bitCount
            filters[last].bits[Int(bit >> 6)] |= 1 << (bit & 63)
        }
        filters[last].count += 1
    }

    func mayContain(_ key: StoreKey) -> Bool {
        for filter in filters.reversed() {
            let bitCount = UInt64(filter.wordCount) * 64
            var isSet = true
            for probe in 0..<Self.probeCount where isSet {
                let bit = (key.ownerLow &+ probe &* (key.ownerHigh | 1)) % bitCount
                isSet = filter.bits[Int(bit >> 6)] & 1 << (bit & 63) != 0
            }
            if isSet { return true }
        }
        return false
    }
}

/// The request ids that a shard has sent to the ordered store since the start.
struct AbsenceFilter: ~Copyable {
    private final class Entry {
        let period: Int64
        var filter = PeriodFilter()
        init(period: Int64) { self.period = period }
    }

    private var entries: [Entry] = []
    /// The newest period that the filters do not cover, because they reached their memory bound; they cover no earlier period,
    /// either.
    private var incompleteUpTo = Int64.min

    init() {}

    mutating func insert(_ key: StoreKey, period: Int64) {
        if entries.last?.period != period { entries.append(Entry(period: period)) }
        guard let entry = entries.last, incompleteUpTo < period else { return }
        if entries.reduce(0, { $0 + $1.filter.byteCount }) > Limits.filterByteCount {
            incompleteUpTo = period
            entries.removeAll()
            return
        }
        entry.filter.insert(key)
    }

    mutating func drop(before period: Int64) { entries.removeAll { $0.period < period } }

    /// Returns false if the id is certainly in no period from `oldest` on.
    func mayContain(_ key: StoreKey, oldest: Int64) -> Bool {
        if incompleteUpTo >= oldest { return true }
        for entry in entries where entry.filter.mayContain(key) { return true }
        return false
    }
}
