internal import Glibc
internal import Platform

/// Why nothing listens on an address; the text names the address and what to do.
package struct ListenFailure: Error, Equatable, CustomStringConvertible {
    package let description: String
    init(_ description: String) { self.description = description }
}

/// A bound and listening TCP socket that shares its port with the other loops' sockets (SO_REUSEPORT).
///
/// Closed when the value dies, unless a server has taken it over.
package struct ListeningSocket: ~Copyable, Sendable {
    /// Where it listens, with the real port if 0 was asked for.
    package let address: SocketAddress
    /// -1 once it was taken.
    private var descriptor: CInt

    /// Listens on `address`: `host:port`, `[IPv6]:port`, or `:port` for all interfaces; port 0 picks a free one.
    ///
    /// Refused if anybody listens there already, be it with SO_REUSEPORT: a second gateway must not quietly take half
    /// of the first one's connections.
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
            throw ListenFailure("\(text): the system does not tell where it listens")
        }
        (descriptor, self.address) = (opened, address)
    }

    /// One socket for each of `count` loops, all on the port that the first one got.
    ///
    /// They come in the order of the loops; the caller hands each to its own.
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

    /// Gives the descriptor to a new owner.
    consuming func take() -> CInt {
        let taken = descriptor
        descriptor = -1
        return taken
    }

    /// A listening socket that can lie in an array and go to another thread; taken once.
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

    /// The host, empty for all interfaces, and the port of `host:port`.
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
        // A bind that does not share fails where a sharing one would join in.
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
