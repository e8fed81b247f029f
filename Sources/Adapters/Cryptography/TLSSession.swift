internal import COpenSSL
internal import Glibc

/// What OpenSSL reads and writes a socket through, for all sessions of one thread in turn.
///
/// One for each session is what OpenSSL makes: a structure and a lock of 230 bytes that an idle connection has no use for.
/// Not thread-safe: before a session moves to another thread, it takes a place of its own (`unshare`).
package final class TLSSocket {
    private let raw: OpaquePointer

    /// `nil` when memory ran out; sessions then keep their own.
    package init?() {
        guard let raw = BIO_new(BIO_s_socket()) else { return nil }
        self.raw = raw
    }

    deinit { BIO_free(raw) }

    /// A session uses it in both directions, and has a reference for each.
    fileprivate func lend(to session: OpaquePointer) {
        BIO_up_ref(raw)
        SSL_set0_rbio(session, raw)
        BIO_up_ref(raw)
        SSL_set0_wbio(session, raw)
    }

    /// The next call is for this socket; what the last one left in the flags was another's.
    fileprivate func point(at descriptor: CInt) {
        BIO_int_ctrl(raw, BIO_C_SET_FD, Int(BIO_NOCLOSE), descriptor)
        BIO_clear_flags(raw, Self.flags)
    }

    /// BIO_FLAGS_RWS and _SHOULD_RETRY, "try again", and BIO_FLAGS_IN_EOF, the end of the stream.
    private static let flags: CInt = 0x0F | 0x800
}

