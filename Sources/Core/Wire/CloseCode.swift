/// The reason for closing a connection.
///
/// The hundreds define the reconnect rule, so that an old client handles new codes:
///
/// - 1xx: reconnect immediately, with backoff.
/// - 2xx: reconnect within the window given in Close.
/// - 3xx: correct the named fault, then reconnect once.
/// - 4xx: do not reconnect automatically.
/// - 5xx, a fault of the gateway: reconnect with backoff.
public enum CloseCode: UInt32, Sendable, CaseIterable {
    /// The peer disconnects intentionally.
    case goodbye = 100
    /// No frame arrived for 1.5 heartbeat intervals.
    case heartbeatTimeout = 101
    /// A ping to a suspect session was not answered.
    case suspectTimeout = 102
    /// The first frame did not arrive within 5 s.
    case helloTimeout = 103
    /// The client did not read the data sent to it.
    case slowReader = 104

    /// The gateway stops or is drained by an operator; Close may name another address.
    case shuttingDown = 200
    /// Too many connections or handshakes.
    case overloaded = 201
    /// Another address serves this app.
    case moved = 202
    /// The app is disabled temporarily.
    case appDisabled = 203

    /// The Hello's timestamp is too far off or not increasing; `server_time` gives the offset for one retry.
    case clockSkew = 300
    /// The cid is unknown; the device must register again.
    case unknownDevice = 301

    /// Another session of this device took over; the client must not reconnect for 30 s.
    case replaced = 400
    case badProof = 401
    case unknownApp = 402
    /// Registration over plain TCP from a remote address is not allowed; the client must use TLS.
    case plaintextRegistration = 403
    /// This listener does not serve this role.
    case wrongListener = 404
    /// The frame type is unknown or not allowed here.
    case unexpectedFrame = 410
    case frameTooLarge = 411
    /// The body cannot be decoded as a message of its type.
    case malformed = 412
    /// The ack is above the highest assigned sequence.
    case badAck = 413
    /// The rate of pings or updates is far above that of a correct client.
    case floods = 414

    case internalError = 500
    /// The store cannot be read or written at present.
    case storeUnavailable = 501
}
