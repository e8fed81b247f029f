internal import Vendors

/// The access token of a lane: at most one request for it is under way.
struct VendorToken {
    enum Bearer: Equatable {
        /// The token's text; `nil` for a vendor without tokens.
        case ready(String?)
        /// A token must be requested, or its request is under way.
        case awaited
        /// Signing failed.
        case unsigned
    }

    private let kind: TokenKind
    private var current: AccessToken?
    private(set) var isAwaited = false
    private(set) var failureCount = 0
    private var requestsAt: UInt64 = 0

    init(_ kind: TokenKind) { self.kind = kind }

    /// Returns the token for a request at `now`, in Unix seconds; `sign` makes a new one where tokens are signed.
    mutating func bearer(now: Int64, sign: (Int64) -> AccessToken?) -> Bearer {
        switch kind {
        case .none: return .ready(nil)
        case .exchanged: return isUsable(now: now) ? .ready(current?.text) : .awaited
        case .signed:
            if current.map({ now >= $0.renewsAt }) ?? true { current = sign(now) }
            return current.map { .ready($0.text) } ?? .unsigned
        }
    }

    func isUsable(now: Int64) -> Bool { current.map { now < $0.expiresAt } ?? false }

    /// Whether a usable token should be renewed in the background.
    func isDue(now: Int64) -> Bool { kind == .exchanged && current.map { now >= $0.renewsAt } ?? false }

    /// Drops the token if it is still the one that the vendor refused.
    mutating func refuse(_ text: String?) {
        if current?.text == text { current = nil }
    }

    /// Whether a request may begin; `now` is in the loop's milliseconds.
    func mayBegin(_ now: UInt64) -> Bool { !isAwaited && now >= requestsAt }
    mutating func begin() { isAwaited = true }

    mutating func succeed(_ token: AccessToken) {
        (current, isAwaited, failureCount, requestsAt) = (token, false, 0, 0)
    }

    mutating func fail(_ now: UInt64, milliseconds: UInt64) {
        isAwaited = false
        failureCount += 1
        requestsAt = now + milliseconds
    }

    /// Allows a request at once, because the lane itself backs off.
    mutating func allow() { requestsAt = 0 }
}
