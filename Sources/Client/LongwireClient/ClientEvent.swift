public import Wire

/// An event of a client other than a message.
///
/// Later versions may add cases: keep a `default` in a switch over it.
public enum ClientEvent: Equatable, Sendable {
    /// A new device was registered and its credentials are stored.
    case registered(DeviceID)
    /// The gateway no longer knows the stored device; a new registration follows.
    case registrationLost(DeviceID)
    /// The client begins to connect to this address.
    case connecting(host: String, port: UInt16)
    /// The gateway accepted the session.
    case welcomed(WelcomeDetails)
    /// The gateway restored or replaced the device's queue; the client discards its stream positions.
    case queueReset(from: UInt64, to: UInt64)
    /// The gateway closed the connection with this code.
    case closed(code: UInt32, reason: String)
    /// The connection ended without a Close, or was not established.
    case disconnected(reason: String)
    /// The client reconnects after this delay, in milliseconds.
    case retrying(afterMilliseconds: Int64)
    /// The gateway answered a DeviceUpdate.
    ///
    /// Code 0 means that it was applied (docs/use/Errors.md, "UpdateResult and UpstreamResult codes").
    case updated(request: UInt32, code: UInt32, reason: String)
    /// A message that was not handed to the app: it was processed or rejected before, or opened from its notification.
    case suppressed(MessageID, sequence: UInt64, wasOpened: Bool)
    /// A message that arrived while the app was suspended; it is not acked, and the gateway sends it again with new flags.
    case droppedWhileSuspended(MessageID, sequence: UInt64)
    /// The publisher revoked the task; the app should remove what it showed of the task.
    case revoked(TaskID)
    /// The gateway has stored this message for the app's server on its disk.
    case messageTaken(OutgoingMessage)
    /// The gateway refused the message to the app's server (docs/use/Errors.md, "UpdateResult and UpstreamResult codes").
    ///
    /// Code 0 means that the client's own queue is full.
    case messageRefused(OutgoingMessage, code: UInt32, reason: String)
    /// A request about the device's names was answered. The call returns the same answer.
    case namesAnswered(NamesAnswer)
    /// A fetch has ended after this number of handled messages.
    ///
    /// `isComplete` is true if the gateway then sent nothing for 1.5 s.
    case fetched(messages: Int, isComplete: Bool)
    /// The state could not be stored; nothing was acked, and the client retries later.
    case stateNotStored(LongwireClientError)
    /// The client has stopped until its next start; the error is `nil` after `LongwireClient.stop`.
    case stopped(LongwireClientError?)
}

/// The contents of the gateway's Welcome.
public struct WelcomeDetails: Equatable, Sendable {
    /// The id of this device.
    public var cid: DeviceID
    /// The number of this session; it increases with each session of the device.
    public var generation: UInt64
    /// The epoch of the device's queue; stream positions are valid only within one epoch.
    public var queueEpoch: UInt64
    /// The heartbeat of this session, in seconds; 0 if the gateway named none.
    public var heartbeatSeconds: UInt32
    /// The maximum number of un-acked messages in flight.
    public var window: UInt32
    /// The gateway's clock, in milliseconds since 1970.
    public var serverTime: UInt64
    /// The number of messages queued for this device.
    public var backlog: UInt64
    /// The number of messages that ended undelivered since the last session, by final state.
    public var dropped: [Dropped]

    init(_ welcome: Welcome, cid: DeviceID) {
        self.cid = cid
        (generation, queueEpoch) = (welcome.generation, welcome.queueEpoch)
        (heartbeatSeconds, window) = (welcome.heartbeatSeconds, welcome.window)
        (serverTime, backlog, dropped) = (welcome.serverTime, welcome.backlog, welcome.dropped)
    }
}
