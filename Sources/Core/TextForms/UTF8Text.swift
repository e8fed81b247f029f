/// Eight bytes of a text in one word, to skip stretches that need no work.
struct EightBytes {
    private let word: UInt64
    private static let ones: UInt64 = 0x0101_0101_0101_0101
    private static let tops: UInt64 = 0x8080_8080_8080_8080

    private init(word: UInt64) { self.word = word }

    @inline(__always) init(_ text: UnsafeRawBufferPointer, at place: Int) {
        self.init(word: text.loadUnaligned(fromByteOffset: place, as: UInt64.self))
    }

    /// Loads the bytes from `place` on; if fewer than eight are left, the word also has earlier bytes or spaces, in any order.
    @inline(__always) init(_ text: UnsafeRawBufferPointer, from place: Int) {
        let count = text.count
        if place + 8 <= count {
            self.init(text, at: place)
        } else if count >= 8 {
            self.init(text, at: count - 8)
        } else if count >= 4 {
            let (low, high) = (
                text.loadUnaligned(as: UInt32.self), text.loadUnaligned(fromByteOffset: count - 4, as: UInt32.self)
            )
            self.init(word: UInt64(low) | UInt64(high) << 32)
        } else {
            let letters = UInt64(text[0]) | UInt64(text[count / 2]) << 8 | UInt64(text[count - 1]) << 16
            self.init(word: letters | 0x20_2020_2020 << 24)
        }
    }

    @inline(__always) var isASCII: Bool { word & Self.tops == 0 }

    /// Whether all bytes are ASCII and none is a quote, a backslash or a control character below U+0020.
    @inline(__always) var isPlain: Bool {
        let (ones, tops) = (Self.ones, Self.tops)
        let (quotes, slashes) = (word ^ ones &* 0x22, word ^ ones &* 0x5C)
        // Sets the top bit of each byte below the subtracted number (Anderson, "Bit Twiddling Hacks": hasless).
        let found = (quotes &- ones) & ~quotes | (slashes &- ones) & ~slashes | (word &- ones &* 0x20) & ~word | word
        return found & tops == 0
    }

    /// Whether one of eight ASCII bytes is U+007F: adding one sets its top bit.
    @inline(__always) var hasDelete: Bool { (word &+ Self.ones) & Self.tops != 0 }
}

/// Returns the byte count (2–4) of a well-formed multi-byte UTF-8 sequence at `place`, or 0 (RFC 3629).
package func validSequenceLength(in text: UnsafeRawBufferPointer, at place: Int) -> Int {
    let first = text[place]
    let length: Int
    var low: UInt8 = 0x80
    var high: UInt8 = 0xBF
    switch first {
    case 0xC2...0xDF: length = 2
    case 0xE0: (length, low) = (3, 0xA0)
    case 0xED: (length, high) = (3, 0x9F)
    case 0xE1...0xEF: length = 3
    case 0xF0: (length, low) = (4, 0x90)
    case 0xF4: (length, high) = (4, 0x8F)
    case 0xF1...0xF3: length = 4
    default: return 0
    }
    guard place + length <= text.count, text[place + 1] >= low, text[place + 1] <= high else { return 0 }
    for offset in 2..<max(2, length) where text[place + offset] & 0xC0 != 0x80 { return 0 }
    return length
}

/// Returns the scalar of a sequence whose length is 1 for ASCII or comes from `validSequenceLength`.
func scalarValue(in text: UnsafeRawBufferPointer, at place: Int, length: Int) -> UInt32 {
    guard length > 1 else { return UInt32(text[place]) }
    var value = UInt32(text[place]) & (0x7F >> UInt32(length))
    for offset in 1..<length { value = value << 6 | UInt32(text[place + offset] & 0x3F) }
    return value
}

/// Returns the number of Unicode scalars, or `nil` if the text is not well-formed UTF-8.
package func scalarCount(_ text: UnsafeRawBufferPointer) -> Int? {
    var count = 0
    var place = 0
    while place < text.count {
        if place + 8 <= text.count, EightBytes(text, at: place).isASCII {
            (place, count) = (place + 8, count + 8)
            continue
        }
        if text[place] < 0x80 {
            place += 1
        } else {
            let length = validSequenceLength(in: text, at: place)
            guard length > 0 else { return nil }
            place += length
        }
        count += 1
    }
    return count
}
