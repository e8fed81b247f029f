internal import Delivery
internal import EventLoops
internal import Wire

/// The reason for closing a connection, and the client's retry window: the content of a Close frame.
struct Refusal: Error {
    /// The code, from which a client derives whether it reconnects.
    var code: CloseCode
    /// The reason as text, for people.
    var reason: StaticString
    /// The retry window in milliseconds; `nil` selects the default of the code.
    var window: (UInt32, UInt32)?
    /// The gateway to which the client should connect at once; empty for none.
    var alternate = ""

    init(_ code: CloseCode, _ reason: StaticString, window: (UInt32, UInt32)? = nil, alternate: String = "") {
        (self.code, self.reason, self.window, self.alternate) = (code, reason, window, alternate)
    }

    static let noRoom = Refusal(.overloaded, "the gateway has as many connections as it may; retry later")
    static let stopping = Refusal(.shuttingDown, "the gateway is stopping")
    static let unmovable = Refusal(.internalError, "the connection could not be moved")
    /// The refusal while the store of the device's partition is stalled.
    static let standing = Refusal(
        .overloaded, "the store of this device's part does not answer; retry later")
    static let appDisabled = Refusal(.appDisabled, "the app is disabled")

    static func storm(_ window: (UInt32, UInt32)? = nil) -> Refusal {
        Refusal(.overloaded, "more devices reconnect than can be accepted at once; retry later", window: window)
    }

    /// The refusal of a network address that exceeds its limits.
    static func address(_ refusal: AddressRefusal) -> Refusal {
        Refusal(
            .overloaded,
            refusal.kind == .connections
                ? "your network address has as many connections as it may have; retry later"
                : "your network address connects more often than it may; retry later",
            window: (refusal.least, refusal.most))
    }

    static func emptying(_ alternate: String, window: (UInt32, UInt32)? = Emptying.window) -> Refusal {
        Refusal(.shuttingDown, Emptying.reason, window: window, alternate: alternate)
    }
}

extension EventLoopHost {
    /// Returns the bytes of the Close frame; `beforeWelcome` means that the client has not received a Welcome.
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
    /// If `isSecure`, no Close frame can be sent, because TLS has not started. The client then applies its own backoff.
    func turnAway(_ connection: DetachedConnection, isSecure: Bool, _ refusal: Refusal = .noRoom) {
        note(refusal)
        metrics.count(.closed(refusal.code))
        (isSecure ? [] : closeFrame(refusal)).withUnsafeBytes { connection.turnAway(with: $0) }
    }

    /// The retry window of a device whose partition has no owner, in milliseconds.
    ///
    /// A client honors a window that begins at one second or later. If the window begins earlier, the client doubles its wait at
    /// each refusal. In a simulation of a million devices, that doubling delayed the last device by 13 s after its partition was
    /// served again.
    static let refusedWindow: (UInt32, UInt32) = (1_000, 1_500)

    /// Returns the window, in milliseconds, in which a client reconnects at a random time after a Close; (0, 0) leaves the delay
    /// to the client.
    func retryWindow(for code: CloseCode) -> (UInt32, UInt32) {
        switch code {
        case .overloaded: (1_000, 15_000)
        // A partition is usually served by its new owner within about a second.
        case .moved: (50, 1_000)
        // An operator must enable the app first; until then each attempt costs a handshake.
        case .appDisabled: (300_000, 900_000)
        case .shuttingDown:
            // The window grows with the number of devices, because the other gateways accept some thousands a second.
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

    /// The most devices that return per second after a stop; with more devices the window grows.
    private static let returnsPerSecond: Int64 = 5_000
}
