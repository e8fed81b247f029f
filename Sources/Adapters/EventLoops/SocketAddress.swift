internal import CLibevent
internal import Glibc

package struct SocketAddress: Equatable, Sendable, CustomStringConvertible {
    /// The numeric host, without brackets.
    package let host: String
    package let port: UInt16
    package let isIPv6: Bool
    /// Whether the address is on this machine: 127.0.0.0/8, ::1, or an IPv4-mapped loopback address.
    package let isLoopback: Bool
    /// The key of limits per address: an IPv4 address, or the first half of an IPv6 address, which one customer gets.
    ///
    /// An IPv4 address mapped or translated (NAT64) into IPv6 counts as the IPv4 address.
    package let network: UInt64

    package var description: String { isIPv6 ? "[\(host)]:\(port)" : "\(host):\(port)" }

    /// Creates an address from a kernel's sockaddr; fails for families other than IPv4 and IPv6.
    init?(_ storage: UnsafePointer<sockaddr_storage>) {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        let raw = UnsafeRawPointer(storage)
        switch CInt(storage.pointee.ss_family) {
        case AF_INET:
            let address = raw.assumingMemoryBound(to: sockaddr_in.self)
            var number = address.pointee.sin_addr
            guard inet_ntop(AF_INET, &number, &text, socklen_t(text.count)) != nil else { return nil }
            port = UInt16(bigEndian: address.pointee.sin_port)
            isIPv6 = false
            isLoopback = UInt32(bigEndian: number.s_addr) >> 24 == 127
            network = Self.network(ofIPv4: UInt32(bigEndian: number.s_addr))
        case AF_INET6:
            let address = raw.assumingMemoryBound(to: sockaddr_in6.self)
            var number = address.pointee.sin6_addr
            guard inet_ntop(AF_INET6, &number, &text, socklen_t(text.count)) != nil else { return nil }
            port = UInt16(bigEndian: address.pointee.sin6_port)
            isIPv6 = true
            (isLoopback, network) = withUnsafeBytes(of: number) { bytes in
                func number(_ range: Range<Int>) -> UInt64 { bytes[range].reduce(0) { $0 << 8 | UInt64($1) } }
                let isMapped = number(0..<8) == 0 && number(8..<12) == 0xFFFF
                if isMapped { return (bytes[12] == 127, Self.network(ofIPv4: UInt32(number(12..<16)))) }
                // 64:ff9b::/96 (RFC 6052): a translator maps all IPv4 addresses into one 64-bit network.
                let isTranslated = number(0..<8) == 0x0064_FF9B_0000_0000 && number(8..<12) == 0
                if isTranslated { return (false, Self.network(ofIPv4: UInt32(number(12..<16)))) }
                return (number(0..<8) == 0 && number(8..<16) == 1, number(0..<8))
            }
        default: return nil
        }
        host = text.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } ?? "" }
    }

    /// Returns a number that equals no IPv6 network, because no such network begins with these bits.
    private static func network(ofIPv4 address: UInt32) -> UInt64 { 0xFFFF << 48 | UInt64(address) }

    static func local(of descriptor: CInt) -> SocketAddress? {
        var storage = sockaddr_storage()
        var count = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = withUnsafeMutableBytes(of: &storage) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { getsockname(descriptor, $0.baseAddress, &count) }
        }
        return result == 0 ? SocketAddress(&storage) : nil
    }

    static func peer(of descriptor: CInt) -> SocketAddress? {
        var storage = sockaddr_storage()
        var count = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = withUnsafeMutableBytes(of: &storage) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { getpeername(descriptor, $0.baseAddress, &count) }
        }
        return result == 0 ? SocketAddress(&storage) : nil
    }
}
