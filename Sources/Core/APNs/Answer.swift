/// Apple's answer to one request.
package struct Answer: Sendable, Equatable {
    package var status: Int
    /// The body's `reason`; empty when there was none.
    package var reason: String
    /// With 410: since when the token has been invalid, in milliseconds.
    package var timestamp: Int64
    /// The header `retry-after`, in seconds.
    package var retryAfter: Int64?

    package init(status: Int, reason: String = "", timestamp: Int64 = 0, retryAfter: Int64? = nil) {
        (self.status, self.reason, self.timestamp, self.retryAfter) = (status, reason, timestamp, retryAfter)
    }

    /// What to do about it.
    ///
    /// A reason that this version does not know is data: its status decides.
    package var action: Action {
        if status == 200 { return .accept }
        if let known = Reason(rawValue: reason) { return known.action }
        switch status {
        case 403: return .restCredential
        case 410: return .voidToken
        case 429: return .slowDownToken
        case 413: return .reject
        case 500...599: return .retry
        // What is refused for a reason that we do not know would be refused again. Without any reason it is no word of
        // Apple's: a proxy or another server may stand in its place.
        case 400...499: return reason.isEmpty ? .retry : .reject
        default: return .retry
        }
    }

    /// The text for results, traces and logs.
    package var name: String {
        if !reason.isEmpty { return reason }
        return status == 200 ? "" : "status \(status)"
    }
}
