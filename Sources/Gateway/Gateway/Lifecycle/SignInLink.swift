internal import Configuration
internal import Cryptography
internal import Platform

/// The console's one-time link of a trial start, which saves a newcomer from copying the generated admin token.
///
/// The link has a random code, which the admin API exchanges once for the token. It is printed only to a terminal, never to a log.
/// The code is in the link's fragment, which browsers keep out of requests and `Referer`.
final class SignInLink: Sendable {
    static let validMilliseconds: Int64 = 15 * 60_000

    private struct Offer {
        var code: Secret
        var token: Secret
        var end: Int64
    }

    private let offer = Lock<Offer?>(nil)

    /// Returns a new code for the token; an earlier code becomes invalid.
    func makeCode(for token: Secret, now: Int64) -> String {
        let code = SecureRandom.bytes(24).map { byte in
            let digits = String(byte, radix: 16)
            return digits.count < 2 ? "0\(digits)" : digits
        }.joined()
        offer.withLock { $0 = Offer(code: Secret(code), token: token, end: now + Self.validMilliseconds) }
        return code
    }

    /// Returns the token for a valid code, which becomes invalid; `nil` for any other code.
    func take(_ code: [UInt8], now: Int64) -> Secret? {
        offer.withLock { offer in
            guard let known = offer, now < known.end, known.code.matches(code) else { return nil }
            offer = nil
            return known.token
        }
    }
}
