internal import COpenSSL

/// A private P-256 key for ECDH (SEC 1, section 3.3.1).
package final class AgreementKey: @unchecked Sendable {
    // Safe: OpenSSL only reads a complete key and counts its references atomically.
    private let raw: OpaquePointer
    /// The public point: 65 bytes, uncompressed.
    package let publicPoint: [UInt8]

    package static let pointByteCount = 65

    /// Creates a new key; the result is `nil` when OpenSSL has no memory.
    package init?() {
        guard let key = SelfSignedCertificate.makeKey() else { return nil }
        guard let point = P256.publicPoint(of: key) else {
            EVP_PKEY_free(key)
            return nil
        }
        (raw, publicPoint) = (key, point)
    }

    /// Reads a private scalar of 32 bytes and its public point; the result is `nil` if they are malformed.
    package init?(scalar: [UInt8], publicPoint: [UInt8]) {
        guard scalar.count == 32, let key = P256.key(point: publicPoint, scalar: scalar) else { return nil }
        (raw, self.publicPoint) = (key, publicPoint)
    }

    /// Reads a key in PEM form; the result is `nil` for another kind of key.
    package init?(pem: [UInt8]) {
        guard let key = PrivateKeyText.read(pem) else { return nil }
        guard let point = P256.publicPoint(of: key) else {
            EVP_PKEY_free(key)
            return nil
        }
        (raw, publicPoint) = (key, point)
    }

    deinit { EVP_PKEY_free(raw) }

    /// Returns the 32-byte shared secret with a peer's public point, or `nil` if the bytes are no point of the curve.
    package func sharedSecret(with peerPoint: [UInt8]) -> [UInt8]? {
        defer { OpenSSLErrors.forget() }
        guard let peer = P256.key(point: peerPoint, scalar: nil) else { return nil }
        defer { EVP_PKEY_free(peer) }
        guard let context = EVP_PKEY_CTX_new(raw, nil) else { return nil }
        defer { EVP_PKEY_CTX_free(context) }
        var secret = [UInt8](repeating: 0, count: 32)
        var count = secret.count
        guard EVP_PKEY_derive_init(context) == 1, EVP_PKEY_derive_set_peer(context, peer) == 1,
            EVP_PKEY_derive(context, &secret, &count) == 1, count == 32
        else { return nil }
        return secret
    }
}

extension SigningKey {
    /// The public point: 65 bytes, uncompressed; `nil` when OpenSSL has no memory.
    package var publicPoint: [UInt8]? { withKey { P256.publicPoint(of: $0) } }
}

private enum P256 {
    static func publicPoint(of key: OpaquePointer) -> [UInt8]? {
        // The coordinates are read separately, because a key file can store a compressed point.
        var point: [UInt8] = [4]
        for name in ["qx", "qy"] {
            var number: OpaquePointer?
            guard EVP_PKEY_get_bn_param(key, name, &number) == 1, let number else { return nil }
            defer { BN_free(number) }
            var bytes = [UInt8](repeating: 0, count: 32)
            guard BN_bn2binpad(number, &bytes, 32) == 32 else { return nil }
            point += bytes
        }
        return point
    }

    /// Builds a key from an uncompressed point, which OpenSSL checks to be on the curve.
    static func key(point: [UInt8], scalar: [UInt8]?) -> OpaquePointer? {
        defer { OpenSSLErrors.forget() }
        guard point.count == AgreementKey.pointByteCount, point[0] == 4, let builder = OSSL_PARAM_BLD_new() else {
            return nil
        }
        defer { OSSL_PARAM_BLD_free(builder) }
        // The builder keeps all pointers until the parameters are built, so names must be constants.
        let number = scalar.flatMap { BN_bin2bn($0, CInt($0.count), nil) }
        defer { BN_clear_free(number) }
        return point.withUnsafeBytes { point -> OpaquePointer? in
            guard OSSL_PARAM_BLD_push_utf8_string(builder, constant("group"), constant("prime256v1"), 0) == 1,
                OSSL_PARAM_BLD_push_octet_string(builder, constant("pub"), point.baseAddress, point.count) == 1,
                scalar == nil || number != nil,
                number == nil || OSSL_PARAM_BLD_push_BN(builder, constant("priv"), number) == 1,
                let parameters = OSSL_PARAM_BLD_to_param(builder)
            else { return nil }
            defer { OSSL_PARAM_free(parameters) }
            guard let context = EVP_PKEY_CTX_new_from_name(nil, "EC", nil) else { return nil }
            defer { EVP_PKEY_CTX_free(context) }
            let selection = scalar == nil ? publicKeySelection : keyPairSelection
            var key: OpaquePointer?
            guard EVP_PKEY_fromdata_init(context) == 1,
                EVP_PKEY_fromdata(context, &key, selection, parameters) == 1
            else {
                EVP_PKEY_free(key)
                return nil
            }
            return key
        }
    }

    private static func constant(_ text: StaticString) -> UnsafePointer<CChar> {
        UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self)
    }

    // The values of the macros EVP_PKEY_PUBLIC_KEY and EVP_PKEY_KEYPAIR, which Swift does not import.
    private static let publicKeySelection: CInt = 0x86
    private static let keyPairSelection: CInt = 0x87
}

/// AES-128-GCM with a tag of 16 bytes (NIST SP 800-38D).
package enum AES128GCM {
    /// Returns the ciphertext followed by the tag, or `nil` for a wrong size of key (16 bytes) or nonce (12 bytes).
    ///
    /// A nonce must never be used twice with the same key.
    package static func seal(_ plaintext: [UInt8], key: [UInt8], nonce: [UInt8]) -> [UInt8]? {
        guard key.count == 16, nonce.count == 12, let context = EVP_CIPHER_CTX_new() else { return nil }
        defer { EVP_CIPHER_CTX_free(context) }
        var output = [UInt8](repeating: 0, count: plaintext.count + 16)
        var count: CInt = 0
        var tag = [UInt8](repeating: 0, count: 16)
        guard EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), nil, key, nonce) == 1,
            EVP_EncryptUpdate(context, &output, &count, plaintext, CInt(clamping: plaintext.count)) == 1,
            Int(count) == plaintext.count, EVP_EncryptFinal_ex(context, &tag, &count) == 1,
            EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, &tag) == 1
        else { return nil }
        output.replaceSubrange(plaintext.count..., with: tag)
        return output
    }

    /// Returns the plaintext of a sealed message, or `nil` if it is not authentic.
    package static func open(_ sealed: [UInt8], key: [UInt8], nonce: [UInt8]) -> [UInt8]? {
        guard key.count == 16, nonce.count == 12, sealed.count >= 16, let context = EVP_CIPHER_CTX_new() else {
            return nil
        }
        defer {
            EVP_CIPHER_CTX_free(context)
            OpenSSLErrors.forget()
        }
        let body = Array(sealed.dropLast(16))
        var tag = Array(sealed.suffix(16))
        var output = [UInt8](repeating: 0, count: body.count + 16)
        var count: CInt = 0
        var rest: CInt = 0
        guard EVP_DecryptInit_ex(context, EVP_aes_128_gcm(), nil, key, nonce) == 1,
            EVP_DecryptUpdate(context, &output, &count, body, CInt(clamping: body.count)) == 1,
            EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, &tag) == 1,
            output.withUnsafeMutableBufferPointer({
                EVP_DecryptFinal_ex(context, $0.baseAddress.map { $0 + body.count }, &rest)
            }) == 1
        else { return nil }
        return Array(output.prefix(body.count))
    }
}
