internal import COpenSSL

package struct ClientCertificates: Sendable, Equatable {
    /// A PEM file of the only trusted authorities; the system's authorities are not trusted.
    package var authoritiesFile: String
    /// The allowed DNS names or common names; if empty, any certificate from the authorities is accepted.
    package var names: [String]

    package init(authoritiesFile: String, names: [String] = []) {
        (self.authoritiesFile, self.names) = (authoritiesFile, names)
    }
}

/// The allowed names for OpenSSL's callback; sessions keep this object alive as long as the callback may run.
final class AllowedNames {
    private let names: [String]
    static let refusal = X509_V_ERR_APPLICATION_VERIFICATION

    init(_ names: [String]) { self.names = names }

    func install(in context: OpaquePointer) {
        SSL_CTX_set_cert_verify_callback(
            context,
            { check, place in
                guard X509_verify_cert(check) == 1 else { return 0 }
                guard let place, let leaf = X509_STORE_CTX_get0_cert(check) else { return 0 }
                let allowed = Unmanaged<AllowedNames>.fromOpaque(place).takeUnretainedValue()
                if allowed.has(leaf) { return 1 }
                X509_STORE_CTX_set_error(check, AllowedNames.refusal)
                return 0
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    private func has(_ certificate: OpaquePointer) -> Bool {
        let flags = CUnsignedInt(X509_CHECK_FLAG_ALWAYS_CHECK_SUBJECT | X509_CHECK_FLAG_NO_WILDCARDS)
        return names.contains { X509_check_host(certificate, $0, $0.utf8.count, flags, nil) == 1 }
    }
}

extension TLSContext {
    /// Requires a valid certificate from every client; an extended key usage, if present, must allow clients.
    static func require(_ clients: ClientCertificates, in raw: OpaquePointer) throws(TLSFailure) -> AllowedNames? {
        let path = clients.authoritiesFile
        guard SSL_CTX_load_verify_locations(raw, path, nil) == 1, let shown = SSL_load_client_CA_file(path) else {
            throw TLSFailure("\(path) holds no usable PEM certificates (\(OpenSSLErrors.takeLast()))")
        }
        SSL_CTX_set_client_CA_list(raw, shown)
        // Every certificate in the file is a trust anchor. An intermediate does not need its root.
        X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(raw), UInt(X509_V_FLAG_PARTIAL_CHAIN))
        SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
        // A resumed session would skip verification of the certificate, which may have expired since.
        SSL_CTX_set_options(raw, UInt64(1) << 14)  // SSL_OP_NO_TICKET
        SSL_CTX_set_num_tickets(raw, 0)
        guard !clients.names.isEmpty else { return nil }
        let allowed = AllowedNames(clients.names)
        allowed.install(in: raw)
        return allowed
    }
}
