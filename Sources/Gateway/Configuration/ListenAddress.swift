internal import Glibc

/// A numeric address and a port to listen on; names are not resolved, so that a start never waits for DNS.
package struct ListenAddress: Hashable, Sendable, CustomStringConvertible {
    /// `127.0.0.1`, `0.0.0.0`, `::1`, `::` …, without brackets.
    package let host: String
    /// The port; 0 lets the kernel choose one, for tests.
    package let port: UInt16

    package init(host: String, port: UInt16) { (self.host, self.port) = (host, port) }

    /// Parses `HOST:PORT`, `[IPV6]:PORT` and `localhost:PORT`; `nil` for anything else.
    package init?(_ text: String) {
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let digits = text[text.index(after: colon)...]
        guard !digits.isEmpty, digits.utf8.allSatisfy({ $0 >= 48 && $0 <= 57 }), let port = UInt16(digits) else {
            return nil
        }
        var host = String(text[..<colon])
        // A zero byte would end the text for `inet_pton`, which would ignore the bytes after it.
        guard !host.utf8.contains(0) else { return nil }
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = String(host.dropFirst().dropLast())
            guard Self.isIPv6(host) else { return nil }
        } else {
            if host == "localhost" { host = "127.0.0.1" }
            guard Self.isIPv4(host) else { return nil }
        }
        self.init(host: host, port: port)
    }

    package var isLoopback: Bool { Self.isLoopback(host: host) }
    /// Whether the address is 0.0.0.0 or ::, which is valid for listening but not for connecting.
    package var isUnspecified: Bool {
        var four = in_addr()
        if inet_pton(AF_INET, host, &four) == 1 { return four.s_addr == 0 }
        var six = in6_addr()
        guard inet_pton(AF_INET6, host, &six) == 1 else { return false }
        return withUnsafeBytes(of: &six) { bytes in bytes.allSatisfy { $0 == 0 } }
    }
    package var isIPv6: Bool { host.contains(":") }
    package var description: String { isIPv6 ? "[\(host)]:\(port)" : "\(host):\(port)" }

    /// Whether the host is numeric and in 127.0.0.0/8 or ::1.
    package static func isLoopback(host: String) -> Bool {
        var four = in_addr()
        if inet_pton(AF_INET, host, &four) == 1 { return UInt32(bigEndian: four.s_addr) >> 24 == 127 }
        var six = in6_addr()
        guard inet_pton(AF_INET6, host, &six) == 1 else { return false }
        return withUnsafeBytes(of: &six) { bytes in bytes.dropLast().allSatisfy { $0 == 0 } && bytes[15] == 1 }
    }

    private static func isIPv4(_ host: String) -> Bool {
        var address = in_addr()
        return inet_pton(AF_INET, host, &address) == 1
    }

    private static func isIPv6(_ host: String) -> Bool {
        var address = in6_addr()
        return inet_pton(AF_INET6, host, &address) == 1
    }
}
