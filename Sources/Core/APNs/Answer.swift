package struct Answer: Sendable, Equatable {
    package var status: Int
    /// The `reason` of the body, or empty without one.
    package var reason: String
    /// With status 410: the time since which the token has been invalid, in milliseconds.
    package var timestamp: Int64
    /// The `retry-after` header, in seconds.
    package var retryAfter: Int64?

    package init(status: Int, reason: String = "", timestamp: Int64 = 0, retryAfter: Int64? = nil) {
        (self.status, self.reason, self.timestamp, self.retryAfter) = (status, reason, timestamp, retryAfter)
    }

    /// The action to take; for an unknown reason the status decides.
    package var action: Action {
        if status == 200 { return .accept }
        if let known = Reason(rawValue: reason) { return known.action }
        switch status {
        case 403: return .restCredential
        case 410: return .voidToken
        case 429: return .slowDownToken
        case 413: return .reject
        case 500...599: return .retry
        // A retry after an unknown reason would be rejected again. A response without any reason may come from a proxy or another
        // server, so it is retried.
        case 400...499: return reason.isEmpty ? .retry : .reject
        default: return .retry
        }
    }

    package var name: String {
        if !reason.isEmpty { return reason }
        return status == 200 ? "" : "status \(status)"
    }
}
