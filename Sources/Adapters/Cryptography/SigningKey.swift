internal import COpenSSL

/// A private P-256 key for ES256 signatures (RFC 7518, section 3.4), as in Apple's `.p8` files.
package final class SigningKey: @unchecked Sendable {
    // Safe: OpenSSL only reads a complete key and counts its references atomically.
    private let raw: OpaquePointer

    /// Reads a PKCS #8 PEM file; `name` is its name in errors.
    package init(pem: [UInt8], name: String) throws(TLSFailure) {
        guard let key = PrivateKeyText.read(pem) else {
            throw TLSFailure(
                "\(name) holds no private key (\(OpenSSLErrors.takeLast())); it must be the .p8 file as Apple gave "
                    + "it, which begins with -----BEGIN PRIVATE KEY-----")
        }
        guard Self.isP256(key) else {
            EVP_PKEY_free(key)
            throw TLSFailure("\(name) holds a key of another kind than P-256; Apple's keys for push are P-256")
        }
        raw = key
    }

    deinit { EVP_PKEY_free(raw) }

    /// Lends the key to an extension in this module.
    func withKey<Result>(_ body: (OpaquePointer) -> Result) -> Result { body(raw) }

    private static func isP256(_ key: OpaquePointer) -> Bool {
        guard EVP_PKEY_get_base_id(key) == EVP_PKEY_EC else { return false }
        var name = [CChar](repeating: 0, count: 64)
        var count = 0
        guard EVP_PKEY_get_utf8_string_param(key, "group", &name, name.count, &count) == 1 else { return false }
        let group = name.prefix(count).map { UInt8(bitPattern: $0) }
        return group.elementsEqual("prime256v1".utf8) || group.elementsEqual("P-256".utf8)
    }

    /// Signs a message.
    ///
    /// - Returns: 64 bytes, r before s, or `nil` when OpenSSL has no memory.
    package func sign(_ message: [UInt8]) -> [UInt8]? {
        guard let context = EVP_MD_CTX_new() else { return nil }
        defer { EVP_MD_CTX_free(context) }
        guard EVP_DigestSignInit(context, nil, EVP_sha256(), nil, raw) == 1 else { return nil }
        var signature = [UInt8](repeating: 0, count: 128)
        var count = signature.count
        guard EVP_DigestSign(context, &signature, &count, message, message.count) == 1 else { return nil }
        let pair: OpaquePointer? = signature.withUnsafeBufferPointer { bytes in
            var next = bytes.baseAddress
            return d2i_ECDSA_SIG(nil, &next, count)
        }
        guard let pair else { return nil }
        defer { ECDSA_SIG_free(pair) }
        var result = [UInt8](repeating: 0, count: 64)
        let isWritten = result.withUnsafeMutableBufferPointer { bytes in
            guard let start = bytes.baseAddress else { return false }
            return BN_bn2binpad(ECDSA_SIG_get0_r(pair), start, 32) == 32
                && BN_bn2binpad(ECDSA_SIG_get0_s(pair), start + 32, 32) == 32
        }
        return isWritten ? result : nil
    }

    package func isSignature(_ signature: [UInt8], of message: [UInt8]) -> Bool {
        guard signature.count == 64, let pair = ECDSA_SIG_new() else { return false }
        defer { ECDSA_SIG_free(pair) }
        guard let r = BN_bin2bn(signature, 32, nil), let s = BN_bin2bn(Array(signature[32...]), 32, nil) else {
            return false
        }
        guard ECDSA_SIG_set0(pair, r, s) == 1 else { return false }
        var encoded = [UInt8](repeating: 0, count: 128)
        let count = encoded.withUnsafeMutableBufferPointer { bytes in
            var next = bytes.baseAddress
            return i2d_ECDSA_SIG(pair, &next)
        }
        guard count > 0, count <= 128, let context = EVP_MD_CTX_new() else { return false }
        defer { EVP_MD_CTX_free(context) }
        guard EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, raw) == 1 else { return false }
        defer { OpenSSLErrors.forget() }
        return EVP_DigestVerify(context, encoded, Int(count), message, message.count) == 1
    }

    /// Creates a new key in PEM form, for tests and trials.
    package static func makePEM() throws(TLSFailure) -> [UInt8] {
        guard let key = SelfSignedCertificate.makeKey(), let memory = BIO_new(BIO_s_mem()) else {
            throw TLSFailure("no P-256 key: \(OpenSSLErrors.takeLast())")
        }
        defer {
            EVP_PKEY_free(key)
            BIO_free(memory)
        }
        guard PEM_write_bio_PrivateKey(memory, key, nil, nil, 0, nil, nil) == 1 else {
            throw TLSFailure("the key cannot be written: \(OpenSSLErrors.takeLast())")
        }
        var pem = [UInt8](repeating: 0, count: 1_024)
        let count = BIO_read(memory, &pem, CInt(pem.count))
        return Array(pem.prefix(max(0, Int(count))))
    }
}

enum PrivateKeyText {
    /// Reads a private key in PEM form; the caller owns the key.
    ///
    /// OpenSSL reads from the array's memory after the call that passes it, so the array must be held until the key is complete.
    static func read(_ pem: [UInt8]) -> OpaquePointer? {
        pem.withUnsafeBytes { bytes in
            guard let memory = BIO_new_mem_buf(bytes.baseAddress, CInt(clamping: bytes.count)) else { return nil }
            defer { BIO_free(memory) }
            return PEM_read_bio_PrivateKey(memory, nil, { _, _, _, _ in 0 }, nil)
        }
    }
}
