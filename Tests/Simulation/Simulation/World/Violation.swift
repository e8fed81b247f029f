/// The promise that was broken.
package enum ViolationKind: String, CaseIterable, Sendable {
    /// Sequences did not increase within one session and round.
    case order
    case sentAfterEnd, leasedAfterEnd
    /// An app's handler received a message twice, outside the gap between handler and persist.
    case handledTwice
    case sentAfterExpiry, leasedAfterExpiry
    /// Two live sessions of one device, or a frame of an old session that had an effect.
    case fencing
    /// A sequence was used twice or did not increase.
    case sequence
    /// A limit was exceeded: window, bytes in flight, queue or attempts.
    case bounds
    /// An effect left before the batch that it depends on was durable.
    case beforeSync
    /// The offline flag contradicts the device's state.
    case offlineFlag
    case badge
    /// Counters, rows and traces do not add up.
    case books
    /// A final state changed or has no cause.
    case finalState
    case strategy
    /// Two concurrent leases of one job, or a lease that violates its token's rules.
    case lease
    /// A message reached the wrong device or has wrong content.
    case content
    /// A damaged connection stayed open.
    case damage
    case storeContract
    /// Pending work did not finish after the faults ended.
    case progress
    /// A request id was answered in two ways.
    case request
    /// The gateway refused a correct client, or the client gave up.
    case refusal
}

package struct Violation: Error, CustomStringConvertible, Sendable {
    package let kind: ViolationKind
    package let text: String
    /// Milliseconds since the run began.
    package let time: Int64

    package var description: String { "\(kind.rawValue) at \(time) ms: \(text)" }
}
