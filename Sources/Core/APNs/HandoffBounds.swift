/// The handoff API's bounds, for the gateway and for sender services.
package enum HandoffBounds {
    /// Jobs of one lease, and results of one call: both fit one committed batch a loop comfortably.
    package static let jobCount = 500
    package static let leaseSeconds: ClosedRange<Int64> = 5...300
    /// A sender may put off a retry for a day; a message is kept for three.
    package static let retryAfterSeconds: ClosedRange<Int64> = 0...86_400
    /// Containers that a leased job may have around the body that a publisher nested.
    package static let jobDepth = 3
}
