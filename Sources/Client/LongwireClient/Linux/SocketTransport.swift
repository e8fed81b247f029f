// The Linux transport. An Apple build leaves this file out.
#if !canImport(Network)
internal import Cryptography
internal import Glibc

final class SocketTransport: ClientTransport {
    private enum Phase { case resolving, connecting, handshake, open }

    private let endpoint: Endpoint
    private let security: TransportSecurity?
    private let lookUp: NameLookUp
    private var phase = Phase.resolving
    private var descriptor: CInt = -1
    private var tls: TLSSession?
    private var handshakeEvents = Int16(POLLOUT)
    /// Addresses that were not tried yet, the next one last.
    private var candidates: [[UInt8]] = []
    private var addressDeadline: Int64 = 0
    private var outbox: [UInt8] = []
    private(set) var hasMoreToRead = false
    /// The reason why the connection ended; thrown once all earlier bytes have been read.
    private var end: TransportFailure?

    /// Starts a name lookup on another thread, which calls `wake` at the end; the socket is polled after that.
    init(
        to endpoint: Endpoint, security: TransportSecurity?, wake: @escaping @Sendable () -> Void,
        within allowance: ThreadAllowance = .shared, known: KnownAddresses = .shared,
        resolve: @escaping @Sendable (Endpoint) -> NameLookUp.Addresses = { SocketTransport.addresses(of: $0) }
    ) throws(TransportFailure) {
        (self.endpoint, self.security) = (endpoint, security)
        lookUp = try NameLookUp(
            of: endpoint, literal: try? Self.addresses(of: endpoint, AI_NUMERICHOST).get(), within: allowance,
            known: known, resolve: resolve, wake: wake)
    }

    deinit { close() }

    var isOpen: Bool { phase == .open }

    var interest: PollInterest? {
        let events: Int16? =
            switch phase {
            case .resolving: nil
            case .connecting: Int16(POLLOUT)
            case .handshake: handshakeEvents
            case .open: Int16(POLLIN) | (outbox.isEmpty ? 0 : Int16(POLLOUT))
            }
        return events.map { PollInterest(descriptor: descriptor, events: $0) }
    }

    var deadline: Int64? {
        phase == .resolving ? lookUp.deadline : phase == .connecting && !candidates.isEmpty ? addressDeadline : nil
    }

    // MARK: Connecting

    /// Resolves the name with getaddrinfo, which may block.
    static func addresses(of endpoint: Endpoint, _ flags: CInt = 0) -> NameLookUp.Addresses {
        var (hints, list) = (addrinfo(), nil as UnsafeMutablePointer<addrinfo>?)
        (hints.ai_flags, hints.ai_family, hints.ai_socktype) = (flags, AF_UNSPEC, CInt(SOCK_STREAM.rawValue))
        let code = getaddrinfo(endpoint.host, String(endpoint.port), &hints, &list)
        let reason = code == 0 ? "" : String(cString: gai_strerror(code))
        guard code == 0 else { return .failure(TransportFailure(reason: "cannot find \(endpoint.host): \(reason)")) }
        defer { freeaddrinfo(list) }
        let entries = sequence(first: list) { $0?.pointee.ai_next }.prefix { $0 != nil }.compactMap { $0?.pointee }
        return .success(entries.map { Array(UnsafeRawBufferPointer(start: $0.ai_addr, count: Int($0.ai_addrlen))) })
    }

