// UTF-8 from outside, read in place.

/// Eight bytes of a text at once, for the stretches in which there is nothing to do.
struct EightBytes {
    private let word: UInt64
    private static let ones: UInt64 = 0x0101_0101_0101_0101
    private static let tops: UInt64 = 0x8080_8080_8080_8080

    private init(word: UInt64) { self.word = word }

    @inline(__always) init(_ text: UnsafeRawBufferPointer, at place: Int) {
        self.init(word: text.loadUnaligned(fromByteOffset: place, as: UInt64.self))
    }

    /// The bytes from `place` on; with fewer than eight left, all of these, and earlier ones or spaces in any order.
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

    /// Neither a quote nor a backslash, no control character, all of it ASCII.
    @inline(__always) var isPlain: Bool {
        let (ones, tops) = (Self.ones, Self.tops)
        let (quotes, slashes) = (word ^ ones &* 0x22, word ^ ones &* 0x5C)
        // The top bit of each byte that is below the number taken away (Anderson, "Bit Twiddling Hacks": hasless).
        let found = (quotes &- ones) & ~quotes | (slashes &- ones) & ~slashes | (word &- ones &* 0x20) & ~word | word
        return found & tops == 0
    }

    /// Whether U+007F is one of eight ASCII bytes: one more than it has the top bit.
    @inline(__always) var hasDelete: Bool { (word &+ Self.ones) & Self.tops != 0 }
}

/// The byte count (2–4) of a well-formed multi-byte UTF-8 sequence at `place`; 0 when there is none (RFC 3629).
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

/// The scalar of a sequence of `length` bytes: one of ASCII, or 2 to 4 that `validSequenceLength` has measured.
func scalarValue(in text: UnsafeRawBufferPointer, at place: Int, length: Int) -> UInt32 {
    guard length > 1 else { return UInt32(text[place]) }
    var value = UInt32(text[place]) & (0x7F >> UInt32(length))
    for offset in 1..<length { value = value << 6 | UInt32(text[place + offset] & 0x3F) }
    return value
}

/// The number of Unicode scalars in UTF-8 text; `nil` when it is not well formed.
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
