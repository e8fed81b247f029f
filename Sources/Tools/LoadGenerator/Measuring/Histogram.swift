/// A histogram of durations with an error of at most 0.8 %, in fixed memory.
///
/// Values are nanoseconds, up to 63 bits. Each value below 128 has its own bucket. Above, each power of two has 128 buckets.
struct Histogram: Sendable, Equatable {
    private static let stepBits = 7
    private static let stepCount = 1 << stepBits
    private static let bucketCount = (64 - stepBits) << stepBits

    private var buckets = [UInt64](repeating: 0, count: bucketCount)
    private(set) var count: UInt64 = 0
    private(set) var minimum = Int64.max
    private(set) var maximum: Int64 = 0
    private var sum: Double = 0

    /// Counts one value.
    ///
    /// A negative value counts as 0; it results from comparing two clocks.
    mutating func record(_ value: Int64) {
        let value = max(0, value)
        buckets[Self.bucket(of: UInt64(value))] &+= 1
        count &+= 1
        minimum = min(minimum, value)
        maximum = max(maximum, value)
        sum += Double(value)
    }

    mutating func merge(_ other: Histogram) {
        guard other.count > 0 else { return }
        for index in buckets.indices { buckets[index] &+= other.buckets[index] }
        count &+= other.count
        minimum = min(minimum, other.minimum)
        maximum = max(maximum, other.maximum)
        sum += other.sum
    }

    /// Returns the value that `percent` of the recorded values do not exceed.
    ///
    /// - Parameter percent: 0 to 100.
    /// - Returns: a bucket's upper end, at most the maximum; 0 without recorded values.
    func percentile(_ percent: Double) -> Int64 {
        guard count > 0 else { return 0 }
        let rank = max(1, UInt64((percent / 100 * Double(count)).rounded(.up)))
        var seen: UInt64 = 0
        for index in buckets.indices {
            seen &+= buckets[index]
            if seen >= rank { return min(maximum, Self.upperEnd(of: index)) }
        }
        return maximum
    }

    var mean: Double { count == 0 ? 0 : sum / Double(count) }

    private static func bucket(of value: UInt64) -> Int {
        guard value >= UInt64(stepCount) else { return Int(value) }
        let shift = 63 - value.leadingZeroBitCount - stepBits
        return (shift << stepBits) + Int(value >> UInt64(shift))
    }

    private static func upperEnd(of bucket: Int) -> Int64 {
        guard bucket >= 2 * stepCount else { return Int64(bucket) }
        let shift = (bucket >> stepBits) - 1
        let top = UInt64(bucket - (shift << stepBits))
        return Int64(clamping: (top + 1) << UInt64(shift) - 1)
    }
}
