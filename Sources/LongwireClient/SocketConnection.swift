#if canImport(Cryptography)
internal import Cryptography
#endif
#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

/// One connection to a gateway over a non-blocking socket, plain or TLS.
///
/// Confined to the client's thread.
final class SocketConnection {
    struct Failure: Error {
        let reason: String
    }

    enum Progress {
        case pending
        case connected
    }

    private enum Phase { case connecting, handshake, open }

    private(set) var descriptor: CInt = -1
    private let endpoint: Endpoint
    private var phase = Phase.connecting
    /// Addresses of the name that were not tried yet, the next one last.
    private var candidates: [[UInt8]]
    private var outbox: [UInt8] = []
    /// The last read stopped at its bound, so the socket may be silent although there is more.
    private(set) var hasMoreToRead = false
    private let trust: Trust?
    #if canImport(Cryptography)
    private var tls: TLSSession?
    #endif

    /// TLS is wanted; trust the system's authorities or those of one PEM file.
    struct Trust {
        var certificatesPath: String?
    }

    /// Resolves the name, which may block, and begins to connect.
    init(to endpoint: Endpoint, trust: Trust?) throws(Failure) {
        self.endpoint = endpoint
        self.trust = trust
        candidates = try Self.resolve(endpoint).reversed()
        #if !canImport(Cryptography)
        if trust != nil { throw Failure(reason: "this build has no TLS; use a plain listener") }
        #endif
        try connectToNext(after: "no address")
    }

    deinit { close() }

    var pollEvents: Int16 {
        switch phase {
        case .connecting: Int16(POLLOUT)
        case .handshake: handshakeEvents
        case .open: Int16(POLLIN) | (outbox.isEmpty ? 0 : Int16(POLLOUT))
        }
    }
    private var handshakeEvents = Int16(POLLOUT)

    var isOpen: Bool { phase == .open }

    // MARK: Connecting

    private static func resolve(_ endpoint: Endpoint) throws(Failure) -> [[UInt8]] {
        var hints = addrinfo()
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = System.streamType
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(endpoint.host, String(endpoint.port), &hints, &list)
        guard code == 0 else {
            throw Failure(reason: "cannot find \(endpoint.host): \(String(cString: gai_strerror(code)))")
        }
        defer { freeaddrinfo(list) }
        var addresses: [[UInt8]] = []
        var entry = list
        while let current = entry {
            let bytes = UnsafeRawBufferPointer(
                start: current.pointee.ai_addr, count: Int(current.pointee.ai_addrlen))
            addresses.append(Array(bytes))
            entry = current.pointee.ai_next
        }
        return addresses
    }

    private func connectToNext(after failure: String) throws(Failure) {
        var reason = failure
        while let address = candidates.popLast() {
            close()
            let family = address.withUnsafeBytes { $0.loadUnaligned(as: sockaddr.self).sa_family }
            descriptor = socket(CInt(family), System.streamType, 0)
            guard descriptor >= 0 else { throw Failure(reason: "no socket: \(System.describe(errno))") }
            System.configure(socket: descriptor)
            let result = address.withUnsafeBytes { bytes in
                connect(
                    descriptor, bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
            }
            if result == 0 || errno == EINPROGRESS || errno == EINTR { return }
            reason = System.describe(errno)
        }
        throw Failure(reason: "cannot connect to \(endpoint.host):\(endpoint.port): \(reason)")
    }

    /// The socket is ready for something while not yet open.
    func advance() throws(Failure) -> Progress {
        if phase == .connecting {
            var error: CInt = 0
            var size = socklen_t(MemoryLayout<CInt>.size)
            getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size)
            if error != 0 {
                try connectToNext(after: System.describe(error))
                return .pending
            }
            guard trust != nil else {
                phase = .open
                return .connected
            }
            try beginTLS()
        }
        guard phase == .handshake else { return .connected }
        return try continueTLS()
    }

    #if canImport(Cryptography)
    private func beginTLS() throws(Failure) {
        do throws(TLSFailure) {
            let context = try TLSContext(trusting: trust?.certificatesPath.map { .certificates(path: $0) } ?? .system)
            tls = try TLSSession(connecting: context, descriptor: descriptor, serverName: endpoint.host)
        } catch {
            throw Failure(reason: "TLS: \(error)")
        }
        phase = .handshake
    }

