/// The handoff API's bounds, shared by the gateway and sender services.
package enum HandoffBounds {
    /// The maximum number of jobs per lease and of results per call; both fit into one commit of the store.
    package static let jobCount = 500
    package static let leaseSeconds: ClosedRange<Int64> = 5...300
    /// A sender may delay a retry by up to a day; messages are kept for at most three days.
    package static let retryAfterSeconds: ClosedRange<Int64> = 0...86_400
    /// The JSON nesting that a leased job adds around a publisher's body.
    package static let jobDepth = 3
}
