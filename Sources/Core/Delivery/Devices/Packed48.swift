/// A number below 2⁴⁸ in six bytes, such as a time in ms; greater values, possible only in a damaged row, are clamped.
struct Packed48 {
    private var low: UInt16 = 0
    private var middle: UInt16 = 0
    private var high: UInt16 = 0

    var value: UInt64 {
        get { UInt64(high) << 32 | UInt64(middle) << 16 | UInt64(low) }
        set {
            let kept = min(newValue, 1 << 48 - 1)
            (low, middle) = (UInt16(truncatingIfNeeded: kept), UInt16(truncatingIfNeeded: kept >> 16))
            high = UInt16(truncatingIfNeeded: kept >> 32)
        }
    }
}
