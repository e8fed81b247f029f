internal import CLibevent
internal import Glibc

/// The header of the PROXY protocol, with which a load balancer names the client before the first byte.
///
/// Version 1 is a line of text, version 2 is binary. Source: "The PROXY protocol", versions 1 & 2, sections 2.1 and 2.2
/// (haproxy.org/download/3.0/doc/proxy-protocol.txt).
enum ProxyHeader: Equatable {
    /// The header is incomplete and has at least this many bytes.
    case incomplete(byteCount: Int)
    /// The header is complete; without a client the connection is the balancer's own, such as a health check.
    case complete(byteCount: Int, client: SocketAddress?)
    case refused(Fault)

    enum Fault: Equatable {
        /// The first bytes are no PROXY header.
        case missing
        case line
        case otherVersion
        case tooLong
        /// The header is too short for its addresses.
        case short
        case command
    }

    /// The size of signature, version and command, family, and length.
    static let fixedByteCount = 16
    private static let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]
    /// The size of the shortest line of version 1, which names no client.
    static let leastByteCount = 15
    /// The maximum size of the line of version 1, including its end.
    private static let lineByteCount = 107
    private static let lineStart = Array("PROXY ".utf8)

    init(_ bytes: UnsafeRawBufferPointer) {
        let known = min(bytes.count, Self.signature.count)
        guard bytes[..<known].elementsEqual(Self.signature[..<known]) else {
            let start = min(bytes.count, Self.lineStart.count)
            let isLine = bytes[..<start].elementsEqual(Self.lineStart[..<start])
            self = isLine ? Self.line(bytes) : .refused(.missing)
            return
        }
        guard bytes.count >= Self.fixedByteCount else {
            self = .incomplete(byteCount: Self.fixedByteCount)
            return
        }
        guard bytes[12] >> 4 == 2 else {
            self = .refused(.otherVersion)
            return
        }
        let rest = Int(bytes[14]) << 8 | Int(bytes[15])
        let byteCount = Self.fixedByteCount + rest
        guard byteCount <= Limits.proxyHeaderByteCount else {
            self = .refused(.tooLong)
            return
        }
        guard bytes.count >= byteCount else {
            self = .incomplete(byteCount: byteCount)
            return
        }
        switch bytes[12] & 0xF {
        case 0: self = .complete(byteCount: byteCount, client: nil)
        case 1:
            let addresses = UnsafeRawBufferPointer(rebasing: bytes[Self.fixedByteCount..<byteCount])
            switch bytes[13] {
            case 0x11 where addresses.count >= 12:
                self = .complete(
                    byteCount: byteCount, client: SocketAddress(host: addresses[0..<4], port: addresses[8..<10]))
            case 0x21 where addresses.count >= 36:
                self = .complete(
                    byteCount: byteCount, client: SocketAddress(host: addresses[0..<16], port: addresses[32..<34]))
            case 0x11, 0x21: self = .refused(.short)
            // The address of another family cannot be used, but the protocol requires accepting the connection.
            default: self = .complete(byteCount: byteCount, client: nil)
            }
        default: self = .refused(.command)
        }
    }

    /// Parses `PROXY TCP4 192.0.2.7 192.0.2.1 4000 7000`, `TCP6`, or `UNKNOWN` with any text after it.
    private static func line(_ bytes: UnsafeRawBufferPointer) -> ProxyHeader {
        let known = bytes.prefix(lineByteCount)
        guard let end = known.firstIndex(where: { $0 == 0x0D || $0 == 0x0A }) else {
            guard bytes.count < lineByteCount else { return .refused(.line) }
            return .incomplete(byteCount: max(bytes.count + 1, leastByteCount))
        }
        guard known[end] == 0x0D, end + 1 < lineByteCount else { return .refused(.line) }
        guard end + 1 < bytes.count else { return .incomplete(byteCount: end + 2) }
        guard bytes[end + 1] == 0x0A else { return .refused(.line) }
        let text = String(decoding: bytes[lineStart.count..<end], as: UTF8.self)
        let words = text.split(separator: " ", omittingEmptySubsequences: false)
        if words[0] == "UNKNOWN" { return .complete(byteCount: end + 2, client: nil) }
        let families = ["TCP4": AF_INET, "TCP6": AF_INET6]
        guard words.count == 5, let family = families[String(words[0])],
            let host = SocketAddress.bytes(of: words[1], family), SocketAddress.bytes(of: words[2], family) != nil,
            let source = port(words[3]), port(words[4]) != nil
        else { return .refused(.line) }
        let digits = [UInt8(source >> 8), UInt8(truncatingIfNeeded: source)]
        let client = host.withUnsafeBytes { host in
            digits.withUnsafeBytes { SocketAddress(host: host[...], port: $0[...]) }
        }
        return .complete(byteCount: end + 2, client: client)
    }

    private static func port(_ text: Substring) -> UInt16? {
        guard let port = UInt16(text), "\(port)" == text else { return nil }
        return port
    }
}

extension ProxyHeader.Fault: CustomStringConvertible {
    var description: String {
        switch self {
        case .missing:
            "its first bytes are no PROXY header: configure the balancer to send the PROXY protocol, version 1 or 2"
        case .line: "its PROXY line of version 1 cannot be read"
        case .otherVersion: "its binary PROXY header is of a version other than 2"
        case .tooLong: "its PROXY header is longer than \(Limits.proxyHeaderByteCount) bytes"
        case .short: "its PROXY header is too short for its addresses"
        case .command: "its PROXY header has an unknown command"
        }
    }
}

extension SocketAddress {
    /// Reads a numeric address of a family; returns its 4 or 16 bytes.
    static func bytes(of text: some StringProtocol, _ family: CInt) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: family == AF_INET ? 4 : 16)
        // A zero byte would truncate the text.
        guard !text.utf8.contains(0), inet_pton(family, String(text), &bytes) == 1 else { return nil }
        return bytes
    }

    /// Creates an address from 4 or 16 bytes and a two-byte port in network order; fails for other sizes.
    init?(host: Slice<UnsafeRawBufferPointer>, port: Slice<UnsafeRawBufferPointer>) {
        guard port.count == 2 else { return nil }
        let port = (UInt16(port[port.startIndex]) << 8 | UInt16(port[port.startIndex + 1])).bigEndian
        var storage = sockaddr_storage()
        let isKnown = withUnsafeMutableBytes(of: &storage) { bytes in
            switch host.count {
            case 4:
                var address = sockaddr_in()
                address.sin_family = sa_family_t(AF_INET)
                address.sin_port = port
                withUnsafeMutableBytes(of: &address.sin_addr) { $0.copyBytes(from: host) }
                withUnsafeBytes(of: address) { bytes.copyMemory(from: $0) }
            case 16:
                var address = sockaddr_in6()
                address.sin6_family = sa_family_t(AF_INET6)
                address.sin6_port = port
                withUnsafeMutableBytes(of: &address.sin6_addr) { $0.copyBytes(from: host) }
                withUnsafeBytes(of: address) { bytes.copyMemory(from: $0) }
            default: return false
            }
            return true
        }
        guard isKnown else { return nil }
        self.init(&storage)
    }
}
