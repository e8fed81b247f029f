// Only the gateway uses `AckView`. Apple's systems that the client supports may lack `InlineArray`.
#if !canImport(Darwin)
extension AckView {
    @unsafe public func withRanges<Result>(_ body: (UnsafeBufferPointer<SequenceRange>) -> Result) -> Result {
        unsafe ranges.span.withUnsafeBufferPointer { unsafe body(UnsafeBufferPointer(rebasing: $0[0..<rangeCount])) }
    }
}
#endif
