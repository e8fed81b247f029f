// The gateway alone needs this. `InlineArray` requires newer Apple systems than the client supports.
#if !canImport(Darwin)
extension AckView {
    @unsafe public func withRanges<Result>(_ body: (UnsafeBufferPointer<SequenceRange>) -> Result) -> Result {
        unsafe ranges.span.withUnsafeBufferPointer { unsafe body(UnsafeBufferPointer(rebasing: $0[0..<rangeCount])) }
    }
}
#endif
