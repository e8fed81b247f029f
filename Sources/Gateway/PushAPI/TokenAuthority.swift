// Self-contained access tokens, signed with a key of the gateway, so that no token must be stored.
//
// A token is 48 bytes in URL base 64, 64 characters: app key (8 bytes), expiry in ms (8), random (8), then the first 24 bytes of
// HMAC-SHA256(gateway key, "longwire token 1" ‖ the 24 bytes before). An app may have several valid tokens. Only revoked tokens
// are stored, until their expiry.

internal import Cryptography
package import Delivery
internal import TextForms
package import Wire

/// The identity of a token in the set of revoked ones.
package struct TokenID: Hashable, Sendable, Codable {
    package var expiresAt: GatewayTime
    package var random: UInt64
    package init(expiresAt: GatewayTime, random: UInt64) { (self.expiresAt, self.random) = (expiresAt, random) }
}

/// Issues and verifies tokens; a value type: each loop has a snapshot, and a revocation is sent to all loops.
package struct TokenAuthority: Sendable {
    private var key: [UInt8]
    private var revoked: RevokedTokens
    /// The earliest accepted time of issue, because revocations of older tokens may be unknown.
    private var trustedFrom: GatewayTime?

    /// - Parameters:
    ///   - key: At least 32 secret random bytes. They must persist over restarts, or all tokens become invalid.
    ///   - revoked: The known revocations of tokens that have not expired.
    ///   - trustedFrom: The time before which revocations may be missing, until `knowsRevoked`.
    package init(
        key: [UInt8], revoked: RevokedTokens = RevokedTokens(), trustedFrom: GatewayTime? = nil
    ) {
        (self.key, self.revoked, self.trustedFrom) = (key, revoked, trustedFrom)
    }

    /// Replaces the key, which invalidates all tokens signed with the old one.
    package mutating func replaceKey(_ key: [UInt8]) { self.key = key }

    /// Accepts older tokens again after all revocations were received.
    package mutating func knowsRevoked() { trustedFrom = nil }

    package mutating func revoke(_ token: TokenID) { revoked.insert(token) }

    /// Whether any revoked tokens have expired.
    package func hasExpired(now: GatewayTime) -> Bool { revoked.hasExpired(now: now) }

    /// Removes and returns up to `limit` expired revocations.
    package mutating func forgetExpired(now: GatewayTime, limit: Int) -> [TokenID] {
        revoked.popExpired(now: now, limit: limit)
    }

    package var revokedTokens: RevokedTokens { revoked }

    package func issue(for app: AppKey, expiresAt: GatewayTime, random: UInt64) -> String {
        var body: [UInt8] = []
        body.reserveCapacity(48)
        for word in [app.word, UInt64(bitPattern: expiresAt), random] { body.append(bigEndian: word) }
        body.append(contentsOf: mac(of: body))
        return Base64.encode(body, .url)
    }

    private func mac(of body: [UInt8]) -> ArraySlice<UInt8> {
        HMACSHA256.code(key: key, message: Array("longwire token 1".utf8) + body).prefix(24)
    }

    /// A decoded token, not yet verified.
    struct Parsed: Equatable {
        var words: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64)
        var app: AppKey { AppKey(words.0) }
        var id: TokenID { TokenID(expiresAt: GatewayTime(bitPattern: words.1), random: words.2) }

        /// Compares in constant time.
        static func == (left: Parsed, right: Parsed) -> Bool {
            let (left, right) = (left.words, right.words)
            let first = (left.0 ^ right.0) | (left.1 ^ right.1) | (left.2 ^ right.2)
            return first | (left.3 ^ right.3) | (left.4 ^ right.4) | (left.5 ^ right.5) == 0
        }

        /// Decodes a token; `nil` unless it is 64 characters of URL base 64.
        init?(_ text: some Collection<UInt8>) {
            guard text.count == 64, let bytes = Base64.decode(text, .url), bytes.count == 48 else { return nil }
            words = bytes.withUnsafeBytes { bytes in
                func word(_ index: Int) -> UInt64 {
                    UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: index * 8, as: UInt64.self))
                }
                return (word(0), word(1), word(2), word(3), word(4), word(5))
            }
        }
    }

    /// Whether this gateway's key signed the token.
    func isAuthentic(_ token: Parsed) -> Bool {
        var body: [UInt8] = []
        for word in [token.words.0, token.words.1, token.words.2] { body.append(bigEndian: word) }
        var code: [UInt8] = []
        for word in [token.words.3, token.words.4, token.words.5] { code.append(bigEndian: word) }
        return constantTimeEquals(code, Array(mac(of: body)))
    }

    /// Whether a verified token has neither expired nor been revoked.
    func isInForce(_ token: Parsed, now: GatewayTime) -> Bool {
        guard token.id.expiresAt > now, !revoked.contains(token.id) else { return false }
        return trustedFrom.map { token.id.expiresAt - Limits.tokenLifetime >= $0 } ?? true
    }
}

/// The last decoded token, so that a busy sender's token is not decoded for each request; it is not verified.
///
/// Confined to one event loop.
struct LastToken {
    private var words = [UInt64](repeating: 0, count: 8)
    private var parsed: TokenAuthority.Parsed?

    mutating func parse(_ text: UnsafeRawBufferPointer) -> TokenAuthority.Parsed? {
        guard text.count == 64 else { return nil }
        // All words are compared, so that the time does not reveal how much of a guess is correct.
        var difference: UInt64 = 0
        for index in 0..<8 {
            difference |= words[index] ^ text.loadUnaligned(fromByteOffset: index * 8, as: UInt64.self)
        }
        if difference == 0, let parsed { return parsed }
        guard let fresh = TokenAuthority.Parsed(text) else { return nil }
        for index in 0..<8 { words[index] = text.loadUnaligned(fromByteOffset: index * 8, as: UInt64.self) }
        parsed = fresh
        return fresh
    }
}

/// A cache of verified tokens, so that a busy sender's token does not cost an HMAC per request; confined to one event loop.
struct TokenCache {
    private var slots = [TokenAuthority.Parsed?](repeating: nil, count: 64)

    func contains(_ token: TokenAuthority.Parsed) -> Bool { slots[Int(token.id.random & 63)] == token }
    mutating func insert(_ token: TokenAuthority.Parsed) { slots[Int(token.id.random & 63)] = token }
    mutating func removeAll() { self = TokenCache() }
}

extension [UInt8] {
    mutating func append(bigEndian word: UInt64) {
        Swift.withUnsafeBytes(of: word.bigEndian) { append(contentsOf: $0) }
    }
}
