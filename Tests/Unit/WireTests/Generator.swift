import Foundation

/// SplitMix64: the same values for the same seed on every machine.
///
/// `LONGWIRE_SEED` replays a run. Every expectation's comment contains the current seed.
struct Generator: RandomNumberGenerator {
    static let seed = ProcessInfo.processInfo.environment["LONGWIRE_SEED"].flatMap(UInt64.init) ?? 20_251_121

    private var state: UInt64

    init(_ name: String) {
        state = name.utf8.reduce(Self.seed) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return mixed ^ mixed >> 31
    }

    mutating func below(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &self) }
    mutating func flag() -> Bool { below(2) == 1 }

    /// Returns a bound of some encoding, or a number of random magnitude.
    mutating func number<Number: FixedWidthInteger & UnsignedInteger>(_: Number.Type = Number.self) -> Number {
        switch below(8) {
        case 0: 0
        case 1: .max
        case 2: [1, 127, 128, 16_383, 16_384].randomElement(using: &self).flatMap { Number(exactly: $0) } ?? 1
        default: Number(truncatingIfNeeded: next()) >> Number(below(Number.bitWidth))
        }
    }

    mutating func int32() -> Int32 { Int32(bitPattern: number(UInt32.self)) }
    mutating func int64() -> Int64 { Int64(bitPattern: number(UInt64.self)) }

    mutating func bytes(upTo count: Int) -> [UInt8] {
        (0..<below(count + 1)).map { _ in UInt8(truncatingIfNeeded: next()) }
    }

    /// Returns text with one to four bytes per scalar, including quotes and controls; at most `count` scalars.
    mutating func text(upTo count: Int) -> String {
        let alphabet: [Unicode.Scalar] = [
            "a", "Z", "7", " ", "\"", "'", "\\", "\n", "\t", "\r", "\u{1}", "\u{7F}", "é", "ß", "中", "界", "\u{FFFD}",
            "😀", "\u{10FFFF}", "\u{800}", "\u{D7FF}", "\u{E000}", "\u{0}",
        ]
        var text = ""
        for _ in 0..<below(count + 1) { text.unicodeScalars.append(alphabet.randomElement(using: &self) ?? "a") }
        return text
    }

    mutating func list<Element>(upTo count: Int, of make: (inout Generator) -> Element) -> [Element] {
        (0..<below(count + 1)).map { _ in make(&self) }
    }
}
