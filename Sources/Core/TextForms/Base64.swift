// Base64 (RFC 4648) without Foundation: the standard alphabet with padding, the URL alphabet without padding.

package enum Base64 {
    package enum Alphabet { case standard, url }

    package static func encode(_ bytes: some Sequence<UInt8>, _ alphabet: Alphabet) -> String {
        var text: [UInt8] = []
        var word: UInt32 = 0
        var bitCount = 0
        for byte in bytes {
            word = word << 8 | UInt32(byte)
            bitCount += 8
            while bitCount >= 6 {
                bitCount -= 6
                text.append(digit(UInt8(truncatingIfNeeded: word >> UInt32(bitCount)) & 63, alphabet))
            }
        }
        if bitCount > 0 { text.append(digit(UInt8(truncatingIfNeeded: word << UInt32(6 - bitCount)) & 63, alphabet)) }
        if alphabet == .standard { while text.count % 4 != 0 { text.append(UInt8(ascii: "=")) } }
        return String(decoding: text, as: UTF8.self)
    }

    /// Returns `nil` for an invalid character, misplaced padding, an impossible length or nonzero bits after the last byte.
    package static func decode(_ text: some Collection<UInt8>, _ alphabet: Alphabet) -> [UInt8]? {
        var body = Array(text)
        if alphabet == .standard {
            guard body.count % 4 == 0 else { return nil }
            for _ in 0..<2 where body.last == UInt8(ascii: "=") { body.removeLast() }
        }
        guard body.count % 4 != 1 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(body.count * 3 / 4)
        var word: UInt32 = 0
        var bitCount = 0
        for character in body {
            guard let value = value(of: character, alphabet) else { return nil }
            word = word << 6 | UInt32(value)
            bitCount += 6
            if bitCount >= 8 {
                bitCount -= 8
                bytes.append(UInt8(truncatingIfNeeded: word >> UInt32(bitCount)))
            }
        }
        guard word & (1 << UInt32(bitCount) - 1) == 0 else { return nil }
        return bytes
    }

    private static func digit(_ value: UInt8, _ alphabet: Alphabet) -> UInt8 {
        switch value {
        case 0..<26: UInt8(ascii: "A") + value
        case 26..<52: UInt8(ascii: "a") + value - 26
        case 52..<62: UInt8(ascii: "0") + value - 52
        case 62: alphabet == .standard ? UInt8(ascii: "+") : UInt8(ascii: "-")
        default: alphabet == .standard ? UInt8(ascii: "/") : UInt8(ascii: "_")
        }
    }

    private static func value(of character: UInt8, _ alphabet: Alphabet) -> UInt8? {
        switch character {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): character - UInt8(ascii: "A")
        case UInt8(ascii: "a")...UInt8(ascii: "z"): character - UInt8(ascii: "a") + 26
        case UInt8(ascii: "0")...UInt8(ascii: "9"): character - UInt8(ascii: "0") + 52
        case UInt8(ascii: "+") where alphabet == .standard, UInt8(ascii: "-") where alphabet == .url: 62
        case UInt8(ascii: "/") where alphabet == .standard, UInt8(ascii: "_") where alphabet == .url: 63
        default: nil
        }
    }
}
