import Testing

@testable import LoadGenerator

@Suite("Histogram")
struct HistogramTests {
    @Test("percentiles of a known series are exact below 128 and at most 0.8 % too large above")
    func percentiles() {
        var histogram = Histogram()
        for value in 1...100_000 as ClosedRange<Int64> { histogram.record(value) }
        for percent in [1, 25, 50, 90, 99, 99.9, 100] {
            let exact = (percent / 100 * 100_000).rounded(.up)
            let found = Double(histogram.percentile(percent))
            #expect(found >= exact && found <= exact * 1.0079)
        }
        #expect(histogram.count == 100_000)
        #expect(histogram.minimum == 1)
        #expect(histogram.maximum == 100_000)
        #expect(histogram.mean == 50_000.5)
    }

    @Test("no bucket's upper end is below a value it counts, for all possible values")
    func everyMagnitude() {
        for bit in 0..<63 {
            for value in [Int64(1) << bit, Int64(1) << bit &+ (Int64(1) << bit - 1)] {
                var histogram = Histogram()
                histogram.record(value)
                histogram.record(.max)
                let found = histogram.percentile(50)
                #expect(found >= value)
                #expect(Double(found) <= Double(value) * 1.0079)
                #expect(histogram.percentile(100) == .max)
            }
        }
    }

    @Test("an empty histogram returns 0, and no percentile exceeds the maximum recorded value")
    func edges() {
        var histogram = Histogram()
        #expect(histogram.percentile(99) == 0)
        #expect(histogram.mean == 0)
        histogram.record(1_000_001)
        #expect(histogram.percentile(0) == 1_000_001)
        #expect(histogram.percentile(99.9) == 1_000_001)
        histogram.record(-5)
        #expect(histogram.minimum == 0)
    }

    @Test("merging equals recording into one")
    func merging() {
        var (left, right, whole) = (Histogram(), Histogram(), Histogram())
        for value in stride(from: Int64(3), to: 9_000_000, by: 7_919) {
            if value % 2 == 0 { left.record(value) } else { right.record(value) }
            whole.record(value)
        }
        left.merge(right)
        left.merge(Histogram())
        for percent in [10, 50, 99, 99.9] { #expect(left.percentile(percent) == whole.percentile(percent)) }
        #expect(left.count == whole.count)
        #expect(left.minimum == whole.minimum)
        #expect(left.maximum == whole.maximum)
    }
}
