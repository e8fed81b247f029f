internal import Glibc

/// An address of a host and port, ready to connect to.
package struct RemoteAddress: Sendable, Equatable {
    private let bytes: [UInt8]
    private let family: CInt

    /// A failed lookup of a host name; the text describes the cause.
    package struct Failure: Error, Equatable, CustomStringConvertible {
        package let description: String
        package init(_ description: String) { self.description = description }
    }

    /// Returns the address of a numeric host, or `nil` for a name.
    package static func numeric(host: String, port: UInt16) -> RemoteAddress? {
        (try? resolve(host: host, port: port, flags: AI_NUMERICHOST))?.first
    }

    /// Calls the system's resolver, which may block for half a minute; `NameLookups` calls it on separate threads.
    ///
    /// - Returns: at least one address, in the resolver's order.
    package static func resolve(host: String, port: UInt16) throws(Failure) -> [RemoteAddress] {
        try resolve(host: host, port: port, flags: AI_ADDRCONFIG)
    }

    private static func resolve(host: String, port: UInt16, flags: CInt) throws(Failure) -> [RemoteAddress] {
        var hints = addrinfo()
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        hints.ai_flags = flags | AI_NUMERICSERV
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, "\(port)", &hints, &list)
        guard code == 0 else {
            let reason = gai_strerror(code).map { String(cString: $0) } ?? "error \(code)"
            throw Failure("the name \(host) cannot be resolved: \(reason)")
        }
        defer { freeaddrinfo(list) }
        var found: [RemoteAddress] = []
        var next = list
        while let entry = next?.pointee {
            if let address = entry.ai_addr {
                let bytes = UnsafeRawBufferPointer(start: address, count: Int(entry.ai_addrlen))
                found.append(RemoteAddress(bytes: Array(bytes), family: entry.ai_family))
            }
            next = entry.ai_next
        }
        guard !found.isEmpty else { throw Failure("the name \(host) has no address") }
        return found
    }

    /// The numeric host without brackets, in the same form as `SocketAddress`.
    package var host: String {
        var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        let result = bytes.withUnsafeBytes { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) {
                getnameinfo(
                    $0.baseAddress, socklen_t(bytes.count), &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST)
            }
        }
        guard result == 0 else { return "" }
        return text.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } ?? "" }
    }

    /// Opens a non-blocking socket and starts to connect it.
    package func beginConnecting() throws(SystemError) -> CInt {
        let kind = CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        let descriptor = socket(family, kind, 0)
        guard descriptor >= 0 else { throw .last("socket") }
        var one: CInt = 1
        setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<CInt>.size))
        let result = bytes.withUnsafeBytes { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) {
                connect(descriptor, $0.baseAddress, socklen_t(bytes.count))
            }
        }
        guard result == 0 || errno == EINPROGRESS else {
            let failure = SystemError.last("connect")
            close(descriptor)
            throw failure
        }
        return descriptor
    }
}
