public import Wire

/// A message for the app.
public struct ReceivedMessage: Equatable, Sendable {
    /// The stream: 0 direct, 1 broadcast.
    public var stream: UInt32
    /// The message's number, strictly increasing within a stream.
    public var sequence: UInt64
    /// The message's id, equal to the one in its notification.
    public var messageID: MessageID
    /// The publisher's task.
    public var taskID: TaskID
    /// The publisher's bytes, unchanged.
    public var payload: [UInt8]
    /// Whether the device was unreachable when the gateway accepted the message, or the first delivery timed out.
    ///
    /// The user may have seen a notification in that case.
    public var isOffline: Bool
    /// The time when the gateway accepted the message, in milliseconds since 1970.
    public var acceptedAt: UInt64
    /// The time when the vendor accepted the alert, in milliseconds since 1970, or 0.
    public var alertedAt: UInt64
    /// The number of times that the message was sent in this session, from 1.
    public var attempt: UInt32
    /// The publisher's collapse key, or empty.
    public var collapseKey: String
    /// The title and body of the message's alert, if it has one.
    public var alert: Alert?
    /// Whether `LongwireClient.presentation` returned `hide` for the message's notification before the message arrived.
    public var wasAlertHidden = false
    /// Whether the user opened the message's notification, so that the app has shown its content already.
    public var wasOpened = false

    /// The registration and queue that the sequence belongs to; sequences restart with another registration or queue.
    struct Origin: Equatable, Sendable {
        var cid = DeviceID.none
        var queueEpoch: UInt64 = 0
    }
    var origin = Origin()

    /// Whether both are copies of one message; their flags may differ.
    func isSame(as other: ReceivedMessage) -> Bool {
        (origin, stream, sequence) == (other.origin, other.stream, other.sequence)
    }

    /// The earlier presentation of this message to the user.
    public var provenance: Provenance {
        if wasAlertHidden, !wasOpened { return .live }
        if alertedAt != 0 { return .alerted(at: alertedAt) }
        return isOffline ? .queued : .live
    }

    /// The way in which a message reached the app.
    public enum Provenance: Equatable, Sendable {
        /// The message was not shown to the user: it was delivered at once, or its notification was hidden.
        case live
        /// The message was queued for the device; no vendor has accepted an alert for it.
        case queued
        /// A vendor accepted the alert at this gateway time, in milliseconds since 1970; the user may have seen it.
        case alerted(at: UInt64)
    }

    init(_ deliver: Deliver) {
        (stream, sequence, messageID) = (deliver.stream, deliver.sequence, deliver.messageID)
        (taskID, payload, isOffline) = (deliver.taskID, deliver.payload, deliver.offline)
        (acceptedAt, alertedAt, attempt) = (deliver.acceptedAt, deliver.alertedAt, deliver.attempt)
        (collapseKey, alert) = (deliver.collapseKey, deliver.alert)
    }
}

/// The app's decision about a message.
public enum MessageVerdict: Equatable, Sendable {
    /// The message is done; it is recorded, then acked, and not delivered again.
    case processed
    /// The app can never process the message.
    ///
    /// The gateway marks it as failed. The reason is truncated to 128 Unicode scalars.
    case rejected(reason: String)
    /// The message stays un-acked; it is delivered again in a later session, or through the vendor.
    case deferred
}

/// The alert of a message, under a name that does not conflict with SwiftUI.
public typealias MessageAlert = Wire.Alert