    private func connectToNext(after failure: String) throws(TransportFailure) {
        var reason = failure
        while let address = candidates.popLast() {
            close()
            addressDeadline = System.now().monotonic + Limits.addressMilliseconds
            let family = address.withUnsafeBytes { $0.loadUnaligned(as: sockaddr.self).sa_family }
            descriptor = socket(CInt(family), CInt(SOCK_STREAM.rawValue), 0)
            guard descriptor >= 0 else { throw TransportFailure(reason: "no socket: \(System.describe(errno))") }
            System.makeNonBlocking(descriptor)
            var one: CInt = 1
            setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<CInt>.size))
            let result = address.withUnsafeBytes {
                connect(descriptor, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
            }
            if result == 0 || errno == EINPROGRESS || errno == EINTR { return }
            reason = System.describe(errno)
        }
        throw TransportFailure(reason: "cannot connect to \(endpoint): \(reason)")
    }

    func serve() throws(TransportFailure) {
        if phase == .resolving {
            guard let addresses = lookUp.result else { return }
            (candidates, phase) = (try addresses.get().reversed(), .connecting)
            try connectToNext(after: "no address")
        }
        if phase == .connecting {
            guard isReady(for: POLLOUT, within: 0) else {
                // An unresponsive address must not use up the time of the others.
                if let deadline, System.now().monotonic >= deadline { try connectToNext(after: "no answer") }
                return
            }
            var (error, size) = (CInt(0), socklen_t(MemoryLayout<CInt>.size))
            getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size)
            guard error == 0 else { return try connectToNext(after: System.describe(error)) }
            if let security { try beginTLS(security) } else { phase = .open }
        }
        if phase == .handshake { try continueTLS() }
        if phase == .open { try flush() }
    }

    private func beginTLS(_ security: TransportSecurity) throws(TransportFailure) {
        do throws(TLSFailure) {
            let trust = security.trustedCertificatesPath.map { TLSContext.Trust.certificates(path: $0) } ?? .system
            let context = try TLSContext(trusting: trust, showing: security.certificatePath, keyPath: security.keyPath)
            tls = try TLSSession(connecting: context, descriptor: descriptor, serverName: endpoint.host)
        } catch {
            throw TransportFailure(reason: "TLS: \(error)")
        }
        phase = .handshake
    }

    private func continueTLS() throws(TransportFailure) {
        guard let tls, let security else { return }
        switch tls.handshake() {
        case .done:
            guard security.pins.isEmpty || tls.chainDigests.contains(where: security.pins.contains) else {
                throw TransportFailure(reason: "TLS with \(endpoint.host) failed: no certificate of its is pinned")
            }
            phase = .open
        case .wantsRead: handshakeEvents = Int16(POLLIN)
        case .wantsWrite: handshakeEvents = Int16(POLLOUT)
        case .failed(let reason): throw TransportFailure(reason: "TLS with \(endpoint.host) failed: \(reason)")
        }
    }

    // MARK: Bytes

    func read() throws(TransportFailure) -> [UInt8] {
        var bytes: [UInt8] = []
        while end == nil, bytes.count < 4 * Limits.readByteCount {
            let part = [UInt8](unsafeUninitializedCapacity: Limits.readByteCount) { buffer, count in
                count = receive(into: UnsafeMutableRawBufferPointer(buffer))
            }
            guard !part.isEmpty else { break }
            bytes += part
        }
        // Bytes before the end are returned first: most often they are a Close with the reason.
        if bytes.isEmpty, let end { throw end }
        hasMoreToRead = end != nil || bytes.count >= 4 * Limits.readByteCount
        return bytes
    }

    /// Returns 0 when no bytes are available now, or the connection ended and `end` is set.
    private func receive(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        if let tls { return settle(tls.read(into: buffer)) }
        let count = recv(descriptor, buffer.baseAddress, buffer.count, 0)
        return settle(count == 0 ? .ended : outcome(of: count))
    }

    func write(_ bytes: [UInt8]) throws(TransportFailure) {
        outbox += bytes
        guard outbox.count <= Limits.outboxByteCount else {
            throw TransportFailure(reason: "the gateway does not read what it is sent")
        }
        try flush()
    }

    private func flush() throws(TransportFailure) {
        while !outbox.isEmpty {
            let count = outbox.withUnsafeBytes { bytes in
                if let tls { return settle(tls.write(bytes)) }
                // MSG_NOSIGNAL: a closed peer is an error, not a signal.
                return settle(outcome(of: send(descriptor, bytes.baseAddress, bytes.count, CInt(MSG_NOSIGNAL))))
            }
            if count == 0 { break }
            outbox.removeFirst(count)
        }
        if let end, !outbox.isEmpty { throw end }
    }

    private func outcome(of count: Int) -> TLSSession.Transfer {
        if count >= 0 { return .bytes(count) }
        return [EAGAIN, EWOULDBLOCK, EINTR].contains(errno) ? .wantsRead : .failed(System.describe(errno))
    }

    private func settle(_ transfer: TLSSession.Transfer) -> Int {
        switch transfer {
        case .bytes(let count): return count
        case .wantsRead, .wantsWrite: break
        case .ended: end = TransportFailure(reason: "the gateway closed the connection")
        case .failed(let reason): end = TransportFailure(reason: "the connection broke: \(reason)")
        }
        return 0
    }

    // MARK: Closing

    /// Waits for the gateway to close its side, because a close with unread bytes would reset the connection.
    func closeGracefully() {
        defer { close() }
        guard isOpen, outbox.isEmpty, end == nil else { return }
        tls?.sayGoodbye()
        tls = nil
        guard shutdown(descriptor, CInt(SHUT_WR)) == 0 else { return }
        let deadline = System.now().monotonic + Limits.lingerMilliseconds
        var rest = [UInt8](repeating: 0, count: Limits.readByteCount)
        while isReady(for: POLLIN, within: deadline - System.now().monotonic),
            recv(descriptor, &rest, rest.count, 0) > 0
        {}
    }

    private func isReady(for events: CInt, within milliseconds: Int64) -> Bool {
        var wanted = pollfd(fd: descriptor, events: Int16(events), revents: 0)
        return milliseconds >= 0 && poll(&wanted, 1, CInt(milliseconds)) == 1
    }

    private func close() {
        tls?.sayGoodbye()
        tls = nil
        if descriptor >= 0 { _ = Glibc.close(descriptor) }
        descriptor = -1
    }
}
#endif
