internal import COpenSSL
internal import Glibc

/// An OpenSSL socket BIO that the sessions of one thread share.
///
/// OpenSSL's default is one BIO per session: a structure and a lock of 230 bytes, which are unused while the connection is idle.
/// The BIO also limits the `recv` calls of one `TLSSession.read`: within a single `SSL_read`, OpenSSL processes all available
/// records without data. A peer that sends them faster than they are processed would otherwise occupy the thread.
///
/// Not thread-safe: a session must call `unshare` before it moves to another thread.
package final class TLSSocket {
    private let raw: OpaquePointer
    /// The `recv` calls that remain to the current read.
    private let callsLeft: UnsafeMutablePointer<CChar>

    /// The `recv` calls of one read, without those that return less than requested.
    ///
    /// OpenSSL needs two calls for each record. A read thus processes at most 11 records without data before one with data.
    private static let readCalls: CChar = 24

    /// Fails when memory is exhausted; sessions then keep their own BIOs.
    package init?() {
        guard let raw = BIO_new(BIO_s_socket()) else { return nil }
        self.raw = raw
        callsLeft = .allocate(capacity: 1)
        callsLeft.initialize(to: Self.readCalls)
        BIO_set_callback_arg(raw, callsLeft)
        BIO_set_callback_ex(raw) { bio, operation, _, wanted, _, _, result, received in
            guard operation & ~BIO_CB_RETURN == BIO_CB_READ, let callsLeft = BIO_get_callback_arg(bio) else {
                return Int(result)
            }
            guard operation == BIO_CB_READ else {
                // A record that arrives in small pieces needs more calls, each of which empties the socket.
                if let received, received.pointee < wanted { callsLeft.pointee += 1 }
                return Int(result)
            }
            guard callsLeft.pointee > 0 else {
                callsLeft.pointee = -1
                return -1
            }
            callsLeft.pointee -= 1
            return 1
        }
    }

    deinit {
        BIO_free(raw)
        callsLeft.deallocate()
    }

    /// Whether the last read was ended because it needed too many calls.
    fileprivate var isExhausted: Bool { callsLeft.pointee < 0 }

    fileprivate func beginRead() { callsLeft.pointee = Self.readCalls }

    /// Makes the session read and write through this BIO, with one reference for each direction.
    fileprivate func lend(to session: OpaquePointer) {
        BIO_up_ref(raw)
        SSL_set0_rbio(session, raw)
        BIO_up_ref(raw)
        SSL_set0_wbio(session, raw)
    }

    /// Selects the socket of the next call and clears the flags of the previous one.
    fileprivate func point(at descriptor: CInt) {
        BIO_int_ctrl(raw, BIO_C_SET_FD, Int(BIO_NOCLOSE), descriptor)
        BIO_clear_flags(raw, Self.flags)
    }

    /// The flags BIO_FLAGS_RWS and BIO_FLAGS_SHOULD_RETRY (try again) and BIO_FLAGS_IN_EOF (end of the stream).
    private static let flags: CInt = 0x0F | 0x800
}

