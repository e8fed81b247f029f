/// A vendor's API with one credential.
///
/// Implementations are immutable values; every time is in Unix seconds.
package protocol VendorAPI: Sendable {
    var vendor: Vendor { get }

    /// Returns the request for a new access token; `nil` unless the vendor's `tokenKind` is `exchanged`.
    func tokenRequest(now: Int64) -> VendorRequest?

    /// Returns the access token in the answer to `tokenRequest`.
    func readToken(_ reply: VendorReply, now: Int64) -> Result<AccessToken, VendorFault>

    /// Returns the scope of a signed token: messages with the same scope share a token. Only Web Push has more than one scope.
    func tokenScope(of message: VendorMessage) -> String

    /// Signs a token; `nil` if the vendor's `tokenKind` is not `signed`, or if OpenSSL has no memory.
    func signToken(scope: String, now: Int64) -> AccessToken?

    /// Returns the request that sends `message`, or throws the first rule that the message violates.
    ///
    /// No part of a message is ever cut. `bearer` is the text of the access token or signed token; it may be `nil` only if
    /// `tokenKind` is `none`.
    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest

    /// Returns the outcome of a request for the device with this token.
    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome

    /// Returns a request that checks the credential without delivering anything, or `nil` if the token request is the only check.
    func testRequest(bearer: String?, now: Int64) -> VendorRequest?

    /// Interprets the answer to `testRequest`; `nil` if it proves that the vendor accepts the credential.
    func testFailure(_ reply: VendorReply, now: Int64) -> VendorFault?
}

extension VendorAPI {
    package func tokenRequest(now: Int64) -> VendorRequest? { nil }
    package func readToken(_ reply: VendorReply, now: Int64) -> Result<AccessToken, VendorFault> {
        .failure(.credentialRefused(reason: "NoTokenRequest", advice: "this vendor has no token request"))
    }
    package func tokenScope(of message: VendorMessage) -> String { "" }
    package func signToken(scope: String, now: Int64) -> AccessToken? { nil }
    package func testRequest(bearer: String?, now: Int64) -> VendorRequest? { nil }

    package func testFailure(_ reply: VendorReply, now: Int64) -> VendorFault? {
        switch outcome(of: reply, token: "", now: now) {
        // An answer without a readable code may come from a proxy, so the answer proves nothing.
        case let outcome where outcome.reason.hasPrefix("HTTP"): Self.fault(outcome)
        // A vendor that examined the message has accepted the credential.
        case .accepted, .rejected, .badToken, .quotaUsedUp, .postponed: nil
        case let outcome: Self.fault(outcome)
        }
    }

    private static func fault(_ outcome: VendorOutcome) -> VendorFault {
        switch outcome {
        case .accepted, .rejected, .badToken, .quotaUsedUp, .postponed:
            .retry(afterSeconds: nil, reason: outcome.reason)
        // A rate limit may be checked before the credential.
        case .tooFast(let seconds, let reason): .retry(afterSeconds: seconds, reason: reason)
        case .retry(let seconds, let reason): .retry(afterSeconds: seconds, reason: reason)
        case .unknown(let reason): .retry(afterSeconds: nil, reason: reason)
        case .renewToken(let reason):
            .credentialRefused(reason: reason, advice: "the vendor refuses the access token it issued")
        case .credentialRefused(let reason, let advice): .credentialRefused(reason: reason, advice: advice)
        }
    }
}
