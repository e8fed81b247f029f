internal import CLibevent
internal import Glibc

/// The header of the PROXY protocol, version 2: a balancer's word on whose connection it passes on, before the first byte.
///
/// Source: "The PROXY protocol", versions 1 & 2, section 2.2 (haproxy.org/download/3.0/doc/proxy-protocol.txt).
enum ProxyHeader: Equatable {
    /// The header has this many bytes, as far as is known yet.
    case incomplete(byteCount: Int)
    /// The first bytes are the header; without a client the balancer speaks for itself, as its health checks do.
    case complete(byteCount: Int, client: SocketAddress?)
    case refused(Fault)

    enum Fault: Equatable {
        /// The bytes begin otherwise.
        case missing
        /// The readable form of version 1.
        case version1
        case otherVersion
        case tooLong
        /// The addresses do not fit into the length.
        case short
        case command
    }

    /// Signature, version and command, family, length.
    static let fixedByteCount = 16
    private static let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]
    private static let version1 = Array("PROXY ".utf8)

    init(_ bytes: UnsafeRawBufferPointer) {
        let known = min(bytes.count, Self.signature.count)
        guard bytes[..<known].elementsEqual(Self.signature[..<known]) else {
            let start = bytes.prefix(Self.version1.count)
            self = .refused(start.elementsEqual(Self.version1) ? .version1 : .missing)
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
            // Of other families the address says nothing here; the protocol asks to take the connection all the same.
            default: self = .complete(byteCount: byteCount, client: nil)
            }
        default: self = .refused(.command)
        }
    }
}

extension ProxyHeader.Fault: CustomStringConvertible {
    var description: String {
        switch self {
        case .missing: "its first bytes are no PROXY header: let the balancer send PROXY protocol version 2"
        case .version1: "it sends PROXY protocol version 1: switch the balancer to version 2 (HAProxy: send-proxy-v2)"
        case .otherVersion: "its PROXY header is of a version other than 2"
        case .tooLong: "its PROXY header is longer than \(Limits.proxyHeaderByteCount) bytes"
        case .short: "its PROXY header is too short for its addresses"
        case .command: "its PROXY header has an unknown command"
        }
    }
}

extension SocketAddress {
    /// Reads 4 or 16 bytes of an address and two of a port, in network order; `nil` for other counts.
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
