internal import Delivery
internal import EventLoops
internal import Wire

/// One connection on the device listener: first a handshake, then a session.
///
/// Everything that can be decided without the device's record is decided here, on whichever loop accepted it; then the
/// connection moves to the device's loop, which checks the proof against the stored secret.
final class DeviceConnection: StreamDelegate {
    private enum Phase {
        /// Nothing but a Hello may come, and soon.
        case awaitingHello
        /// The shard has the Hello; the device may not speak before the Welcome.
        case awaitingWelcome(SessionRef)
        case open(SessionRef)
        case closed
    }

    private unowned let owner: GatewayLoop
    private var stream: ByteStream?
    private let isSecure: Bool
    private var phase = Phase.awaitingHello

    private init(owner: GatewayLoop, isSecure: Bool) {
        (self.owner, self.isSecure) = (owner, isSecure)
    }

    /// Takes a fresh connection from the listener.
    static func accept(_ stream: ByteStream, isSecure: Bool, on owner: GatewayLoop) -> DeviceConnection {
        let connection = DeviceConnection(owner: owner, isSecure: isSecure)
        connection.stream = stream
        return connection
    }
}
