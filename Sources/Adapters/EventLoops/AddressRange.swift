internal import Glibc

/// A range of addresses with a common prefix, such as `10.0.0.0/8` or `fd00::/8`, or a single address.
package struct AddressRange: Hashable, Sendable, CustomStringConvertible {
    /// The 4 or 16 bytes of the address; an IPv4-mapped IPv6 address counts as IPv4.
    private let bytes: [UInt8]
    private let bitCount: Int
    package let description: String

    /// Fails unless the text is a numeric address with an optional prefix length in range.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let bytes = Self.bytes(of: String(parts[0])) else { return nil }
        var bitCount = bytes.count * 8
        if parts.count == 2 {
            guard let number = Int(parts[1]), 0...bitCount ~= number, "\(number)" == parts[1] else { return nil }
            bitCount = number
        }
        (self.bytes, self.bitCount, description) = (bytes, bitCount, text)
    }

    package func contains(_ address: SocketAddress) -> Bool {
        guard let other = Self.bytes(of: address.host), other.count == bytes.count else { return false }
        let whole = bitCount / 8
        guard other[..<whole] == bytes[..<whole] else { return false }
        let rest = bitCount % 8
        return rest == 0 || (other[whole] ^ bytes[whole]) >> (8 - rest) == 0
    }

    private static func bytes(of host: String) -> [UInt8]? {
        if let four = SocketAddress.bytes(of: host, AF_INET) { return four }
        guard let all = SocketAddress.bytes(of: host, AF_INET6) else { return nil }
        let isMapped = all[..<10].allSatisfy { $0 == 0 } && all[10] == 0xFF && all[11] == 0xFF
        return isMapped ? Array(all[12...]) : all
    }
}
