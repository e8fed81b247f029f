internal import TextForms

/// A provider token: a JWT signed by ES256 that names the key and the team (RFC 7519).
package struct ProviderToken: Sendable, Equatable {
    package var keyID: String
    package var teamID: String
    /// Unix seconds.
    package var issuedAt: Int64

    package init(keyID: String, teamID: String, issuedAt: Int64) {
        (self.keyID, self.teamID, self.issuedAt) = (keyID, teamID, issuedAt)
    }

    /// What is signed: header and claims, each in base64url.
    package var signedPart: [UInt8] {
        let header = "{\"alg\":\"ES256\",\"kid\":\"\(keyID)\",\"typ\":\"JWT\"}"
        let claims = "{\"iss\":\"\(teamID)\",\"iat\":\(issuedAt)}"
        return Array((Base64.encode(header.utf8, .url) + "." + Base64.encode(claims.utf8, .url)).utf8)
    }

    /// The whole token; `sign` gives the 64 bytes of ES256.
    package func text(sign: ([UInt8]) -> [UInt8]?) -> String? {
        let part = signedPart
        guard let signature = sign(part) else { return nil }
        return String(decoding: part, as: UTF8.self) + "." + Base64.encode(signature, .url)
    }

    /// Apple gives key ids and team ids of ten characters.
    package static func isIdentifier(_ text: String) -> Bool {
        text.utf8.count == 10 && text.isPlain() && text == text.uppercased()
    }
}

/// When a key's provider token is renewed.
///
/// Apple refuses tokens older than an hour, and answers TooManyProviderTokenUpdates to a key whose token changes more often
/// than every twenty minutes. So one token serves all connections of a key for fifty minutes, less or more by a jitter.
package struct ProviderTokenClock: Sendable {
    package static let lifetime: Int64 = 50 * 60
    package static let jitter: Int64 = 120
    package static let shortestInterval: Int64 = 20 * 60

    package private(set) var issuedAt: Int64?
    private var renewsAt: Int64 = 0
    private var isRefused = false
    /// Apple asked for fewer updates: no new token before this.
    private var rests: Int64 = 0

    package init() {}

    /// Whether a request at `now` needs a new token.
    package func mustRenew(now: Int64) -> Bool {
        guard let issuedAt else { return true }
        // The wall clock went back: a token from the future would be refused.
        if issuedAt > now + Self.jitter { return true }
        if isRefused { return now >= max(issuedAt + Self.shortestInterval, rests) }
        return now >= renewsAt && now >= rests
    }

    /// A token was made; `jitter` is from −1 to 1.
    package mutating func renewed(at now: Int64, jitter: Double) {
        issuedAt = now
        isRefused = false
        renewsAt = now + Self.lifetime + Int64(Double(Self.jitter) * min(1, max(-1, jitter)))
    }

    /// Apple called the token expired: renewed as soon as Apple's interval allows.
    package mutating func refused() { isRefused = true }

    /// Apple called the updates too many.
    package mutating func tooManyUpdates(now: Int64) { rests = now + Self.shortestInterval }

    /// Until when requests rest, because the token is refused and may not be renewed yet; `nil`: they may go.
    package func restsUntil(now: Int64) -> Int64? {
        guard isRefused, let issuedAt, !mustRenew(now: now) else { return nil }
        return max(issuedAt + Self.shortestInterval, rests)
    }
}
