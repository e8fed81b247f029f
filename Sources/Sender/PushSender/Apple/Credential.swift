internal import APNs
internal import Cryptography

/// The provider token of one key.
///
/// All users of the key share it, because Apple limits how often it changes. Confined to the sender's loop.
final class ProviderTokens {
    private let key: SigningKey
    private let keyID: String
    private let teamID: String
    private var clock = ProviderTokenClock()
    private var text = ""

    init(_ key: SigningKey, keyID: String, teamID: String) {
        (self.key, self.keyID, self.teamID) = (key, keyID, teamID)
    }

    /// The time when the current token was signed, in Unix seconds, or 0.
    var issuedAt: Int64 { clock.issuedAt ?? 0 }

    /// Returns the current token, and signs a new one when it is due.
    ///
    /// `now` is the wall clock in Unix seconds: Apple compares the token's time with its own clock.
    func token(now: Int64) -> Credential.Token {
        if clock.mustRenew(now: now) {
            let token = ProviderToken(keyID: keyID, teamID: teamID, issuedAt: now)
            guard let made = token.text(sign: { key.sign($0) }) else { return .failed }
            text = "bearer " + made
            clock.renewed(at: now, jitter: .random(in: -1...1))
        } else if let time = clock.restsUntil(now: now) {
            return .resting(until: time)
        }
        return .bearer(text)
    }

    /// Records that Apple called a token expired; a token that was replaced since is ignored.
    func refused(issuedAt time: Int64) {
        if time == issuedAt { clock.refused() }
    }

    func tooManyUpdates(now: Int64) { clock.tooManyUpdates(now: now) }
}

/// A key that signs provider tokens, or a client certificate for Apple.
///
/// Confined to the sender's loop.
final class Credential {
    let name: String
    /// The provider tokens of a key, or `nil` for a certificate.
    let tokens: ProviderTokens?
    /// The permitted environments; Apple's keys may be limited to one.
    let environments: Set<Environment>
    /// The TLS settings: trusted roots and, for a certificate, the client certificate.
    let tls: TLSContext

    init(name: String, tokens: ProviderTokens?, environments: Set<Environment>, tls: TLSContext) {
        (self.name, self.tokens, self.environments, self.tls) = (name, tokens, environments, tls)
    }

    enum Token {
        /// No token, because the credential is a certificate.
        case none
        case bearer(String)
        /// Apple refuses the token, and a new one is not allowed before this time, in Unix seconds.
        case resting(until: Int64)
        /// Signing failed: OpenSSL is out of memory.
        case failed
    }

    func token(now: Int64) -> Token { tokens?.token(now: now) ?? .none }
}