/// A TLS connection over a non-blocking socket owned by the caller; only one thread may use it at a time.
package final class TLSSession {
    package enum Progress: Equatable, Sendable {
        case done
        case wantsRead
        case wantsWrite
        case failed(String)
    }

    package enum Transfer: Equatable, Sendable {
        case bytes(Int)
        case wantsRead
        case wantsWrite
        /// The peer sent close_notify.
        case ended
        case failed(String)
    }

    /// The cause of a failed handshake, as far as an operator can act on it.
    package enum Failure: Sendable, Equatable, CaseIterable {
        /// The peer sent no certificate, or one that was rejected.
        case certificate
        /// The peer sent an alert, for example because it rejected this side's certificate.
        case refusedByPeer
        case ended
        /// The peer does not use TLS, or no version or cipher is common to both sides.
        case form
    }

    private let raw: OpaquePointer
    /// The thread's shared BIO, or `nil` while the session has its own.
    private var socket: TLSSocket?
    private var descriptor: CInt
    /// The context, kept alive because OpenSSL's callbacks use its keys and names.
    private let context: TLSContext
    /// Whether this is the server side of a connection without a pre-shared key.
    package let isServing: Bool
    /// Whether a `HandshakeGate` counts this session's handshake.
    package var isGated = false
    /// Whether the gate's list of handshakes for a later turn includes this session.
    package var isLate = false
    package private(set) var failure = Failure.ended
    /// The `errno` of the last failed socket call, or 0.
    package private(set) var systemErrorCode: CInt = 0

    package init(accepting context: TLSContext, descriptor: CInt) throws(TLSFailure) {
        raw = try Self.make(context, descriptor)
        self.descriptor = descriptor
        (self.context, isServing) = (context, context.presharedKey == nil)
        SSL_set_accept_state(raw)
    }

    /// Creates the client side.
    ///
    /// `serverName` is sent as SNI and must be in the certificate if the context verifies it. An IP address is compared with the
    /// certificate's addresses and not sent.
    package init(connecting context: TLSContext, descriptor: CInt, serverName: String) throws(TLSFailure) {
        raw = try Self.make(context, descriptor)
        self.descriptor = descriptor
        (self.context, isServing) = (context, false)
        SSL_set_connect_state(raw)
        // A server without the key would have to present a certificate, which fails verification. The server side sets no
        // verification: OpenSSL would then require a session id context for sessions that it considers resumed.
        if context.presharedKey != nil { SSL_set_verify(raw, SSL_VERIFY_PEER, nil) }
        let parameters = SSL_get0_param(raw)
        if X509_VERIFY_PARAM_set1_ip_asc(parameters, serverName) != 1 {
            ERR_clear_error()
            var name = Array(serverName.utf8CString)
            let isSent = name.withUnsafeMutableBytes { bytes in
                SSL_ctrl(raw, SSL_CTRL_SET_TLSEXT_HOSTNAME, Int(TLSEXT_NAMETYPE_host_name), bytes.baseAddress)
            }
            // All properties are set, so `deinit` frees the session when an error is thrown.
            guard isSent == 1, SSL_set1_host(raw, serverName) == 1 else {
                throw TLSFailure("\(serverName) cannot be a TLS server name")
            }
        }
    }

    deinit { SSL_free(raw) }

    package var listener: String { context.name }

    private static func make(_ context: TLSContext, _ descriptor: CInt) throws(TLSFailure) -> OpaquePointer {
        guard let raw = SSL_new(context.raw) else {
            throw TLSFailure("OpenSSL could not make a TLS session (\(OpenSSLErrors.takeLast()))")
        }
        guard SSL_set_fd(raw, descriptor) == 1 else {
            SSL_free(raw)
            throw TLSFailure("OpenSSL refused the socket (\(OpenSSLErrors.takeLast()))")
        }
        return raw
    }

    /// Continues over another descriptor of the same socket; returns `false` when OpenSSL has no memory.
    package func rebind(to descriptor: CInt) -> Bool {
        ERR_clear_error()
        self.descriptor = descriptor
        socket = nil
        return SSL_set_fd(raw, descriptor) == 1
    }

    /// Switches to the thread's shared BIO; has no effect before the end of the handshake.
    package func share(_ socket: TLSSocket?) {
        guard let socket, self.socket == nil, SSL_is_init_finished(raw) == 1 else { return }
        socket.lend(to: raw)
        self.socket = socket
    }

    /// Switches to a separate BIO before a move to another thread; returns `false` when OpenSSL has no memory.
    package func unshare() -> Bool { socket == nil || rebind(to: descriptor) }

    package func handshake() -> Progress {
        ERR_clear_error()
        let result = SSL_do_handshake(raw)
        if result == 1 { return .done }
        switch outcome(of: result) {
        case .wantsRead: return .wantsRead
        case .wantsWrite: return .wantsWrite
        case .ended: return .failed("the peer closed the connection during the handshake")
        case .failed(let reason): return .failed(reason)
        case .bytes: return .done
        }
    }

    /// Reads the data of at most one record; fails if a session on a shared `TLSSocket` receives many records without data.
    package func read(into buffer: UnsafeMutableRawBufferPointer) -> Transfer {
        ERR_clear_error()
        socket?.point(at: descriptor)
        socket?.beginRead()
        let result = SSL_read(raw, buffer.baseAddress, CInt(min(buffer.count, Int(CInt.max))))
        if result > 0 { return .bytes(Int(result)) }
        guard let socket, socket.isExhausted else { return outcome(of: result) }
        failure = .form
        return .failed("the peer sent too many TLS records without data")
    }

    /// Sends a prefix of `bytes`; after `wantsWrite` or `wantsRead` the next call must begin with the same bytes.
    package func write(_ bytes: UnsafeRawBufferPointer) -> Transfer {
        guard !bytes.isEmpty else { return .bytes(0) }
        ERR_clear_error()
        socket?.point(at: descriptor)
        let result = SSL_write(raw, bytes.baseAddress, CInt(min(bytes.count, Int(CInt.max))))
        return result > 0 ? .bytes(Int(result)) : outcome(of: result)
    }

    /// Sends close_notify; the caller must not write afterwards but may still read.
    package func sayGoodbye() {
        guard SSL_is_init_finished(raw) == 1 else { return }
        ERR_clear_error()
        socket?.point(at: descriptor)
        SSL_shutdown(raw)
        ERR_clear_error()
    }

    /// The SHA-256 of each certificate in the verified chain, leaf first; empty without verification.
    package var chainDigests: [[UInt8]] {
        guard let chain = SSL_get0_verified_chain(raw) else { return [] }
        return (0..<max(0, OPENSSL_sk_num(chain))).compactMap { index in
            OpaquePointer(OPENSSL_sk_value(chain, index)).flatMap { TLSContext.digest(of: $0) }
        }
    }

    package var protocolName: String { SSL_get_version(raw).map { String(cString: $0) } ?? "" }

    /// Whether both sides proved that they have the same pre-shared key; valid after the handshake.
    package var usesPresharedKey: Bool { SSL_session_reused(raw) == 1 }

    package var isHTTP2: Bool {
        var name: UnsafePointer<UInt8>?
        var count: CUnsignedInt = 0
        SSL_get0_alpn_selected(raw, &name, &count)
        guard let name, count == 2 else { return false }
        return name[0] == UInt8(ascii: "h") && name[1] == UInt8(ascii: "2")
    }

    private func outcome(of result: CInt) -> Transfer {
        let systemError = errno
        switch SSL_get_error(raw, result) {
        case SSL_ERROR_WANT_READ: return .wantsRead
        case SSL_ERROR_WANT_WRITE: return .wantsWrite
        case SSL_ERROR_ZERO_RETURN: return .ended
        case SSL_ERROR_SYSCALL:
            systemErrorCode = systemError
            failure = .ended
            let reason = systemError == 0 ? "end of file" : strerror(systemError).map { String(cString: $0) } ?? ""
            ERR_clear_error()
            return .failed(reason)
        default:
            let verification = SSL_get_verify_result(raw)
            let (code, reason) = OpenSSLErrors.takeCode()
            failure = kind(of: code)
            guard verification != Int(X509_V_OK) else { return .failed(reason) }
            if verification == Int(AllowedNames.refusal), context.allowedNames != nil {
                return .failed("\(reason): it has none of the allowed names")
            }
            let detail = X509_verify_cert_error_string(verification).map { String(cString: $0) } ?? ""
            return .failed("\(reason): \(detail)")
        }
    }

    private func kind(of code: CInt) -> Failure {
        switch code {
        case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, SSL_R_CERTIFICATE_VERIFY_FAILED: .certificate
        case SSL_R_UNEXPECTED_EOF_WHILE_READING: .ended
        // Reasons from this number on are the peer's alerts.
        case SSL_AD_REASON_OFFSET...: .refusedByPeer
        default: .form
        }
    }
}
