internal import COpenSSL

/// A private RSA key for signatures of JSON Web Tokens (RFC 7518, sections 3.3 and 3.5), as in service account files.
package final class RSASigningKey: @unchecked Sendable {
    // Safe: OpenSSL only reads a complete key and counts its references atomically.
    private let raw: OpaquePointer

    package enum Scheme: Sendable, CaseIterable {
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        case rs256
        /// RSASSA-PSS with SHA-256, MGF1 with SHA-256 and a salt of 32 bytes.
        case ps256
    }

    /// The permitted key sizes: RFC 7518 requires at least 2,048 bits, and the maximum bounds the time of one signature.
    package static let bitCount = 2_048...8_192

    /// Reads a PKCS #8 PEM text; `name` is its name in errors.
    package init(pem: [UInt8], name: String) throws(TLSFailure) {
        guard let key = PrivateKeyText.read(pem) else {
            throw TLSFailure(
                "\(name) holds no private key (\(OpenSSLErrors.takeLast())); it begins with -----BEGIN PRIVATE KEY-----"
            )
        }
        guard EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA, Self.bitCount.contains(Int(EVP_PKEY_get_bits(key))) else {
            EVP_PKEY_free(key)
            throw TLSFailure("\(name) holds no RSA key of 2,048 to 8,192 bits")
        }
        raw = key
    }

    deinit { EVP_PKEY_free(raw) }

    /// Signs a message.
    ///
    /// The result is `nil` if OpenSSL cannot allocate memory.
    package func sign(_ message: [UInt8], _ scheme: Scheme) -> [UInt8]? {
        guard let context = EVP_MD_CTX_new() else { return nil }
        defer {
            EVP_MD_CTX_free(context)
            OpenSSLErrors.forget()
        }
        var parameters: OpaquePointer?
        guard EVP_DigestSignInit(context, &parameters, EVP_sha256(), nil, raw) == 1,
            Self.prepare(parameters, scheme)
        else { return nil }
        var signature = [UInt8](repeating: 0, count: Int(EVP_PKEY_get_size(raw)))
        var count = signature.count
        guard EVP_DigestSign(context, &signature, &count, message, message.count) == 1 else { return nil }
        return Array(signature.prefix(count))
    }

    package func isSignature(_ signature: [UInt8], of message: [UInt8], _ scheme: Scheme) -> Bool {
        Self.isSignature(signature, of: message, scheme, key: raw)
    }

    static func isSignature(
        _ signature: [UInt8], of message: [UInt8], _ scheme: Scheme, key: OpaquePointer
    ) -> Bool {
        guard let context = EVP_MD_CTX_new() else { return false }
        defer {
            EVP_MD_CTX_free(context)
            OpenSSLErrors.forget()
        }
        var parameters: OpaquePointer?
        guard EVP_DigestVerifyInit(context, &parameters, EVP_sha256(), nil, key) == 1,
            Self.prepare(parameters, scheme)
        else { return false }
        return EVP_DigestVerify(context, signature, signature.count, message, message.count) == 1
    }

    private static func prepare(_ parameters: OpaquePointer?, _ scheme: Scheme) -> Bool {
        switch scheme {
        case .rs256: EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PADDING) == 1
        case .ps256:
            EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING) == 1
                && EVP_PKEY_CTX_set_rsa_mgf1_md(parameters, EVP_sha256()) == 1
                && EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, 32) == 1
        }
    }

    /// The public key in PEM form, or `nil` if OpenSSL fails.
    package var publicPEM: [UInt8]? {
        guard let memory = BIO_new(BIO_s_mem()) else { return nil }
        defer { BIO_free(memory) }
        guard PEM_write_bio_PUBKEY(memory, raw) == 1 else { return nil }
        return Self.contents(of: memory)
    }

    private static func contents(of memory: OpaquePointer) -> [UInt8] {
        var pem = [UInt8](repeating: 0, count: 16_384)
        let count = BIO_read(memory, &pem, CInt(pem.count))
        return Array(pem.prefix(max(0, Int(count))))
    }

    /// Creates a new key in PEM form, for tests and trials.
    package static func makePEM(bitCount: Int = 2_048) throws(TLSFailure) -> [UInt8] {
        guard let context = EVP_PKEY_CTX_new_from_name(nil, "RSA", nil) else { throw TLSFailure("out of memory") }
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1,
            EVP_PKEY_CTX_set_rsa_keygen_bits(context, CInt(clamping: bitCount)) == 1,
            EVP_PKEY_generate(context, &key) == 1, let key, let memory = BIO_new(BIO_s_mem())
        else { throw TLSFailure("no RSA key: \(OpenSSLErrors.takeLast())") }
        defer {
            EVP_PKEY_free(key)
            BIO_free(memory)
        }
        guard PEM_write_bio_PrivateKey(memory, key, nil, nil, 0, nil, nil) == 1 else {
            throw TLSFailure("the key cannot be written: \(OpenSSLErrors.takeLast())")
        }
        return contents(of: memory)
    }
}
