/// Why a connection was closed.
///
/// The hundreds carry the reconnect rule, so that an old client treats a new code sensibly:
///
/// - 1xx: come back at once, with backoff.
/// - 2xx: come back within the window that Close names.
/// - 3xx: correct the named thing, then come back once.
/// - 4xx: do not come back by yourself.
/// - 5xx, the gateway's fault: come back with backoff.
public enum CloseCode: UInt32, Sendable, CaseIterable {
    /// The peer is leaving of its own will.
    case goodbye = 100
    /// Nothing was heard for 1.5 times the heartbeat.
    case heartbeatTimeout = 101
    /// A ping to a suspect session went unanswered.
    case suspectTimeout = 102
    /// The first frame did not come within 5 s.
    case helloTimeout = 103
    /// The client did not read what it was sent.
    case slowReader = 104

    /// The gateway is stopping, or an operator empties it; Close may name another address.
    case shuttingDown = 200
    /// Too many connections or handshakes.
    case overloaded = 201
    /// Another address serves this app.
    case moved = 202
    /// The app is switched off for now.
    case appDisabled = 203

    /// The Hello's timestamp is too far off or not increasing; `server_time` tells the offset. One retry.
    case clockSkew = 300
    /// The cid is not known here: register anew.
    case unknownDevice = 301

    /// Another session of this device took over; do not come back for 30 s.
    case replaced = 400
    case badProof = 401
    case unknownApp = 402
    /// Registration over plain TCP from afar is not allowed here: use TLS.
    case plaintextRegistration = 403
    /// This listener does not serve this role.
    case wrongListener = 404
    /// A frame type that this version does not know or that does not belong here.
    case unexpectedFrame = 410
    /// A frame's length exceeds the limit.
    case frameTooLarge = 411
    /// A body that is no message of its type.
    case malformed = 412
    /// An ack above the highest sequence ever given.
    case badAck = 413
    /// Pings or updates far above any honest rate.
    case floods = 414

    case internalError = 500
    /// The store cannot be read or written now.
    case storeUnavailable = 501
}
