internal import COpenSSL

/// A private P-256 key for ECDH (SEC 1, section 3.3.1).
///
/// It uses OpenSSL's functions for EC keys. The newer functions for all kinds of keys look up algorithms and check the order of a
/// peer's point. P-256 does not need that check, because its cofactor is 1. The newer functions took 250 µs instead of 80 µs for
/// a key and a secret.
package final class AgreementKey: @unchecked Sendable {
    // Safe: OpenSSL only reads a complete key.
    private let raw: OpaquePointer
    /// The public point: 65 bytes, uncompressed.
    package let publicPoint: [UInt8]

    package static let pointByteCount = 65

    /// Creates a new key; the result is `nil` when OpenSSL has no memory.
    package convenience init?() {
        defer { OpenSSLErrors.forget() }
        guard let key = P256.emptyKey() else { return nil }
        guard EC_KEY_generate_key(key) == 1 else {
            EC_KEY_free(key)
            return nil
        }
        self.init(owning: key)
    }

    /// Reads a private scalar of 32 bytes and its public point; the result is `nil` if they are malformed.
    package convenience init?(scalar: [UInt8], publicPoint: [UInt8]) {
        defer { OpenSSLErrors.forget() }
        guard scalar.count == 32, let point = P256.point(publicPoint) else { return nil }
        defer { EC_POINT_free(point) }
        let number = BN_bin2bn(scalar, CInt(scalar.count), nil)
        defer { BN_clear_free(number) }
        guard let number, let key = P256.emptyKey() else { return nil }
        guard EC_KEY_set_private_key(key, number) == 1, EC_KEY_set_public_key(key, point) == 1,
            EC_KEY_check_key(key) == 1
        else {
            EC_KEY_free(key)
            return nil
        }
        self.init(owning: key)
    }

    /// Reads a key in PEM form; the result is `nil` for another kind of key.
    package convenience init?(pem: [UInt8]) {
        guard let read = PrivateKeyText.read(pem) else { return nil }
        defer {
            EVP_PKEY_free(read)
            OpenSSLErrors.forget()
        }
        guard let key = EVP_PKEY_get1_EC_KEY(read) else { return nil }
        self.init(owning: key)
    }

    /// Takes ownership of a key, even if the result is `nil` because the key is no P-256 key.
    private init?(owning key: OpaquePointer) {
        guard let group = EC_KEY_get0_group(key), EC_GROUP_get_curve_name(group) == NID_X9_62_prime256v1,
            let point = EC_KEY_get0_public_key(key), let bytes = P256.bytes(of: point)
        else {
            EC_KEY_free(key)
            return nil
        }
        (raw, publicPoint) = (key, bytes)
    }

    deinit { EC_KEY_free(raw) }

    /// Returns the 32-byte shared secret with a peer's public point, or `nil` if the bytes are no point of the curve.
    package func sharedSecret(with peerPoint: [UInt8]) -> [UInt8]? {
        defer { OpenSSLErrors.forget() }
        guard let peer = P256.point(peerPoint) else { return nil }
        defer { EC_POINT_free(peer) }
        var secret = [UInt8](repeating: 0, count: 32)
        guard ECDH_compute_key(&secret, 32, peer, raw, nil) == 32 else { return nil }
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

    // Safe: OpenSSL only reads a complete group.
    private nonisolated(unsafe) static let group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1)

    /// Returns a P-256 key without private and public numbers, or `nil` when OpenSSL has no memory.
    static func emptyKey() -> OpaquePointer? {
        guard let group, let key = EC_KEY_new() else { return nil }
        guard EC_KEY_set_group(key, group) == 1 else {
            EC_KEY_free(key)
            return nil
        }
        return key
    }

    /// Reads an uncompressed point, which OpenSSL checks to be on the curve.
    static func point(_ bytes: [UInt8]) -> OpaquePointer? {
        guard bytes.count == AgreementKey.pointByteCount, bytes[0] == 4, let group, let point = EC_POINT_new(group)
        else { return nil }
        guard EC_POINT_oct2point(group, point, bytes, bytes.count, nil) == 1 else {
            EC_POINT_free(point)
            return nil
        }
        return point
    }

    static func bytes(of point: OpaquePointer) -> [UInt8]? {
        guard let group else { return nil }
        var bytes = [UInt8](repeating: 0, count: AgreementKey.pointByteCount)
        let count = EC_POINT_point2oct(group, point, POINT_CONVERSION_UNCOMPRESSED, &bytes, bytes.count, nil)
        return count == bytes.count ? bytes : nil
    }
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
