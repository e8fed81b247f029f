/// A latency over time: for each slot of the run a coarse histogram, so that the report can plot percentiles second by
/// second.
///
/// Eight steps to a doubling, from a microsecond up: at most 12 % coarse, a kibibyte a slot, and merged exactly.
struct LatencySeries: Sendable, Equatable, Codable {
    static let stepsPerOctave = 8
    static let bucketCount = 256

    /// Nanoseconds of the monotonic clock.
    private(set) var startedAt: Int64 = 0
    private(set) var slotLength: Int64 = 0
    private var counts: [UInt32] = []
    private var maxima: [Int64] = []

    /// An empty one, which records nothing until it is begun.
    init() {}

    /// Covers `length` nanoseconds from `start` on.
    mutating func begin(at start: Int64, length: Int64) {
        startedAt = start
        slotLength = max(100_000_000, length / 200)
        let slots = Int(length / slotLength) + 1
        counts = [UInt32](repeating: 0, count: slots * Self.bucketCount)
        maxima = [Int64](repeating: 0, count: slots)
    }

    var slotCount: Int { maxima.count }

    @inline(__always)
    mutating func record(_ value: Int64, at now: Int64) {
        guard slotLength > 0, now >= startedAt else { return }
        let slot = Int((now - startedAt) / slotLength)
        guard slot < maxima.count else { return }
        counts[slot * Self.bucketCount + Self.bucket(of: value)] &+= 1
        maxima[slot] = max(maxima[slot], value)
    }

    /// Adds another worker's, which began at the same gate and so has the same slots.
    mutating func merge(_ other: LatencySeries) {
        guard !other.maxima.isEmpty else { return }
        guard !maxima.isEmpty else {
            self = other
            return
        }
        // A worker that ended early may have stayed behind in an earlier phase: its plot is worth less than the report.
        guard startedAt == other.startedAt, slotLength == other.slotLength, maxima.count == other.maxima.count else {
            return
        }
        for index in counts.indices { counts[index] &+= other.counts[index] }
        for index in maxima.indices { maxima[index] = max(maxima[index], other.maxima[index]) }
    }

    func count(in slot: Int) -> Int {
        counts[(slot * Self.bucketCount)..<((slot + 1) * Self.bucketCount)].reduce(0) { $0 + Int($1) }
    }

    func maximum(in slot: Int) -> Int64 { maxima[slot] }

    /// The value that `percent` of a slot's do not exceed; `nil` for an empty slot.
    func percentile(_ percent: Double, in slot: Int) -> Int64? {
        let total = count(in: slot)
        guard total > 0 else { return nil }
        let rank = max(1, Int((percent / 100 * Double(total)).rounded(.up)))
        var seen = 0
        for bucket in 0..<Self.bucketCount {
            seen += Int(counts[slot * Self.bucketCount + bucket])
            if seen >= rank { return min(maxima[slot], Self.upperEnd(of: bucket)) }
        }
        return maxima[slot]
    }

    private static func bucket(of value: Int64) -> Int {
        // In units of 128 ns, so that the first octaves are a microsecond.
        let value = UInt64(max(0, value)) >> 7
        guard value >= UInt64(stepsPerOctave) else { return Int(value) }
        let shift = 63 - value.leadingZeroBitCount - 3
        return min(bucketCount - 1, (shift << 3) + Int(value >> UInt64(shift)))
    }

    private static func upperEnd(of bucket: Int) -> Int64 {
        guard bucket >= 2 * stepsPerOctave else { return Int64(bucket + 1) << 7 - 1 }
        let shift = (bucket >> 3) - 1
        return Int64(clamping: UInt64(bucket - (shift << 3) + 1) << UInt64(shift + 7)) - 1
    }
}
