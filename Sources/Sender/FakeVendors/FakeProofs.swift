internal import Configuration
internal import Cryptography
internal import TextForms

/// A JSON Web Token in the compact form (RFC 7515, section 7.1).
struct FakeJWT {
    let header: JSON5Node
    let claims: JSON5Node
    let signed: [UInt8]
    let signature: [UInt8]

    init?(_ text: some StringProtocol) {
        let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let head = Base64.decode(parts[0], .url), let body = Base64.decode(parts[1], .url),
            let signature = Base64.decode(parts[2], .url), let header = JSON5Node.strict(head),
            let claims = JSON5Node.strict(body)
        else { return nil }
        (self.header, self.claims, self.signature) = (header, claims, signature)
        signed = Array(parts[0]) + [UInt8(ascii: ".")] + Array(parts[1])
    }

    func number(_ claim: String) -> Int64? { claims.at(claim)?.scalar.flatMap { Int64($0) } }

    /// Whether the token was issued at most five minutes in the future, for at most `seconds`.
    func isTimely(_ seconds: Int64, now: Int64) -> Bool {
        guard let issued = number("iat"), let end = number("exp") else { return false }
        return issued <= now + 300 && end > issued && end - issued <= seconds
    }
}

/// The browser's side of Web Push message encryption (RFC 8291, with one record of RFC 8188).
enum FakeBrowser {
    /// Decrypts a body of `aes128gcm`; the result is `nil` if it does not belong to the subscription.
    static func open(_ body: [UInt8], key: AgreementKey, secret: [UInt8]) -> [UInt8]? {
        // Salt (16), record size (4), length of the key id (1), and the sender's public point (65).
        guard body.count > 86 + 17, body[20] == 65 else { return nil }
        let size = body[16..<20].reduce(0) { $0 << 8 | Int($1) }
        let (salt, point, sealed) = (Array(body[..<16]), Array(body[21..<86]), Array(body[86...]))
        guard size >= sealed.count, let shared = key.sharedSecret(with: point) else { return nil }
        func expand(_ key: [UInt8], _ info: [UInt8], _ count: Int) -> [UInt8] {
            Array(HMACSHA256.code(key: key, message: info + [1]).prefix(count))
        }
        let first = HMACSHA256.code(key: secret, message: shared)
        let material = expand(first, Array("WebPush: info\0".utf8) + key.publicPoint + point, 32)
        let second = HMACSHA256.code(key: salt, message: material)
        let opened = AES128GCM.open(
            sealed, key: expand(second, Array("Content-Encoding: aes128gcm\0".utf8), 16),
            nonce: expand(second, Array("Content-Encoding: nonce\0".utf8), 12))
        // The delimiter 2 marks the last record; zeros after it are padding.
        guard var text = opened, let end = text.lastIndex(where: { $0 != 0 }), text[end] == 2 else { return nil }
        text.removeSubrange(end...)
        return text
    }
}
