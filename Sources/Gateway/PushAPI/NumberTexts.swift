// Getui's PHP SDK puts into JSON what its caller handed over: a caller without types names an alias 12345.
internal import JSON

/// Integers written out where a text is expected.
///
/// Texts stay where they are in the parsed document; digits go into a ring of slots, one message needs a few of them.
final class NumberTexts {
    private static let slotCount = 64
    /// Of the longest 64-bit integer: twenty digits.
    private static let slotByteCount = 20

    private let memory = UnsafeMutableRawBufferPointer.allocate(
        byteCount: slotCount * slotByteCount, alignment: 1)
    private var next = 0

    deinit { memory.deallocate() }

    /// A text's bytes, or an integer's digits; `nil` for anything else.
    ///
    /// Digits stand until sixty-three other numbers have been written out.
    func bytes(of value: JSONValue) -> UnsafeRawBufferPointer? {
        if let text = value.stringBytes { return text }
        if let text = value.longIntegerText { return text }
        let digits: String
        if let number = value.integer {
            digits = String(number)
        } else if let number = value.unsignedInteger {
            digits = String(number)
        } else {
            return nil
        }
        let start = next * Self.slotByteCount
        next = (next + 1) % Self.slotCount
        var end = start
        for digit in digits.utf8 {
            memory[end] = digit
            end += 1
        }
        return UnsafeRawBufferPointer(rebasing: memory[start..<end])
    }
}
