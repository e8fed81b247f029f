internal import Glibc

/// The part of the network that an address belongs to (IANA special-purpose address registries, RFC 6890).
enum AddressScope {
    case loopback
    /// An address of a private, link-local, multicast or reserved range.
    case restricted
    case global

    static func scope(ofIPv4 address: UInt32) -> AddressScope {
        if address >> 24 == 127 { return .loopback }
        let ranges: [(base: UInt32, length: UInt32)] = [
            (0x0000_0000, 8), (0x0A00_0000, 8), (0x6440_0000, 10), (0xA9FE_0000, 16), (0xAC10_0000, 12),
            (0xC000_0000, 24), (0xC000_0200, 24), (0xC058_6300, 24), (0xC0A8_0000, 16), (0xC612_0000, 15),
            (0xC633_6400, 24), (0xCB00_7100, 24), (0xE000_0000, 3),
        ]
        let isRestricted = ranges.contains { (address ^ $0.base) >> (32 - $0.length) == 0 }
        return isRestricted ? .restricted : .global
    }

    /// Returns the scope of 16 bytes; an address that embeds an IPv4 address has the scope of that address.
    static func scope(ofIPv6 bytes: [UInt8]) -> AddressScope {
        func embedded(_ at: Int) -> AddressScope {
            scope(ofIPv4: bytes[at..<at + 4].reduce(0) { $0 << 8 | UInt32($1) })
        }
        if bytes[..<15].allSatisfy({ $0 == 0 }) { return bytes[15] == 1 ? .loopback : .restricted }
        // IPv4-mapped addresses connect to the IPv4 address itself.
        if bytes[..<10].allSatisfy({ $0 == 0 }), bytes[10] == 0xFF, bytes[11] == 0xFF { return embedded(12) }
        // Translators (NAT64, 6to4) forward to the embedded address. An embedded loopback address is then not this machine's own.
        let translated: AddressScope? =
            bytes[..<12].elementsEqual([0, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0])
            ? embedded(12) : bytes[0] == 0x20 && bytes[1] == 0x02 ? embedded(2) : nil
        if let translated { return translated == .global ? .global : .restricted }
        // Global unicast addresses are in 2000::/3. 2001::/23 has protocol assignments such as Teredo, and 2001:db8::/32 examples.
        guard bytes[0] >> 5 == 1 else { return .restricted }
        let isSpecial = bytes[2] < 2 || bytes[2] == 0x0D && bytes[3] == 0xB8
        return bytes[0] == 0x20 && bytes[1] == 0x01 && isSpecial ? .restricted : .global
    }

    /// Returns the scope of a socket's address, or `nil` for another family than IPv4 and IPv6.
    static func scope(family: CInt, _ bytes: UnsafeRawPointer) -> AddressScope? {
        switch family {
        case AF_INET:
            scope(ofIPv4: UInt32(bigEndian: bytes.loadUnaligned(as: sockaddr_in.self).sin_addr.s_addr))
        case AF_INET6:
            withUnsafeBytes(of: bytes.loadUnaligned(as: sockaddr_in6.self).sin6_addr) { scope(ofIPv6: Array($0)) }
        default: nil
        }
    }
}

extension HTTPCall.Addresses {
    func permits(_ scope: AddressScope?) -> Bool {
        switch self {
        case .any: true
        case .global: scope == .global
        case .globalOrLoopback: scope == .global || scope == .loopback
        }
    }
}
