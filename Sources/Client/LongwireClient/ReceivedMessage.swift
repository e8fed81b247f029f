public import Wire

/// One message as the app sees it.
public struct ReceivedMessage: Equatable, Sendable {
    /// 0 direct, 1 broadcast.
    public var stream: UInt32
    /// Strictly increasing within a stream.
    public var sequence: UInt64
    public var messageID: MessageID
    public var taskID: TaskID
    /// The publisher's bytes, verbatim.
    public var payload: [UInt8]
    /// True when the device was not reachable at acceptance or the live attempt timed out: the user may have seen a
    /// notification already.
    public var isOffline: Bool
    /// Gateway time, milliseconds since 1970.
    public var acceptedAt: UInt64
    /// When the vendor accepted the alert; 0: never.
    public var alertedAt: UInt64
    public var attempt: UInt32
    public var collapseKey: String
    public var alert: Alert?
    /// The user opened its notification already: the app has shown what that carried.
    public var wasOpened = false

    /// Whose sequence it has: another registration, or another queue, counts anew.
    struct Origin: Equatable, Sendable {
        var cid = DeviceID.none
        var queueEpoch: UInt64 = 0
    }
    var origin = Origin()

    /// Another copy may have other flags.
    func isSame(as other: ReceivedMessage) -> Bool {
        (origin, stream, sequence) == (other.origin, other.stream, other.sequence)
    }

    /// What the user may have seen of it before.
    public var provenance: Provenance {
        if alertedAt != 0 { return .alerted(at: alertedAt) }
        return isOffline ? .queued : .live
    }

    /// How a message came to be where it is.
    public enum Provenance: Equatable, Sendable {
        /// It comes as it is published; nothing of it was shown.
        case live
        /// It waited for the device; no vendor has accepted an alert of it.
        case queued
        /// A vendor accepted its alert at this gateway time, in milliseconds: the user may have seen it.
        case alerted(at: UInt64)
    }

    init(_ deliver: Deliver) {
        (stream, sequence, messageID) = (deliver.stream, deliver.sequence, deliver.messageID)
        (taskID, payload, isOffline) = (deliver.taskID, deliver.payload, deliver.offline)
        (acceptedAt, alertedAt, attempt) = (deliver.acceptedAt, deliver.alertedAt, deliver.attempt)
        (collapseKey, alert) = (deliver.collapseKey, deliver.alert)
    }
}

/// What the app made of a message.
public enum MessageVerdict: Equatable, Sendable {
    /// Done with: it is recorded, then acked, and never shown again.
    case processed
    /// The app can never process it; the gateway ends it as failed. The reason is up to 128 characters.
    case rejected(reason: String)
    /// Not now: it stays un-acked and comes again in a later session, or through the vendor.
    case deferred
}

/// A message's alert, under a name that SwiftUI does not have.
public typealias MessageAlert = Wire.Alert
