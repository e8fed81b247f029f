// Connections over the machine's network: blocking calls with deadlines over non-blocking sockets, with or without TLS.

package import Cryptography
internal import Glibc
package import Platform

/// The credentials and TLS settings for all servers of a cluster.
package struct RedisAccess: Sendable {
    /// TLS settings: trusted authorities, server name and client certificate.
    package struct Security: Sendable {
        package var context: TLSContext
        /// The name required in the servers' certificates, or `nil` for the host of each address.
        package var serverName: String?

        /// - Parameters:
        ///   - caFile: the PEM certificates of the trusted authorities, or `nil` for the system's.
        ///   - serverName: the name required in the servers' certificates, or `nil` for the host of each address.
        ///   - certificate: the client's PEM chain and key, if the servers request a certificate.
        /// - Throws: when a file cannot be read or has no usable certificate.
        package init(
            caFile: String?, serverName: String? = nil, certificate: (path: String, keyPath: String?)? = nil
        ) throws(TLSFailure) {
            context = try TLSContext(
                trusting: caFile.map { .certificates(path: $0) } ?? .system, showing: certificate?.path,
                keyPath: certificate?.keyPath)
            self.serverName = serverName
        }
    }

    /// The user, or `nil` for the default user.
    package var user: String?
    /// The password, or `nil` for no authentication.
    package var password: String?
    package var security: Security?

    package init(user: String? = nil, password: String? = nil, security: Security? = nil) {
        (self.user, self.password, self.security) = (user, password, security)
    }
}

package final class RedisSockets: RedisNetwork {
    private let access: RedisAccess
    private let names: NameLookups

    package init(_ access: RedisAccess = RedisAccess(), names: NameLookups = .shared) {
        (self.access, self.names) = (access, names)
    }

    package func connect(
        to address: RedisAddress, timeoutMilliseconds: Int
    ) throws(RedisError) -> any RedisConnection {
        let deadline = monotonicMilliseconds + UInt64(max(timeoutMilliseconds, 1))
        let found: [RemoteAddress]
        do throws(RemoteAddress.Failure) {
            found = try names.resolve(
                host: address.host, port: address.port, timeoutMilliseconds: UInt64(max(timeoutMilliseconds, 1)))
        } catch { throw .unreachable(address, error.description) }
        var failure = RedisError.unreachable(address, "it has no address")
        for place in found {
            do throws(RedisError) {
                let connection = try SocketConnection(to: address, at: place, access.security, deadline: deadline)
                try authenticate(connection, address, deadline)
                return connection
            } catch { failure = error }
        }
        throw failure
    }

    private func authenticate(
        _ connection: SocketConnection, _ address: RedisAddress, _ deadline: UInt64
    ) throws(RedisError) {
        guard let password = access.password else { return }
        var command = RedisCommand("AUTH")
        if let user = access.user { command.append(user) }
        command.append(password)
        let now = monotonicMilliseconds
        do throws(RedisError) {
            let reply = try connection.run([command], timeoutMilliseconds: Int(deadline - min(now, deadline - 1)))
            if let fault = reply.first?.fault { throw .refused(address, fault) }
        } catch {
            connection.close()
            throw error
        }
    }

    package var monotonicMilliseconds: UInt64 { SystemClock.monotonicMilliseconds }
    package func sleep(milliseconds: Int) { Pause.milliseconds(UInt64(max(0, milliseconds))) }
}

private final class SocketConnection: RedisConnection {
    private let address: RedisAddress
    private var descriptor: CInt
    private var session: TLSSession?
    private var parser = ReplyParser()
    private var output: [UInt8] = []
    private var sentByteCount = 0
    private var replies: [RedisReply] = []
    private var replyCount = 0
    /// The readiness that the TLS session or the socket waits for, as `poll` events.
    private var awaited: Int32 = 0
    private let input = UnsafeMutableRawBufferPointer.allocate(byteCount: Limits.readByteCount, alignment: 16)

