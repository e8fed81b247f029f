internal import Glibc
internal import TextForms

/// An IPv4 address and port, resolved once at the start.
struct Endpoint: Equatable, Sendable {
    /// In host order.
    var address: UInt32
    var port: UInt16
    var text: String
    /// As it was given: what the listener's certificate must be for.
    var host: String
    /// Speaks TLS.
    var isSecure = false

    var isLoopback: Bool { address >> 24 == 127 }

    init(address: UInt32, port: UInt16) {
        (self.address, self.port) = (address, port)
        let parts = [24, 16, 8, 0].map { String(address >> UInt32($0) & 0xFF) }
        host = parts.joined(separator: ".")
        text = host + ":\(port)"
    }

    /// Reads `host:port`, with one of `schemes` and `://` before it or without; a name is resolved.
    ///
    /// - Throws: a usage failure naming `option` when the form is wrong or the name has no IPv4 address.
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
        // A gateway that listens on every address is reached on this machine's own.
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

    /// What may stand before `://`.
    struct Schemes {
        var plain: String
        var secure: String

        /// A listener of devices or senders.
        static let frames = Schemes(plain: "tcp", secure: "tls")
        /// The push API, and the admin listener.
        static let http = Schemes(plain: "http", secure: "https")

        var forms: String { "host:port, or \(secure)://host:port for TLS" }
    }

    /// The address that the `index`-th connection to a loopback endpoint comes from; 0: let the kernel choose.
    func source(of index: Int) -> UInt32 {
        guard isLoopback else { return 0 }
        // 127.1.0.1 and up, away from the addresses that people listen on; at most a thousand connections each.
        return 0x7F01_0001 + UInt32(truncatingIfNeeded: index / Limits.connectionsPerSource % 60_000)
    }
}

/// Non-blocking TCP sockets.
enum Socket {
    enum Outcome: Equatable {
        case bytes(Int)
        case wouldBlock
        case ended
        /// With the words for it.
        case failed(String)
    }

    private static let bindAddressNoPort: CInt = 24

    /// Begins to connect; readiness to write tells the end, `pendingError` how it went.
    ///
    /// - Returns: the descriptor, or `nil` with the error number.
    static func connect(to endpoint: Endpoint, from source: UInt32) -> (descriptor: CInt, error: CInt) {
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(AF_INET, kind, 0)
        guard descriptor >= 0 else { return (-1, errno) }
        set(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY)
        if source != 0 {
            // With this option bind() takes no port yet, so the same port serves every source address.
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

    /// The error that a connection attempt ended with; 0: none.
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
