/// What went wrong in the client, for the app to act on.
///
/// `code` may gain values in later versions: compare it with those you know and treat the rest alike.
public struct LongwireClientError: Error, Equatable, Sendable, CustomStringConvertible {
    /// An open set of error codes.
    public struct Code: RawRepresentable, Hashable, Sendable {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The state could not be read now, or belongs to another app; nothing was changed.
        ///
        /// On a phone that was not unlocked since it started, try again later.
        public static let stateUnreadable = Code(rawValue: "stateUnreadable")
        /// The state was read and is damaged, or of a newer version; nothing was changed.
        ///
        /// `FileStateStore.setAside` lets the device begin as a new one.
        public static let stateDamaged = Code(rawValue: "stateDamaged")
        /// The state could not be written, so nothing was acked.
        public static let stateUnwritable = Code(rawValue: "stateUnwritable")
        /// The configuration is not usable.
        public static let badConfiguration = Code(rawValue: "badConfiguration")
        /// The gateway closed with a code that says: do not come back by yourself.
        public static let refused = Code(rawValue: "refused")
        /// The other side does not speak this protocol.
        public static let protocolViolation = Code(rawValue: "protocolViolation")
        /// The network or the gateway cannot be reached now; the client tries again by itself.
        public static let unreachable = Code(rawValue: "unreachable")
        /// The system gave no thread or descriptor.
        public static let systemResource = Code(rawValue: "systemResource")
        /// The client was started already, or has been stopped.
        public static let wrongState = Code(rawValue: "wrongState")
    }

    public let code: Code
    /// What happened and what to do next; never holds a secret, a token or a payload.
    public let message: String
    /// The gateway's close code, when it was a Close that ended it.
    public let closeCode: UInt32?

    public init(code: Code, message: String, closeCode: UInt32? = nil) {
        (self.code, self.message, self.closeCode) = (code, message, closeCode)
    }

    public var description: String { "\(code.rawValue): \(message)" }
}
