/// Durations counted by fixed bounds from 50 µs to 10 s: one set for all, so that any two can be added.
package struct MetricHistogram: Sendable, Equatable {
    /// Upper bounds, included.
    package static let boundsMicroseconds: [UInt64] = [
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
        5_000_000, 10_000_000,
    ]
    /// One a bound, and one for what is beyond the last.
    package private(set) var counts: [UInt64]
    package private(set) var sumMicroseconds: UInt64 = 0

    package init() { counts = Array(repeating: 0, count: Self.boundsMicroseconds.count + 1) }

    /// Counts one duration; a negative one counts as nothing (clocks of two threads may cross).
    package mutating func observe(microseconds: Int64) {
        let value = UInt64(max(0, microseconds))
        var index = 0
        while index < Self.boundsMicroseconds.count, value > Self.boundsMicroseconds[index] { index += 1 }
        counts[index] &+= 1
        sumMicroseconds &+= value
    }

    package mutating func add(_ other: MetricHistogram) {
        for index in counts.indices { counts[index] &+= other.counts[index] }
        sumMicroseconds &+= other.sumMicroseconds
    }
}
