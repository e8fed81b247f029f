public import Wire

/// What happens to a client besides messages.
///
/// Later versions may add cases: keep a `default` in a switch over it.
public enum ClientEvent: Equatable, Sendable {
    /// A new device was minted and is stored.
    case registered(DeviceID)
    /// The gateway does not know the stored device any more; a new registration follows.
    case registrationLost(DeviceID)
    case connecting(host: String, port: UInt16)
    case welcomed(WelcomeDetails)
    /// The gateway's queue was restored or is another one: positions begin anew.
    case queueReset(from: UInt64, to: UInt64)
    /// The connection ended by a Close of the gateway.
    case closed(code: UInt32, reason: String)
    /// The connection ended without one, or was not made.
    case disconnected(reason: String)
    /// The next attempt comes after this time.
    case retrying(afterMilliseconds: Int64)
    case updated(request: UInt32, code: UInt32, reason: String)
    /// Acked without being shown: processed before, or opened from its notification.
    case suppressed(MessageID, sequence: UInt64, wasOpened: Bool)
    /// Read while suspended and left un-acked: the gateway sends it again with its flags computed anew.
    case droppedWhileSuspended(MessageID, sequence: UInt64)
    /// The task was revoked: take back what was shown of it.
    case revoked(TaskID)
    /// The gateway has this message to the app's server on disk.
    case messageTaken(OutgoingMessage)
    /// The gateway will not take it (docs/use/Errors.md, "UpdateResult and UpstreamResult codes").
    ///
    /// With code 0 too many wait here already.
    case messageRefused(OutgoingMessage, code: UInt32, reason: String)
    /// A fetch has ended: these messages were handled. Complete: the gateway had no more, as far as its silence tells.
    case fetched(messages: Int, isComplete: Bool)
    /// The state could not be stored; nothing was acked, and the client tries again later.
    case stateNotStored(LongwireClientError)
    /// The client will do nothing more until it is started again. `nil`: it was asked to stop.
    case stopped(LongwireClientError?)
}

/// The gateway's welcome, as far as an app may want to know it.
public struct WelcomeDetails: Equatable, Sendable {
    public var cid: DeviceID
    public var generation: UInt64
    public var queueEpoch: UInt64
    public var heartbeatSeconds: UInt32
    public var window: UInt32
    public var serverTime: UInt64
    /// Messages queued for this device.
    public var backlog: UInt64
    /// What ended unseen since the last visit, by final state.
    public var dropped: [Dropped]

    init(_ welcome: Welcome, cid: DeviceID) {
        self.cid = cid
        (generation, queueEpoch) = (welcome.generation, welcome.queueEpoch)
        (heartbeatSeconds, window) = (welcome.heartbeatSeconds, welcome.window)
        (serverTime, backlog, dropped) = (welcome.serverTime, welcome.backlog, welcome.dropped)
    }
}
