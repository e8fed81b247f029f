internal import APNs
internal import Cryptography

/// The provider token of one key, shared by all that use the key: Apple counts how often it changes.
///
/// Confined to the sender's loop.
final class ProviderTokens {
    private let key: SigningKey
    private let keyID: String
    private let teamID: String
    private var clock = ProviderTokenClock()
    private var text = ""

    init(_ key: SigningKey, keyID: String, teamID: String) {
        (self.key, self.keyID, self.teamID) = (key, keyID, teamID)
    }

    /// When the token of now was signed, in Unix seconds; 0: there is none.
    var issuedAt: Int64 { clock.issuedAt ?? 0 }

    /// The token of now, signed anew when it is due.
    ///
    /// `now` is in Unix seconds of the wall clock, since Apple compares with its own.
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

    /// Apple called a token expired; one that was replaced since says nothing of the new one.
    func refused(issuedAt time: Int64) {
        if time == issuedAt { clock.refused() }
    }

    /// Apple called the updates too many.
    func tooManyUpdates(now: Int64) { clock.tooManyUpdates(now: now) }
}

/// What Apple knows us by: a key that signs provider tokens, or a certificate.
///
/// Confined to the sender's loop.
final class Credential {
    let name: String
    /// The provider tokens of a key; `nil`: a certificate, which needs none.
    let tokens: ProviderTokens?
    /// The environments that it may be used in; Apple's keys may be scoped to one.
    let environments: Set<Environment>
    /// Trust and, for a certificate, identity of its connections.
    let tls: TLSContext

    init(name: String, tokens: ProviderTokens?, environments: Set<Environment>, tls: TLSContext) {
        (self.name, self.tokens, self.environments, self.tls) = (name, tokens, environments, tls)
    }

    /// What a request's header `authorization` needs.
    enum Token {
        /// A certificate needs none.
        case none
        case bearer(String)
        /// Apple refuses the token, and its interval forbids a new one before this, in Unix seconds.
        case resting(until: Int64)
        /// OpenSSL has no memory.
        case failed
    }

    func token(now: Int64) -> Token { tokens?.token(now: now) ?? .none }
}
