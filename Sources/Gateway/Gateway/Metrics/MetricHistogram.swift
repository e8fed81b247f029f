/// A histogram with fixed bounds; histograms with the same bounds can be added.
package struct MetricHistogram: Sendable, Equatable {
    /// The bounds for loop timers, from 50 µs to 10 s.
    private static let boundsMicroseconds: [UInt64] = [
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
        5_000_000, 10_000_000,
    ]

    /// The inclusive upper bounds.
    package let bounds: [UInt64]
    /// The count per bound, and a last one for larger values.
    package private(set) var counts: [UInt64]
    package private(set) var sum: UInt64 = 0

    /// Creates an empty histogram of times in microseconds.
    package init() {
        bounds = Self.boundsMicroseconds
        counts = Array(repeating: 0, count: bounds.count + 1)
    }

    /// Creates a histogram from counts by powers of two.
    ///
    /// `counts[index]` counts values below 2^(index + 1); the last one counts all larger values.
    package init(powersOfTwo counts: [Int], sum: UInt64) {
        bounds = counts.indices.dropLast().map { 2 << UInt64($0) }
        self.counts = counts.isEmpty ? [0] : counts.map { UInt64($0) }
        self.sum = sum
    }

    /// Counts a value; a negative one, from clocks that differ between threads, counts as 0.
    package mutating func observe(_ number: Int64) {
        let value = UInt64(max(0, number))
        var index = 0
        while index < bounds.count, value > bounds[index] { index += 1 }
        counts[index] &+= 1
        sum &+= value
    }

    /// Returns a quantile of the values since `earlier`, interpolated within its bucket; `nil` without values.
    ///
    /// A quantile above the last bound is returned as that bound.
    func quantile(_ share: Double, since earlier: MetricHistogram) -> Double? {
        let new = counts.indices.map { index in
            let before = index < earlier.counts.count ? earlier.counts[index] : 0
            return counts[index] > before ? counts[index] - before : 0
        }
        let total = new.reduce(0, +)
        guard total > 0 else { return nil }
        let wanted = share * Double(total)
        var (below, low) = (0.0, 0.0)
        for (bound, count) in zip(bounds, new) {
            let sum = below + Double(count)
            if sum >= wanted, count > 0 { return low + (Double(bound) - low) * (wanted - below) / Double(count) }
            (below, low) = (sum, Double(bound))
        }
        return low
    }

    package mutating func add(_ other: MetricHistogram) {
        for index in counts.indices { counts[index] &+= other.counts[index] }
        sum &+= other.sum
    }
}