/// One TLS connection over a non-blocking socket that its user owns and closes.
///
/// Not `Sendable`: one thread at a time uses it. Moving it as a whole to another thread is fine.
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
        /// The peer said goodbye properly.
        case ended
        case failed(String)
    }

    /// What a handshake failed for, as far as an operator could act on it.
    package enum Failure: Sendable, Equatable, CaseIterable {
        /// The peer showed no certificate, or one that does not hold here.
        case certificate
        /// The peer refused, our certificate for instance: it sent an alert.
        case refusedByPeer
        /// The peer left.
        case ended
        /// It was not TLS, or no version or cipher that both have.
        case form
    }

    private let raw: OpaquePointer
    /// What it reads and writes through in turn with others; `nil`: through a place of its own.
    private var socket: TLSSocket?
    private var descriptor: CInt
    /// Kept with its keys and names for as long as OpenSSL may ask for them.
    private let context: TLSContext
    /// The server's side, of clients that share no key with it.
    package let isServing: Bool
    /// Its handshake counts among those of a `HandshakeGate`.
    package var isGated = false
    /// It stands on the gate's list of those that go on in a later turn.
    package var isLate = false
    /// What kind the last failure was of.
    package private(set) var failure = Failure.ended
    /// What the socket said when it last failed, as `errno`; 0: it has not.
    package private(set) var systemErrorCode: CInt = 0

    /// The server's side over `descriptor`.
    package init(accepting context: TLSContext, descriptor: CInt) throws(TLSFailure) {
        raw = try Self.make(context, descriptor)
        self.descriptor = descriptor
        (self.context, isServing) = (context, context.presharedKey == nil)
        SSL_set_accept_state(raw)
    }

    /// The client's side; `serverName` is sent (SNI) and, where the context verifies, must be in the certificate.
    ///
    /// An address literal is matched against the certificate's addresses and not sent.
    package init(connecting context: TLSContext, descriptor: CInt, serverName: String) throws(TLSFailure) {
        raw = try Self.make(context, descriptor)
        self.descriptor = descriptor
        (self.context, isServing) = (context, false)
        SSL_set_connect_state(raw)
        // A server without the key would have to show a certificate, and none is believed. Not for the server's side:
        // there OpenSSL would want a name for what it takes to be resumed sessions.
        if context.presharedKey != nil { SSL_set_verify(raw, SSL_VERIFY_PEER, nil) }
        let parameters = SSL_get0_param(raw)
        if X509_VERIFY_PARAM_set1_ip_asc(parameters, serverName) != 1 {
            ERR_clear_error()
            var name = Array(serverName.utf8CString)
            let isSent = name.withUnsafeMutableBytes { bytes in
                SSL_ctrl(raw, SSL_CTRL_SET_TLSEXT_HOSTNAME, Int(TLSEXT_NAMETYPE_host_name), bytes.baseAddress)
            }
            // Once all is set, a thrown error has `deinit` free it.
            guard isSent == 1, SSL_set1_host(raw, serverName) == 1 else {
                throw TLSFailure("\(serverName) cannot be a TLS server name")
            }
        }
    }

    deinit { SSL_free(raw) }

    /// What the server's context is called in the log.
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

    /// Goes on over another number of the same socket; `false` when OpenSSL has no memory for that.
    package func rebind(to descriptor: CInt) -> Bool {
        ERR_clear_error()
        self.descriptor = descriptor
        socket = nil
        return SSL_set_fd(raw, descriptor) == 1
    }

    /// Goes on through what all sessions of this thread share; does nothing before the end of the handshake.
    package func share(_ socket: TLSSocket?) {
        guard let socket, self.socket == nil, SSL_is_init_finished(raw) == 1 else { return }
        socket.lend(to: raw)
        self.socket = socket
    }

    /// Takes a place of its own again, to be moved to another thread; `false` when OpenSSL has no memory for that.
    package func unshare() -> Bool { socket == nil || rebind(to: descriptor) }

    /// Drives the handshake as far as the socket allows.
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

    /// Reads what is there, at most `buffer.count` bytes.
    package func read(into buffer: UnsafeMutableRawBufferPointer) -> Transfer {
        ERR_clear_error()
        socket?.point(at: descriptor)
        let result = SSL_read(raw, buffer.baseAddress, CInt(min(buffer.count, Int(CInt.max))))
        return result > 0 ? .bytes(Int(result)) : outcome(of: result)
    }

    /// Sends a first part of `bytes`; after `wantsWrite` or `wantsRead` call again with the same bytes, or more behind.
    package func write(_ bytes: UnsafeRawBufferPointer) -> Transfer {
        guard !bytes.isEmpty else { return .bytes(0) }
        ERR_clear_error()
        socket?.point(at: descriptor)
        let result = SSL_write(raw, bytes.baseAddress, CInt(min(bytes.count, Int(CInt.max))))
        return result > 0 ? .bytes(Int(result)) : outcome(of: result)
    }

    /// Says goodbye; nothing may be written afterwards.
    ///
    /// What the peer still sends can be read.
    package func sayGoodbye() {
        guard SSL_is_init_finished(raw) == 1 else { return }
        ERR_clear_error()
        socket?.point(at: descriptor)
        SSL_shutdown(raw)
        ERR_clear_error()
    }

    /// SHA-256 of each certificate of the verified chain, the peer's own first; empty unless it was verified.
    package var chainDigests: [[UInt8]] {
        guard let chain = SSL_get0_verified_chain(raw) else { return [] }
        return (0..<max(0, OPENSSL_sk_num(chain))).compactMap { index in
            OpaquePointer(OPENSSL_sk_value(chain, index)).flatMap { TLSContext.digest(of: $0) }
        }
    }

    /// `TLSv1.3` and the like; for the log.
    package var protocolName: String { SSL_get_version(raw).map { String(cString: $0) } ?? "" }

    /// Both sides proved that they have the same pre-shared key; to be asked once the handshake is done.
    package var usesPresharedKey: Bool { SSL_session_reused(raw) == 1 }

    /// Both sides agreed on HTTP/2.
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
        // Alerts of the peer have the numbers above this.
        case SSL_AD_REASON_OFFSET...: .refusedByPeer
        default: .form
        }
    }
}
