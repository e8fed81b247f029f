internal import COpenSSL

/// A public RSA key that checks RS256 signatures of JSON Web Tokens (RFC 7518, section 3.3).
package final class RSAPublicKey: @unchecked Sendable {
    // Safe to share: after `init`, OpenSSL only reads the key, and its reference count is atomic.
    private let raw: OpaquePointer

    /// Reads a PEM text that begins with `-----BEGIN PUBLIC KEY-----`.
    ///
    /// - Throws: An error for any other text, and for keys other than RSA keys of 2,048 to 8,192 bits.
    package init(pem: [UInt8]) throws(TLSFailure) {
        let key = pem.withUnsafeBytes { bytes -> OpaquePointer? in
            guard let memory = BIO_new_mem_buf(bytes.baseAddress, CInt(clamping: bytes.count)) else { return nil }
            defer { BIO_free(memory) }
            return PEM_read_bio_PUBKEY(memory, nil, { _, _, _, _ in 0 }, nil)
        }
        guard let key else {
            throw TLSFailure("no public key (\(OpenSSLErrors.takeLast())); it begins with -----BEGIN PUBLIC KEY-----")
        }
        guard EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA,
            RSASigningKey.bitCount.contains(Int(EVP_PKEY_get_bits(key)))
        else {
            EVP_PKEY_free(key)
            throw TLSFailure("no RSA key of 2,048 to 8,192 bits")
        }
        raw = key
    }

    deinit { EVP_PKEY_free(raw) }

    package func isSignature(_ signature: [UInt8], of message: [UInt8]) -> Bool {
        RSASigningKey.isSignature(signature, of: message, .rs256, key: raw)
    }
}
