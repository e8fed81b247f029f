internal import Delivery
internal import EventLoops
internal import Wire

/// Why a connection is closed, and when its client may come again: a Close frame without its bytes.
struct Refusal: Error {
    /// Says whether to come again.
    var code: CloseCode
    /// For people.
    var reason: StaticString
    /// When to come again, in milliseconds; otherwise what goes with the code.
    var window: (UInt32, UInt32)?
    /// Where the client goes at once; empty: nowhere in particular.
    var alternate = ""

    init(_ code: CloseCode, _ reason: StaticString, window: (UInt32, UInt32)? = nil, alternate: String = "") {
        (self.code, self.reason, self.window, self.alternate) = (code, reason, window, alternate)
    }

    static let noRoom = Refusal(.overloaded, "the gateway holds as many connections as it may; come back later")
    static let stopping = Refusal(.shuttingDown, "the gateway is stopping")
    static let unmovable = Refusal(.internalError, "the connection could not be moved")
    /// Nothing is committed for the device's part now, and its Hello would keep others waiting.
    static let standing = Refusal(
        .overloaded, "the store of this device's part does not answer; come back later")
    static let appDisabled = Refusal(.appDisabled, "the app is disabled")

    /// More devices return than can be welcomed at once.
    static func storm(_ window: (UInt32, UInt32)? = nil) -> Refusal {
        Refusal(.overloaded, "more devices come back than can be welcomed at once; come back later", window: window)
    }

    /// The address of the client has all that it may have.
    static func address(_ refusal: AddressRefusal) -> Refusal {
        Refusal(
            .overloaded,
            refusal.kind == .connections
                ? "your network address has as many connections as it may have; come back later"
                : "your network address connects more often than it may; come back later",
            window: (refusal.least, refusal.most))
    }

    /// The gateway empties itself of its devices.
    static func emptying(_ alternate: String, window: (UInt32, UInt32)? = Emptying.window) -> Refusal {
        Refusal(.shuttingDown, Emptying.reason, window: window, alternate: alternate)
    }
}

extension EventLoopHost {
    /// The bytes of the Close frame; `beforeWelcome`: the client had no Welcome yet.
    func closeFrame(_ refusal: Refusal, beforeWelcome: Bool = false) -> [UInt8] {
        var close = Close()
        close.code = refusal.code.rawValue
        close.reason = "\(refusal.reason)"
        close.alternate = refusal.alternate
        close.serverTime = UInt64(now)
        if let window = refusal.window {
            (close.retryAfterMinimum, close.retryAfterMaximum) = window
        } else if refusal.alternate.isEmpty {
            (close.retryAfterMinimum, close.retryAfterMaximum) =
                beforeWelcome && refusal.code == .moved ? Self.refusedWindow : retryWindow(for: refusal.code)
        }
        var bytes: [UInt8] = []
        close.appendFrame(to: &bytes)
        return bytes
    }

    /// Writes the Close frame, and the log's line about it.
    func write(_ refusal: Refusal, to stream: ByteStream, beforeWelcome: Bool = false) {
        _ = closeFrame(refusal, beforeWelcome: beforeWelcome).withUnsafeBytes { stream.write($0) }
        note(refusal)
    }

    func note(_ refusal: Refusal) {
        log.write(
            .debug, .connectionClosed,
            [.code: LogValue(refusal.code.rawValue), .reason: .text("\(refusal.reason)")])
    }

    /// Refuses a connection that has no stream yet, and closes it.
    ///
    /// With `isSecure` it wants TLS, before which nothing can be said; the client then waits as after any failure.
    func turnAway(_ connection: DetachedConnection, isSecure: Bool, _ refusal: Refusal = .noRoom) {
        note(refusal)
        metrics.count(.closed(refusal.code))
        (isSecure ? [] : closeFrame(refusal)).withUnsafeBytes { connection.turnAway(with: $0) }
    }

    /// The retry window of a device whose part has no owner.
    ///
    /// A client whose window begins at one second or later waits within it. With an earlier window it doubles its wait at each
    /// refusal: in a simulation the last of a million devices returned 13 s after its part was served.
    static let refusedWindow: (UInt32, UInt32) = (1_000, 1_500)

    /// The window in which a closed client returns, at a random time, in milliseconds; (0, 0) leaves it to the client.
    func retryWindow(for code: CloseCode) -> (UInt32, UInt32) {
        switch code {
        case .overloaded: (1_000, 15_000)
        // A part that changes hands is served again within about a second.
        case .moved: (50, 1_000)
        // An operator has to enable the app again; until then each try costs a handshake.
        case .appDisabled: (300_000, 900_000)
        case .shuttingDown:
            // Wider with more devices: the gateway that takes them welcomes some thousands a second.
            (
                500,
                UInt32(
                    clamping: max(
                        limits.reconnectSpreadSeconds * 1_000,
                        Int64(context.connections.devices.value) * 1_000 / Self.returnsPerSecond))
            )
        case .replaced: (30_000, 60_000)
        case .clockSkew: (0, 1_000)
        default: (0, 0)
        }
    }

    /// The most devices that return in a second after a stop; with more of them the window grows.
    private static let returnsPerSecond: Int64 = 5_000
}
