internal import COpenSSL
internal import Glibc

/// An error in the TLS configuration; the text names the file and the remedy.
package struct TLSFailure: Error, Equatable, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }
}

/// The certificate, key and rules that many TLS connections share (OpenSSL 3.0 or later).
///
/// The first context makes the whole process ignore SIGPIPE: OpenSSL uses `write`, and a disconnected peer must cause an error,
/// not a signal.
package final class TLSContext: @unchecked Sendable {
    // Safe: the context is complete before `init` returns, and OpenSSL counts its references atomically.
    let raw: OpaquePointer
    let presharedKey: PresharedKeyMemory?
    let allowedNames: AllowedNames?
    let name: String

    package enum Trust: Sendable, Equatable {
        case system
        case certificates(path: String)
        /// Any server, without verification: for tests and for a gateway behind a trusted tunnel.
        case anyone
    }

    /// Creates a server's context for TLS 1.2 or later, with the PEM chain (leaf first) and its key.
    ///
    /// With `clients`, every handshake requires a client certificate, and sessions are not resumed.
    package init(
        certificatePath: String, keyPath: String, clients: ClientCertificates? = nil, name: String = ""
    ) throws(TLSFailure) {
        let raw = try Self.makeContext(TLS_server_method())
        do throws(TLSFailure) {
            try Self.requireReadable(certificatePath, "certificate")
            try Self.requireReadable(keyPath, "key")
            guard SSL_CTX_use_certificate_chain_file(raw, certificatePath) == 1 else {
                throw TLSFailure(
                    "\(certificatePath) holds no usable PEM certificate chain (\(OpenSSLErrors.takeLast())); "
                        + "it must begin with the server's own certificate")
            }
            guard SSL_CTX_use_PrivateKey_file(raw, keyPath, SSL_FILETYPE_PEM) == 1 else {
                throw TLSFailure(
                    "\(keyPath) holds no usable PEM private key for \(certificatePath) (\(OpenSSLErrors.takeLast())); "
                        + "it must be the certificate's own key, without a passphrase")
            }
            guard SSL_CTX_check_private_key(raw) == 1 else {
                throw TLSFailure("the key in \(keyPath) does not belong to the certificate in \(certificatePath)")
            }
            // Sessions are resumed by tickets, which use no server memory, unlike the session cache.
            SSL_CTX_ctrl(raw, SSL_CTRL_SET_SESS_CACHE_MODE, Int(SSL_SESS_CACHE_OFF), nil)
            SSL_CTX_set_num_tickets(raw, 1)
            allowedNames = if let clients { try Self.require(clients, in: raw) } else { nil }
        } catch {
            SSL_CTX_free(raw)
            throw error
        }
        (self.raw, self.name) = (raw, name)
        presharedKey = nil
    }

    /// Creates a context for TLS 1.3 with pre-shared keys instead of certificates, as client and as server.
    ///
    /// The key authenticates the peers. Each connection's keys also depend on an ECDHE exchange, so a recorded connection cannot
    /// be decrypted with a key that leaks later.
    ///
    /// - Parameter keys: a client offers the first and a server accepts each, so that processes can change the secret one by one.
    /// - Throws: when OpenSSL does not support the suite.
    package init(psk keys: [PresharedKey]) throws(TLSFailure) {
        let raw = try Self.makeContext(TLS_method())
        SSL_CTX_ctrl(raw, SSL_CTRL_SET_MIN_PROTO_VERSION, Int(TLS1_3_VERSION), nil)
        // The callbacks create sessions for this suite only. A key is bound to its suite's digest.
        guard SSL_CTX_set_ciphersuites(raw, "TLS_AES_128_GCM_SHA256") == 1 else {
            SSL_CTX_free(raw)
            throw TLSFailure("OpenSSL does not know TLS_AES_128_GCM_SHA256 (\(OpenSSLErrors.takeLast()))")
        }
        SSL_CTX_ctrl(raw, SSL_CTRL_SET_SESS_CACHE_MODE, Int(SSL_SESS_CACHE_OFF), nil)
        SSL_CTX_set_num_tickets(raw, 0)
        let memory = PresharedKeyMemory(keys)
        memory.install(in: raw)
        (self.raw, name) = (raw, "")
        (presharedKey, allowedNames) = (memory, nil)
    }

    package convenience init(psk key: PresharedKey) throws(TLSFailure) { try self.init(psk: [key]) }

    /// Creates a client's context with a certificate for servers that request one; `identify` describes the files.
    package convenience init(trusting trust: Trust, showing path: String?, keyPath: String?) throws(TLSFailure) {
        try self.init(trusting: trust)
        if let path { try identify(withCertificate: path, keyPath: keyPath) }
    }

    package init(trusting trust: Trust) throws(TLSFailure) {
        let raw = try Self.makeContext(TLS_client_method())
        switch trust {
        case .system:
            SSL_CTX_set_default_verify_paths(raw)
            SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nil)
        case .certificates(let path):
            guard SSL_CTX_load_verify_locations(raw, path, nil) == 1 else {
                SSL_CTX_free(raw)
                throw TLSFailure("\(path) holds no usable PEM certificates (\(OpenSSLErrors.takeLast()))")
            }
            SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nil)
        case .anyone:
            SSL_CTX_set_verify(raw, SSL_VERIFY_NONE, nil)
        }
        (self.raw, name) = (raw, "")
        (presharedKey, allowedNames) = (nil, nil)
    }

    deinit { SSL_CTX_free(raw) }

    /// Limits connections to TLS 1.2, as an old client does; must be called before the context is shared.
    package func limitToTLS12() { SSL_CTX_ctrl(raw, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(TLS1_2_VERSION), nil) }

    // MARK: Application protocol

    /// Requires HTTP/2 (ALPN `h2`): a server rejects other clients; must be called before the context is shared.
    package func requireHTTP2() {
        let offer: [UInt8] = [2, UInt8(ascii: "h"), UInt8(ascii: "2")]
        SSL_CTX_set_alpn_protos(raw, offer, CUnsignedInt(offer.count))
        SSL_CTX_set_alpn_select_cb(
            raw,
            { _, chosen, chosenCount, offered, offeredCount, _ in
                guard let chosen, let chosenCount, let offered else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                var place = 0
                while place < Int(offeredCount) {
                    let count = Int(offered[place])
                    guard place + 1 + count <= Int(offeredCount) else { break }
                    if count == 2, offered[place + 1] == UInt8(ascii: "h"), offered[place + 2] == UInt8(ascii: "2") {
                        (chosen.pointee, chosenCount.pointee) = (offered + place + 1, 2)
                        return SSL_TLSEXT_ERR_OK
                    }
                    place += 1 + count
                }
                return SSL_TLSEXT_ERR_ALERT_FATAL
            }, nil)
    }

    // MARK: Client certificate

    /// Sets the certificate for servers that request one: PEM files, or a PKCS #12 file (`.p12`, `.pfx`) with the key.
    ///
    /// Must be called before the context is shared. A PEM file has the chain, leaf first. It also has the key if `keyPath` is
    /// `nil`. The password is for a PKCS #12 file.
    package func identify(
        withCertificate path: String, keyPath: String?, password: String = ""
    ) throws(TLSFailure) {
        try Self.requireReadable(path, "certificate")
        if path.hasSuffix(".p12") || path.hasSuffix(".pfx") { return try identify(withBundle: path, password) }
        let keyPath = keyPath ?? path
        try Self.requireReadable(keyPath, "key")
        guard SSL_CTX_use_certificate_chain_file(raw, path) == 1 else {
            throw TLSFailure("\(path) holds no usable PEM certificate (\(OpenSSLErrors.takeLast()))")
        }
        guard SSL_CTX_use_PrivateKey_file(raw, keyPath, SSL_FILETYPE_PEM) == 1 else {
            throw TLSFailure("\(keyPath) holds no usable PEM private key for \(path) (\(OpenSSLErrors.takeLast()))")
        }
        guard SSL_CTX_check_private_key(raw) == 1 else {
            throw TLSFailure("the key in \(keyPath) does not belong to the certificate in \(path)")
        }
    }

    private func identify(withBundle path: String, _ password: String) throws(TLSFailure) {
        guard let file = BIO_new_file(path, "rb") else { throw TLSFailure("\(path) cannot be read") }
        defer { BIO_free(file) }
        guard let bundle = d2i_PKCS12_bio(file, nil) else {
            throw TLSFailure("\(path) is no PKCS #12 file (\(OpenSSLErrors.takeLast()))")
        }
        defer { PKCS12_free(bundle) }
        var key: OpaquePointer?
        var certificate: OpaquePointer?
        if PKCS12_parse(bundle, password, &key, &certificate, nil) != 1 {
            let reason = OpenSSLErrors.takeLast()
            // macOS encrypts these files with RC2 and triple DES, which OpenSSL 3 has only in its legacy provider. The provider
            // is loaded for this call alone, so that nothing else can use such ciphers.
            let legacy = OSSL_PROVIDER_try_load(nil, "legacy", 1)
            defer { if let legacy { OSSL_PROVIDER_unload(legacy) } }
            guard legacy != nil, PKCS12_parse(bundle, password, &key, &certificate, nil) == 1 else {
                OpenSSLErrors.forget()
                let remedy =
                    legacy != nil
                    ? "is the password right?"
                    : "is the password right? This machine's OpenSSL has no legacy provider, which files of macOS need: "
                        + "convert the file where one is, openssl pkcs12 -legacy -in FILE.p12 -nodes -out FILE.pem"
                throw TLSFailure("\(path) cannot be opened with its password (\(reason)); \(remedy)")
            }
        }
        defer {
            EVP_PKEY_free(key)
            X509_free(certificate)
        }
        guard key != nil, certificate != nil, SSL_CTX_use_certificate(raw, certificate) == 1,
            SSL_CTX_use_PrivateKey(raw, key) == 1
        else { throw TLSFailure("\(path) holds no certificate with its key (\(OpenSSLErrors.takeLast()))") }
    }

    private static func makeContext(_ method: OpaquePointer?) throws(TLSFailure) -> OpaquePointer {
        signal(SIGPIPE, SIG_IGN)
        guard let raw = SSL_CTX_new(method) else {
            throw TLSFailure("OpenSSL could not make a TLS context (\(OpenSSLErrors.takeLast()))")
        }
        // The setters are C macros, which Swift cannot call. These calls are their expansions.
        SSL_CTX_ctrl(raw, SSL_CTRL_SET_MIN_PROTO_VERSION, Int(TLS1_2_VERSION), nil)
        let modes =
            SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
        SSL_CTX_ctrl(raw, SSL_CTRL_MODE, Int(modes), nil)
        // A key with a passphrase is an error. By default OpenSSL would prompt on the terminal.
        SSL_CTX_set_default_passwd_cb(raw) { _, _, _, _ in 0 }
        // SSL_OP_NO_RENEGOTIATION, bit 30: a client could otherwise request handshakes repeatedly.
        SSL_CTX_set_options(raw, 1 << 30)
        return raw
    }

    private static func requireReadable(_ path: String, _ what: String) throws(TLSFailure) {
        guard access(path, R_OK) != 0 else { return }
        let reason = strerror(errno).map { String(cString: $0) } ?? "unknown"
        throw TLSFailure("the TLS \(what) \(path) cannot be read: \(reason)")
    }
}

enum OpenSSLErrors {
    /// Clears the errors of a call that was expected to fail.
    static func forget() { ERR_clear_error() }

    /// Returns the text of the oldest error, which is the root cause, and clears the queue.
    static func takeLast() -> String { takeCode().text }

    /// Returns the oldest error with its reason code, or 0 without an error, and clears the queue.
    static func takeCode() -> (reason: CInt, text: String) {
        let code = ERR_get_error()
        ERR_clear_error()
        guard code != 0 else { return (0, "no detail") }
        guard let reason = ERR_reason_error_string(code) else { return (ERR_GET_REASON(code), "error \(code)") }
        return (ERR_GET_REASON(code), String(cString: reason))
    }
}
