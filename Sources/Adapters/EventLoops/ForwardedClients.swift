internal import Glibc

/// HTTP proxies that pass on requests of other clients, and the header in which they name the client.
///
/// Only the configured header is read. A proxy that sets this header passes the other one on unchanged, so a client could forge
/// it.
package struct ForwardedClients: Sendable, Equatable {
    package enum Header: String, Sendable, CaseIterable {
        case xForwardedFor = "x-forwarded-for"
        /// RFC 7239.
        case forwarded

        var name: StaticString {
            switch self {
            case .xForwardedFor: "x-forwarded-for"
            case .forwarded: "forwarded"
            }
        }
    }

    package var proxies: [AddressRange]
    package var header: Header

    package init(proxies: [AddressRange] = [], header: Header = .xForwardedFor) {
        (self.proxies, self.header) = (proxies, header)
    }

    package func isProxy(_ address: SocketAddress) -> Bool { proxies.contains { $0.contains(address) } }

    /// Returns the client: the last element that names no proxy, since each proxy appends the address that it saw.
    ///
    /// - Parameter elements: The elements of all lines of the header, in order.
    /// - Returns: `nil` if that element is missing or no address.
    func client(in elements: [UnsafeRawBufferPointer]) -> SocketAddress? {
        for element in elements.reversed() {
            guard let address = address(in: element) else { return nil }
            if !isProxy(address) { return address }
        }
        return nil
    }

    private func address(in element: UnsafeRawBufferPointer) -> SocketAddress? {
        let text = String(decoding: element, as: UTF8.self)
        guard header == .forwarded else { return SocketAddress(node: text) }
        for pair in text.split(separator: ";") {
            let parts = pair.split(separator: "=", maxSplits: 1)
            guard parts.count == 2, parts[0].drop(while: { $0 == " " }).lowercased() == "for" else { continue }
            var value = parts[1].prefix { $0 != " " }
            if value.count > 1, value.first == "\"", value.last == "\"" { value = value.dropFirst().dropLast() }
            return SocketAddress(node: String(value))
        }
        return nil
    }
}

extension SocketAddress {
    /// Reads an address with an optional port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
    init?(node: String) {
        var host = Substring(node)
        if host.first == "[" {
            guard let end = host.firstIndex(of: "]") else { return nil }
            host = host[host.index(after: host.startIndex)..<end]
        } else if host.count(where: { $0 == ":" }) == 1 {
            host = host.prefix { $0 != ":" }
        }
        guard let bytes = Self.bytes(of: host, AF_INET) ?? Self.bytes(of: host, AF_INET6) else { return nil }
        let address = bytes.withUnsafeBytes { host in
            [UInt8(0), 0].withUnsafeBytes { SocketAddress(host: host[...], port: $0[...]) }
        }
        guard let address else { return nil }
        self = address
    }
}