    private func continueTLS() throws(Failure) -> Progress {
        switch tls?.handshake() {
        case .done, nil:
            phase = .open
            return .connected
        case .wantsRead: handshakeEvents = Int16(POLLIN)
        case .wantsWrite: handshakeEvents = Int16(POLLOUT)
        case .failed(let reason): throw Failure(reason: "TLS with \(endpoint.host) failed: \(reason)")
        }
        return .pending
    }
    #else
    private func beginTLS() throws(Failure) { throw Failure(reason: "this build has no TLS") }
    private func continueTLS() throws(Failure) -> Progress { .connected }
    #endif

    // MARK: Bytes

    /// What has arrived, up to a few reads' worth; empty: nothing now.
    func read() throws(Failure) -> [UInt8] {
        var bytes: [UInt8] = []
        hasMoreToRead = false
        do throws(Failure) {
            while bytes.count < 4 * Limits.readByteCount {
                guard let part = try readOnce() else { return bytes }
                bytes += part
            }
        } catch {
            // What came before the end counts: most often it is a Close that says why.
            guard !bytes.isEmpty else { throw error }
            pendingEnd = error
        }
        hasMoreToRead = true
        return bytes
    }

    /// `nil`: nothing more now.
    private func readOnce() throws(Failure) -> [UInt8]? {
        if let pendingEnd { throw pendingEnd }
        var failure: Failure?
        let part = [UInt8](unsafeUninitializedCapacity: Limits.readByteCount) { buffer, count in
            let result = receive(into: UnsafeMutableRawBufferPointer(buffer))
            if result > 0 {
                count = result
            } else if result == 0 {
                failure = pendingEnd ?? Failure(reason: "the gateway closed the connection")
            } else if !System.isWouldBlock(-result) {
                failure = pendingEnd ?? Failure(reason: "the connection broke: \(System.describe(CInt(-result)))")
            }
        }
        if let failure { throw failure }
        return part.isEmpty ? nil : part
    }

    private var pendingEnd: Failure?

    /// Bytes, 0 at the end, or a negative errno.
    private func receive(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        #if canImport(Cryptography)
        if let tls {
            switch tls.read(into: buffer) {
            case .bytes(let count): return count
            case .wantsRead, .wantsWrite: return -Int(EAGAIN)
            case .ended: return 0
            case .failed(let reason):
                pendingEnd = Failure(reason: "the connection broke: \(reason)")
                return 0
            }
        }
        #endif
        return System.receive(into: buffer, from: descriptor)
    }

    func write(_ bytes: [UInt8]) throws(Failure) {
        outbox += bytes
        guard outbox.count <= Limits.outboxByteCount else {
            throw Failure(reason: "the gateway does not read what it is sent")
        }
        try flush()
    }

    func flush() throws(Failure) {
        while !outbox.isEmpty {
            let result = outbox.withUnsafeBytes { transmit($0) }
            if result > 0 {
                outbox.removeFirst(result)
            } else if result < 0, System.isWouldBlock(-result) {
                return
            } else {
                throw pendingEnd ?? Failure(reason: "the connection broke: \(System.describe(CInt(-result)))")
            }
        }
    }

    private func transmit(_ bytes: UnsafeRawBufferPointer) -> Int {
        #if canImport(Cryptography)
        if let tls {
            switch tls.write(bytes) {
            case .bytes(let count): return count
            case .wantsRead, .wantsWrite: return -Int(EAGAIN)
            case .ended: return -Int(EPIPE)
            case .failed(let reason):
                pendingEnd = Failure(reason: "the connection broke: \(reason)")
                return -Int(EPIPE)
            }
        }
        #endif
        return System.send(bytes, to: descriptor)
    }

    /// Ends our side, waits a moment for the other to end its own, then closes.
    func closeGracefully() {
        defer { close() }
        guard isOpen, outbox.isEmpty, pendingEnd == nil else { return }
        #if canImport(Cryptography)
        tls?.sayGoodbye()
        tls = nil
        #endif
        guard shutdown(descriptor, System.endOfWriting) == 0 else { return }
        let end = System.now().monotonic + Limits.lingerMilliseconds
        var rest = [UInt8](repeating: 0, count: Limits.readByteCount)
        while true {
            let left = end - System.now().monotonic
            var wanted = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard left > 0, poll(&wanted, 1, CInt(left)) == 1 else { return }
            guard rest.withUnsafeMutableBytes({ System.receive(into: $0, from: descriptor) }) > 0 else { return }
        }
    }

    func close() {
        guard descriptor >= 0 else { return }
        #if canImport(Cryptography)
        tls?.sayGoodbye()
        tls = nil
        #endif
        _ = System.closeDescriptor(descriptor)
        descriptor = -1
    }
}