    init(
        to address: RedisAddress, at place: RemoteAddress, _ security: RedisAccess.Security?, deadline: UInt64
    ) throws(RedisError) {
        self.address = address
        do throws(SystemError) { descriptor = try place.beginConnecting() } catch {
            throw .unreachable(address, error.description)
        }
        do throws(RedisError) {
            guard try wait(for: POLLOUT, deadline) else { throw .unreachable(address, "no answer in time") }
            var code: CInt = 0
            var size = socklen_t(MemoryLayout<CInt>.size)
            getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &size)
            guard code == 0 else {
                throw .unreachable(address, SystemError(operation: "connect", code: code).description)
            }
            if let security { try secure(security, deadline) }
        } catch {
            close()
            throw error
        }
    }

    deinit {
        close()
        input.deallocate()
    }

    private func secure(_ security: RedisAccess.Security, _ deadline: UInt64) throws(RedisError) {
        let session: TLSSession
        do throws(TLSFailure) {
            session = try TLSSession(
                connecting: security.context, descriptor: descriptor, serverName: security.serverName ?? address.host)
        } catch { throw .unreachable(address, error.description) }
        self.session = session
        while true {
            switch session.handshake() {
            case .done: return
            case .wantsRead:
                guard try wait(for: POLLIN, deadline) else { throw .unreachable(address, "no TLS handshake in time") }
            case .wantsWrite:
                guard try wait(for: POLLOUT, deadline) else { throw .unreachable(address, "no TLS handshake in time") }
            case .failed(let reason): throw .unreachable(address, "TLS: \(reason)")
            }
        }
    }

    func close() {
        session = nil
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
    }

    // MARK: Commands

    func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
        let deadline = SystemClock.monotonicMilliseconds + UInt64(max(timeoutMilliseconds, 1))
        try begin(commands)
        do throws(RedisError) {
            while true {
                if let replies = try proceed() { return replies }
                guard try wait(for: awaited, deadline) else {
                    throw .timedOut(address, milliseconds: timeoutMilliseconds)
                }
            }
        } catch {
            close()
            throw error
        }
    }

    func begin(_ commands: [RedisCommand]) throws(RedisError) {
        guard descriptor >= 0 else { throw .broken(address, "it was closed before") }
        // Memory of an unusually large command is released.
        if output.capacity > 4 << 20 { output = [] } else { output.removeAll(keepingCapacity: true) }
        sentByteCount = 0
        for command in commands { command.encode(into: &output) }
        replies.removeAll()
        replyCount = commands.count
        do throws(RedisError) { awaited = try send() | POLLIN } catch {
            close()
            throw error
        }
    }

    func proceed() throws(RedisError) -> [RedisReply]? {
        guard descriptor >= 0 else { throw .broken(address, "it was closed before") }
        do throws(RedisError) {
            var interest: Int32 = 0
            if sentByteCount < output.count { interest |= try send() }
            interest |= try receive()
            awaited = interest
        } catch {
            close()
            throw error
        }
        guard replies.count == replyCount else { return nil }
        defer { (replies, replyCount) = ([], 0) }
        return replies
    }

    var interest: RedisInterest? { RedisInterest(descriptor: descriptor, events: Int16(awaited)) }

    /// Sends until the socket would block; returns the readiness to wait for, or 0.
    private func send() throws(RedisError) -> Int32 {
        while sentByteCount < output.count {
            let outcome = output.withUnsafeBytes { bytes in
                write(UnsafeRawBufferPointer(rebasing: bytes[sentByteCount...]))
            }
            switch outcome {
            case .bytes(let count): sentByteCount += count
            case .wantsRead: return POLLIN
            case .wantsWrite: return POLLOUT
            case .ended: throw .broken(address, "the server closed it")
            case .failed(let reason): throw .broken(address, reason)
            }
        }
        return 0
    }

    private func receive() throws(RedisError) -> Int32 {
        while replies.count < replyCount {
            switch read() {
            case .bytes(let byteCount):
                do throws(MalformedReply) {
                    try parser.feed(UnsafeRawBufferPointer(rebasing: input[..<byteCount]))
                    while let reply = try parser.next() {
                        guard replies.count < replyCount else {
                            throw MalformedReply(what: "a reply that nothing asked for")
                        }
                        replies.append(reply)
                    }
                } catch { throw .malformed(address, error.what) }
                // A short read has emptied a plain socket. A TLS session may hold more data.
                if session == nil, byteCount < input.count { return POLLIN }
            case .wantsRead: return POLLIN
            case .wantsWrite: return POLLOUT
            case .ended: throw .broken(address, "the server closed it")
            case .failed(let reason): throw .broken(address, reason)
            }
        }
        return 0
    }

    private func read() -> TLSSession.Transfer {
        if let session { return session.read(into: input) }
        while true {
            let count = recv(descriptor, input.baseAddress, input.count, 0)
            if count > 0 { return .bytes(count) }
            if count == 0 { return .ended }
            if errno == EINTR { continue }
            return errno == EAGAIN ? .wantsRead : .failed(SystemError.last("recv").description)
        }
    }

    private func write(_ bytes: UnsafeRawBufferPointer) -> TLSSession.Transfer {
        if let session { return session.write(bytes) }
        while true {
            let count = Glibc.send(descriptor, bytes.baseAddress, bytes.count, CInt(MSG_NOSIGNAL))
            if count >= 0 { return .bytes(count) }
            if errno == EINTR { continue }
            return errno == EAGAIN ? .wantsWrite : .failed(SystemError.last("send").description)
        }
    }

    /// Waits for readiness; returns `false` at the deadline.
    private func wait(for interest: Int32, _ deadline: UInt64) throws(RedisError) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(interest), revents: 0)
        while true {
            let now = SystemClock.monotonicMilliseconds
            guard now < deadline else { return false }
            let result = poll(&entry, 1, CInt(clamping: deadline - now))
            if result > 0 { return true }
            guard result == 0 || errno == EINTR else { throw .broken(address, SystemError.last("poll").description) }
        }
    }
}
