internal import APNs
internal import Cryptography

/// What Apple knows us by: a key that signs provider tokens, or a certificate.
///
/// Confined to the sender's loop.
final class Credential {
    enum Kind {
        case key(SigningKey, keyID: String, teamID: String)
        case certificate
    }

    let name: String
    let kind: Kind
    /// The environments that it may be used in; Apple's keys may be scoped to one.
    let environments: Set<Environment>
    /// Trust and, for a certificate, identity of its connections.
    let tls: TLSContext

    private var clock = ProviderTokenClock()
    private var text = ""

    init(name: String, kind: Kind, environments: Set<Environment>, tls: TLSContext) {
        (self.name, self.kind, self.environments, self.tls) = (name, kind, environments, tls)
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

    /// The provider token of now, signed anew when it is due.
    ///
    /// `now` is in Unix seconds of the wall clock, since Apple compares with its own.
    func token(now: Int64) -> Token {
        guard case .key(let key, let keyID, let teamID) = kind else { return .none }
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

    /// Apple called the token expired.
    func refused() { clock.refused() }

    /// Apple called the updates too many.
    func tooManyUpdates(now: Int64) { clock.tooManyUpdates(now: now) }
}
