/// A count in two bytes with eleven significant bits, rounded up.
struct ApproximateCount: BitwiseCopyable {
    private let bits: UInt16

    init(atLeast count: Int) {
        precondition(count >= 0, "a count is not negative")
        var (mantissa, exponent) = (count, 0)
        while mantissa >= 1 << 11 {
            mantissa = (mantissa + 1) >> 1
            exponent += 1
        }
        // The largest exponent exceeds any size in memory.
        bits = UInt16(mantissa) << 5 | UInt16(min(exponent, 31))
    }

    var value: Int { Int(bits >> 5) << Int(bits & 31) }
}
