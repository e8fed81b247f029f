// Only the gateway reads acks so; `InlineArray` is newer than the Apple systems that a client's app supports.
#if !canImport(Darwin)
extension AckView {
    /// The ranges in place, for a caller that takes them as a buffer.
    @unsafe public func withRanges<Result>(_ body: (UnsafeBufferPointer<SequenceRange>) -> Result) -> Result {
        unsafe ranges.span.withUnsafeBufferPointer { unsafe body(UnsafeBufferPointer(rebasing: $0[0..<rangeCount])) }
    }
}
#endif
