internal import Platform

package enum RedisSlot {
    package static let count = 16_384

    /// Returns the slot of a key, from the non-empty text between its first `{` and the next `}`, if any.
    package static func of(_ key: [UInt8]) -> Int {
        var part = key[...]
        if let open = key.firstIndex(of: UInt8(ascii: "{")),
            let close = key[(open + 1)...].firstIndex(of: UInt8(ascii: "}")), close > open + 1
        {
            part = key[(open + 1)..<close]
        }
        // CRC-16/XMODEM (the cluster specification, "Key distribution model").
        var sum: UInt16 = 0
        for byte in part {
            sum ^= UInt16(byte) << 8
            for _ in 0..<8 { sum = sum & 0x8000 != 0 ? sum << 1 ^ 0x1021 : sum << 1 }
        }
        return Int(sum) % count
    }

    package static func of(_ key: String) -> Int { of(Array(key.utf8)) }

    /// Returns a key of the slot for the write that precedes a wait (`RedisClient.touchCommand`).
    static func key(in slot: Int) -> String {
        if let key = known.withLock({ $0[slot] }) { return key }
        var number = 0
        while of("lw:touch:\(number)") != slot { number += 1 }
        let key = "lw:touch:\(number)"
        known.withLock { $0[slot] = key }
        return key
    }

    private static let known = Lock<[Int: String]>([:])
}
