internal import Glibc
internal import Platform

/// The failure to listen on an address; the text names the address and the remedy.
package struct ListenFailure: Error, Equatable, CustomStringConvertible {
    package let description: String
    init(_ description: String) { self.description = description }
}

/// A listening TCP socket that shares its port with other loops' sockets (SO_REUSEPORT); closed with the value unless taken.
package struct ListeningSocket: ~Copyable, Sendable {
    /// The bound address, with the actual port if port 0 was requested.
    package let address: SocketAddress
    private var descriptor: CInt

    /// Listens on `host:port`, `[IPv6]:port`, or `:port` for all interfaces.
    ///
    /// Port 0 selects a free port. Fails if another socket already listens there, even with SO_REUSEPORT: a second gateway must
    /// not silently receive half of the first one's connections.
    package init(_ text: String) throws(ListenFailure) { try self.init(text, isFirst: true) }

    private init(_ text: String, isFirst: Bool) throws(ListenFailure) {
        let (host, port) = try Self.split(text)
        let candidates = try Self.resolve(host, port, text)
        defer { freeaddrinfo(candidates) }
        var failure = ListenFailure("\(text): the name has no address")
        var next: UnsafeMutablePointer<addrinfo>? = candidates
        while let candidate = next {
            do throws(ListenFailure) {
                self = try ListeningSocket(opening: candidate.pointee, text, isFirst: isFirst)
                return
            } catch {
                failure = error
            }
            next = candidate.pointee.ai_next
        }
        throw failure
    }

    private init(opening candidate: addrinfo, _ text: String, isFirst: Bool) throws(ListenFailure) {
        let opened = try Self.open(candidate, text, isFirst: isFirst)
        guard let address = SocketAddress.local(of: opened) else {
            Glibc.close(opened)
            throw ListenFailure("\(text): the system does not report the address of the socket")
        }
        (descriptor, self.address) = (opened, address)
    }

    /// Creates one socket for each of `count` loops, in their order and all on the first one's port.
    package static func group(_ text: String, count: Int) throws(ListenFailure) -> [Handle] {
        precondition(count > 0, "a group needs at least one socket")
        let first = try ListeningSocket(text)
        let address = first.address.description
        var handles = [Handle(first)]
        for _ in 1..<count { handles.append(Handle(try ListeningSocket(address, isFirst: false))) }
        return handles
    }

    deinit {
        if descriptor >= 0 { Glibc.close(descriptor) }
    }

    /// Returns the descriptor and passes its ownership to the caller.
    consuming func take() -> CInt {
        let taken = descriptor
        descriptor = -1
        return taken
    }

    /// A listening socket that can be stored in an array and moved to another thread; it can be taken once.
    package final class Handle: Sendable {
        package let address: SocketAddress
        private let socket: Lock<ListeningSocket?>

        package init(_ socket: consuming ListeningSocket) {
            address = socket.address
            self.socket = Lock(socket)
        }

        package func take() -> ListeningSocket {
            guard let socket = socket.withLock({ $0.take() }) else {
                preconditionFailure("a listening socket was taken twice")
            }
            return socket
        }
    }

    // MARK: Steps

    /// Returns the host, empty for all interfaces, and the port of `host:port`.
    static func split(_ text: String) throws(ListenFailure) -> (host: String, port: UInt16) {
        let hint = "expected host:port, [IPv6]:port or :port, for example 127.0.0.1:7000"
        guard let colon = text.lastIndex(of: ":") else { throw ListenFailure("\(text): \(hint)") }
        guard let port = UInt16(text[text.index(after: colon)...]) else {
            throw ListenFailure("\(text): the port must be a number from 0 to 65535; \(hint)")
        }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
        } else if host.contains(":") {
            throw ListenFailure("\(text): an IPv6 address stands in brackets; \(hint)")
        }
        return (host == "*" ? "" : String(host), port)
    }

    private static func resolve(
        _ host: String, _ port: UInt16, _ text: String
    ) throws(ListenFailure) -> UnsafeMutablePointer<addrinfo> {
        var hints = addrinfo()
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV
        var result: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host.isEmpty ? nil : host, String(port), &hints, &result)
        guard code == 0, let result else {
            let reason = gai_strerror(code).map { String(cString: $0) } ?? "error \(code)"
            throw ListenFailure("\(text): the host cannot be resolved: \(reason)")
        }
        return result
    }

    private static func open(_ candidate: addrinfo, _ text: String, isFirst: Bool) throws(ListenFailure) -> CInt {
        // A bind without SO_REUSEPORT fails if another socket is bound there.
        if isFirst { Glibc.close(try bind(candidate, text, shared: false)) }
        let descriptor = try bind(candidate, text, shared: true)
        guard listen(descriptor, Limits.listenBacklogCount) == 0 else {
            let error = SystemError.last("listen")
            Glibc.close(descriptor)
            throw ListenFailure("\(text): \(error)")
        }
        return descriptor
    }

    private static func bind(_ candidate: addrinfo, _ text: String, shared: Bool) throws(ListenFailure) -> CInt {
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue) | CInt(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(candidate.ai_family, kind, 0)
        guard descriptor >= 0 else { throw ListenFailure("\(text): \(SystemError.last("socket"))") }
        var one: CInt = 1
        let size = socklen_t(MemoryLayout<CInt>.size)
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, size)
        if shared, setsockopt(descriptor, SOL_SOCKET, SO_REUSEPORT, &one, size) != 0 {
            let error = SystemError.last("SO_REUSEPORT")
            Glibc.close(descriptor)
            throw ListenFailure("\(text): \(error)")
        }
        guard Glibc.bind(descriptor, candidate.ai_addr, candidate.ai_addrlen) == 0 else {
            let error = SystemError.last("bind")
            Glibc.close(descriptor)
            if error.isAddressInUse {
                throw ListenFailure(
                    "\(text): the address is in use by another program; stop that one (ss -ltnp shows it) or "
                        + "configure another port")
            }
            throw ListenFailure("\(text): cannot be used to listen: \(error)")
        }
        return descriptor
    }
}
