/// The classes of ASCII characters that names, numbers and tokens are made of.
extension UInt8 {
    package var isDigit: Bool { 0x30...0x39 ~= self }
    package var isLetter: Bool { 0x61...0x7A ~= self | 0x20 }
    package var isHexDigit: Bool { isDigit || 0x61...0x66 ~= self | 0x20 }
}

extension StringProtocol {
    /// Whether all characters are ASCII letters, ASCII digits or among `others`.
    package func isPlain(with others: String = "") -> Bool {
        utf8.allSatisfy { $0.isDigit || $0.isLetter || others.utf8.contains($0) }
    }

    /// Whether the text has the form of a UUID.
    package var isUUID: Bool {
        let dashes = [8, 13, 18, 23]
        return utf8.count == 36
            && utf8.enumerated().allSatisfy { place, byte in
                dashes.contains(place) ? byte == UInt8(ascii: "-") : byte.isHexDigit
            }
    }
}

extension Sequence<UInt8> {
    /// The bytes of a percent-encoded text; `nil` where a `%` has no two digits of a hexadecimal number behind it.
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
