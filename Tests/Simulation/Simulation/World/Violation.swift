/// Which promise was seen broken.
package enum ViolationKind: String, CaseIterable, Sendable {
    /// Within one session and round sequences must rise.
    case order
    /// A message was sent, or leased, after it had ended.
    case sentAfterEnd, leasedAfterEnd
    /// An app's handler saw a message twice, outside the gap between handler and persist.
    case handledTwice
    /// A message was sent, or leased, after its time.
    case sentAfterExpiry, leasedAfterExpiry
    /// Two live sessions of one device, or an old session's frame that changed something.
    case fencing
    /// A sequence was used twice, or did not rise.
    case sequence
    /// Window, bytes in flight, queue limits, attempts.
    case bounds
    /// Something left before the batch it depends on was durable.
    case beforeSync
    /// The offline flag is not what the device's state makes it.
    case offlineFlag
    case badge
    /// Books do not add up: counters, rows, traces.
    case books
    /// A final state changed, or came without its reason in the world.
    case finalState
    case strategy
    /// Two leases of one job at a time, or a lease against the rules of its token.
    case lease
    /// A message that reached a device it is not for, or with other content.
    case content
    /// A damaged connection went on as if nothing had happened.
    case damage
    /// The caller's contract with the store.
    case storeContract
    /// After the faults: something is left, waits, or never came.
    case progress
    /// A request id was answered in two ways.
    case request
    /// The gateway turned away a client that did nothing wrong, or the client gave up.
    case refusal
}

package struct Violation: Error, CustomStringConvertible, Sendable {
    package let kind: ViolationKind
    package let text: String
    /// Milliseconds since the run began.
    package let time: Int64

    package var description: String { "\(kind.rawValue) at \(time) ms: \(text)" }
}
