internal import Glibc
internal import TextForms

/// An IPv4 address and port, resolved once at the start.
struct Endpoint: Equatable, Sendable {
    /// The address in host byte order.
    var address: UInt32
    var port: UInt16
    var text: String
    /// The given host name, which the listener's certificate must match.
    var host: String
    var isSecure = false

    var isLoopback: Bool { address >> 24 == 127 }

    init(address: UInt32, port: UInt16) {
        (self.address, self.port) = (address, port)
        let parts = [24, 16, 8, 0].map { String(address >> UInt32($0) & 0xFF) }
        host = parts.joined(separator: ".")
        text = host + ":\(port)"
    }

    /// Parses `host:port`, optionally with one of `schemes` and `://` before it, and resolves the name.
    ///
    /// - Throws: a usage failure that names `option` for a malformed text or a name without an IPv4 address.
    init(_ given: String, for option: String, schemes: Schemes) throws(CommandFailure) {
        var text = given
        var isSecure = false
        if let mark = given.firstRange(of: "://") {
            let scheme = String(given[..<mark.lowerBound])
            guard scheme == schemes.plain || scheme == schemes.secure else {
                throw CommandFailure.usage("\(option) “\(given)”: write \(schemes.forms)")
            }
            isSecure = scheme == schemes.secure
            text = String(given[mark.upperBound...])
            if text.hasSuffix("/") { text.removeLast() }
        }
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]), port > 0 else {
            throw CommandFailure.usage("\(option) “\(given)”: write \(schemes.forms)")
        }
        var host = String(text[..<colon])
        // A gateway that listens on all addresses is reached on the loopback address.
        if host.isEmpty || host == "0.0.0.0" { host = "127.0.0.1" }
        var hints = addrinfo()
        hints.ai_family = AF_INET
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, nil, &hints, &list) == 0, let first = list else {
            throw CommandFailure.usage("\(option) “\(given)”: the host has no IPv4 address")
        }
        defer { freeaddrinfo(list) }
        let found = first.pointee.ai_addr.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
            UInt32(bigEndian: $0.pointee.sin_addr.s_addr)
        }
        self.init(address: found, port: port)
        (self.host, self.isSecure) = (host, isSecure)
    }

    struct Schemes {
        var plain: String
        var secure: String

        static let frames = Schemes(plain: "tcp", secure: "tls")
        static let http = Schemes(plain: "http", secure: "https")

        var forms: String { "host:port, or \(secure)://host:port for TLS" }
    }

    /// Returns the source address of the `index`-th connection to a loopback endpoint; 0 leaves the choice to the kernel.
    func source(of index: Int) -> UInt32 {
        guard isLoopback else { return 0 }
        // Source addresses begin at 127.1.0.1, where services rarely listen. Each address has at most 1,000 connections.
        return 0x7F01_0001 + UInt32(truncatingIfNeeded: index / Limits.connectionsPerSource % 60_000)
    }
}

enum Socket {
    enum Outcome: Equatable {
        case bytes(Int)
        case wouldBlock
        case ended
        case failed(String)
    }

    private static let bindAddressNoPort: CInt = 24

    /// Starts to connect.
    ///
    /// The socket becomes writable at the end, and `pendingError` returns the result.
    ///
    /// - Returns: the descriptor, or -1 with the error number.
    static func connect(to endpoint: Endpoint, from source: UInt32) -> (descriptor: CInt, error: CInt) {
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(AF_INET, kind, 0)
        guard descriptor >= 0 else { return (-1, errno) }
        set(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY)
        if source != 0 {
            // With this option bind() does not choose a port yet, so each source address can use the same ports.
            set(descriptor, CInt(IPPROTO_IP), bindAddressNoPort)
            var local = socketAddress(source, port: 0)
            let result = withUnsafePointer(to: &local) { local in
                local.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
            guard result == 0 else { return abandon(descriptor) }
        }
        var remote = socketAddress(endpoint.address, port: endpoint.port)
        let result = withUnsafePointer(to: &remote) { remote in
            remote.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 || errno == EINPROGRESS else { return abandon(descriptor) }
        return (descriptor, 0)
    }

    /// Returns the error of a connection attempt, or 0.
    static func pendingError(_ descriptor: CInt) -> CInt {
        var value: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &value, &size) == 0 else { return errno }
        return value
    }

    @inline(__always)
    static func receive(_ descriptor: CInt, into start: UnsafeMutableRawPointer, _ capacity: Int) -> Outcome {
        let count = recv(descriptor, start, capacity, 0)
        if count > 0 { return .bytes(count) }
        if count == 0 { return .ended }
        return errno == EAGAIN || errno == EINTR ? .wouldBlock : .failed(errorText(errno))
    }

    @inline(__always)
    static func send(_ descriptor: CInt, _ start: UnsafeRawPointer, _ count: Int) -> Outcome {
        let sent = Glibc.send(descriptor, start, count, CInt(MSG_NOSIGNAL))
        if sent >= 0 { return .bytes(sent) }
        return errno == EAGAIN || errno == EINTR ? .wouldBlock : .failed(errorText(errno))
    }

    private static func set(_ descriptor: CInt, _ level: CInt, _ option: CInt) {
        var on: CInt = 1
        _ = setsockopt(descriptor, level, option, &on, socklen_t(MemoryLayout<CInt>.size))
    }

    private static func abandon(_ descriptor: CInt) -> (descriptor: CInt, error: CInt) {
        let number = errno
        _ = close(descriptor)
        return (-1, number)
    }

    private static func socketAddress(_ address: UInt32, port: UInt16) -> sockaddr_in {
        var result = sockaddr_in()
        result.sin_family = sa_family_t(AF_INET)
        result.sin_port = port.bigEndian
        result.sin_addr.s_addr = address.bigEndian
        return result
    }
}
