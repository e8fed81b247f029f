// Getui's PHP SDK encodes values with the types of its caller, so an alias may arrive as the number 12345.
internal import JSON

/// Decimal texts of integers that are sent in place of strings.
///
/// Strings stay in the parsed document. Digits are written into a ring of slots, of which one message needs only a few.
final class NumberTexts {
    private static let slotCount = 64
    /// The length of the longest 64-bit integer: twenty digits.
    private static let slotByteCount = 20

    private let memory = UnsafeMutableRawBufferPointer.allocate(
        byteCount: slotCount * slotByteCount, alignment: 1)
    private var next = 0

    deinit { memory.deallocate() }

    /// Returns a text's bytes or an integer's digits; `nil` for anything else.
    ///
    /// Digits stay valid until sixty-three other numbers were converted.
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
