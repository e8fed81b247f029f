/// The only source of randomness of a run: a small generator whose sequence depends only on the seed.
package struct Chance: RandomNumberGenerator {
    private var state: UInt64

    package init(seed: UInt64) { state = seed &* 0x2545_F491_4F6C_DD1D &+ 0x9E37_79B9_7F4A_7C15 }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }

    /// Returns a number below `bound`; the slight bias of the remainder does not matter here.
    mutating func below(_ bound: Int) -> Int { bound <= 1 ? 0 : Int(truncatingIfNeeded: (next() >> 33)) % bound }

    mutating func between(_ low: Int, _ high: Int) -> Int { low + below(high - low + 1) }
    mutating func time(_ low: Int64, _ high: Int64) -> Int64 { low + Int64(below(Int(high - low + 1))) }
    mutating func perMille(_ share: Int) -> Bool { below(1_000) < share }
    mutating func one<Element>(of elements: [Element]) -> Element { elements[below(elements.count)] }
}
