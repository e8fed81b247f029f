internal import TextForms

/// A provider token: a JWT signed with ES256 that names the key and the team (RFC 7519).
package struct ProviderToken: Sendable, Equatable {
    package var keyID: String
    package var teamID: String
    /// The issue time in Unix seconds.
    package var issuedAt: Int64

    package init(keyID: String, teamID: String, issuedAt: Int64) {
        (self.keyID, self.teamID, self.issuedAt) = (keyID, teamID, issuedAt)
    }

    /// The signed part: header and claims, each in base64url.
    package var signedPart: [UInt8] {
        let header = "{\"alg\":\"ES256\",\"kid\":\"\(keyID)\",\"typ\":\"JWT\"}"
        let claims = "{\"iss\":\"\(teamID)\",\"iat\":\(issuedAt)}"
        return Array((Base64.encode(header.utf8, .url) + "." + Base64.encode(claims.utf8, .url)).utf8)
    }

    /// Returns the complete token; `sign` returns the 64-byte ES256 signature.
    package func text(sign: ([UInt8]) -> [UInt8]?) -> String? {
        let part = signedPart
        guard let signature = sign(part) else { return nil }
        return String(decoding: part, as: UTF8.self) + "." + Base64.encode(signature, .url)
    }

    /// Returns whether a text has the form of Apple's key ids and team ids: ten capital letters or digits.
    package static func isIdentifier(_ text: String) -> Bool {
        text.utf8.count == 10 && text.isPlain() && text == text.uppercased()
    }
}

/// The schedule for renewing a key's provider token.
///
/// Apple rejects tokens older than an hour. It answers TooManyProviderTokenUpdates if a key's token changes more often than every
/// twenty minutes. One token therefore serves all connections of a key for fifty minutes, plus or minus a jitter.
package struct ProviderTokenClock: Sendable {
    package static let lifetime: Int64 = 50 * 60
    package static let jitter: Int64 = 120
    package static let shortestInterval: Int64 = 20 * 60

    package private(set) var issuedAt: Int64?
    private var renewsAt: Int64 = 0
    private var isRefused = false
    /// No token is issued before this time after Apple answered TooManyProviderTokenUpdates.
    private var rests: Int64 = 0

    package init() {}

    package func mustRenew(now: Int64) -> Bool {
        guard let issuedAt else { return true }
        // The wall clock was set back: Apple would reject a token issued in the future.
        if issuedAt > now + Self.jitter { return true }
        if isRefused { return now >= max(issuedAt + Self.shortestInterval, rests) }
        return now >= renewsAt && now >= rests
    }

    /// Records a new token; `jitter` is from −1 to 1.
    package mutating func renewed(at now: Int64, jitter: Double) {
        issuedAt = now
        isRefused = false
        renewsAt = now + Self.lifetime + Int64(Double(Self.jitter) * min(1, max(-1, jitter)))
    }

    /// Records that Apple rejected the token as expired; it is renewed as soon as Apple's interval allows.
    package mutating func refused() { isRefused = true }

    package mutating func tooManyUpdates(now: Int64) { rests = now + Self.shortestInterval }

    /// Returns the time until which requests pause because the token was rejected and must not be renewed yet, or `nil`.
    package func restsUntil(now: Int64) -> Int64? {
        guard isRefused, let issuedAt, !mustRenew(now: now) else { return nil }
        return max(issuedAt + Self.shortestInterval, rests)
    }
}
