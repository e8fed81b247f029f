/// Numbers counted by fixed bounds; two with the same bounds can be added.
package struct MetricHistogram: Sendable, Equatable {
    /// From 50 µs to 10 s, for whatever a loop times.
    private static let boundsMicroseconds: [UInt64] = [
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
        5_000_000, 10_000_000,
    ]

    /// Upper bounds, included.
    package let bounds: [UInt64]
    /// One a bound, and one for what is beyond the last.
    package private(set) var counts: [UInt64]
    package private(set) var sum: UInt64 = 0

    /// An empty one of times in microseconds.
    package init() {
        bounds = Self.boundsMicroseconds
        counts = Array(repeating: 0, count: bounds.count + 1)
    }

    /// One that was counted by powers of two.
    ///
    /// `counts[index]` has what is below 2^(index + 1), the last one all the rest.
    package init(powersOfTwo counts: [Int], sum: UInt64) {
        bounds = counts.indices.dropLast().map { 2 << UInt64($0) }
        self.counts = counts.isEmpty ? [0] : counts.map { UInt64($0) }
        self.sum = sum
    }

    /// Counts one number; a negative one counts as nothing (clocks of two threads may cross).
    package mutating func observe(_ number: Int64) {
        let value = UInt64(max(0, number))
        var index = 0
        while index < bounds.count, value > bounds[index] { index += 1 }
        counts[index] &+= 1
        sum &+= value
    }

    package mutating func add(_ other: MetricHistogram) {
        for index in counts.indices { counts[index] &+= other.counts[index] }
        sum &+= other.sum
    }
}
