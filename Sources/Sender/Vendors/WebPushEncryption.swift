internal import Cryptography

/// Message encryption for Web Push (RFC 8291) in one record of `aes128gcm` (RFC 8188).
enum WebPushEncryption {
    static let recordByteCount = 4_096
    /// A record of 4,096 bytes without header (86), delimiter (1) and tag (16): RFC 8291, section 4.
    static let plaintextByteCount = 3_993

    /// Encrypts one message; `salt` (16 random bytes) and `key` must be new for each message.
    ///
    /// - Returns: the body, or `nil` if the subscription's point is not on the curve or OpenSSL has no memory.
    static func body(
        _ plaintext: [UInt8], publicPoint: [UInt8], secret: [UInt8], salt: [UInt8], key: AgreementKey
    ) -> [UInt8]? {
        guard plaintext.count <= plaintextByteCount, salt.count == 16,
            let shared = key.sharedSecret(with: publicPoint)
        else { return nil }
        let keyOfSecret = HMACSHA256.code(key: secret, message: shared)
        let info = Array("WebPush: info".utf8) + [0] + publicPoint + key.publicPoint + [1]
        let material = HMACSHA256.code(key: keyOfSecret, message: info)
        let pseudorandom = HMACSHA256.code(key: salt, message: material)
        func derived(_ label: String, _ count: Int) -> [UInt8] {
            let message = Array("Content-Encoding: \(label)".utf8) + [0, 1]
            return Array(HMACSHA256.code(key: pseudorandom, message: message).prefix(count))
        }
        // The delimiter 2 marks the last record.
        let sealed = AES128GCM.seal(plaintext + [2], key: derived("aes128gcm", 16), nonce: derived("nonce", 12))
        guard let sealed else { return nil }
        let size = UInt32(recordByteCount)
        let sizeBytes = [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: size >> $0) }
        return salt + sizeBytes + [UInt8(key.publicPoint.count)] + key.publicPoint + sealed
    }
}
