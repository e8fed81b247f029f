extension UInt8 {
    @inlinable package var isDigit: Bool { 0x30...0x39 ~= self }
    @inlinable package var isLetter: Bool { 0x61...0x7A ~= self | 0x20 }
    @inlinable package var isHexDigit: Bool { isDigit || 0x61...0x66 ~= self | 0x20 }
}

extension StringProtocol {
    @inlinable package func isPlain(with others: String = "") -> Bool {
        utf8.allSatisfy { $0.isDigit || $0.isLetter || others.utf8.contains($0) }
    }
}

extension String {
    package var isUUID: Bool {
        var place = 0
        for byte in utf8 {
            let isDash = place == 8 || place == 13 || place == 18 || place == 23
            guard isDash ? byte == UInt8(ascii: "-") : byte.isHexDigit else { return false }
            place += 1
        }
        return place == 36
    }
}

extension Sequence<UInt8> {
    /// Returns the bytes of a percent-encoded text, or `nil` if a `%` is not followed by two hexadecimal digits.
    package func percentDecoded() -> [UInt8]? {
        var bytes: [UInt8] = []
        var rest = Array(self)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            let digits = String(decoding: rest.prefix(2).prefix(while: \.isHexDigit), as: UTF8.self)
            guard digits.utf8.count == 2, let value = UInt8(digits, radix: 16) else { return nil }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return bytes
    }
}
