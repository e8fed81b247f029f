/// An error of the client.
///
/// Later versions may add values of `code`. Handle unknown codes like a general failure.
public struct LongwireClientError: Error, Equatable, Sendable, CustomStringConvertible {
    /// An open set of error codes.
    public struct Code: RawRepresentable, Hashable, Sendable {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The state cannot be read now, or belongs to another app.
        ///
        /// Nothing was changed. On a phone that was not unlocked since it started, retry later.
        public static let stateUnreadable = Code(rawValue: "stateUnreadable")
        /// The state is damaged, or of a newer version.
        ///
        /// Nothing was changed. `FileStateStore.setAside` allows the device to register anew.
        public static let stateDamaged = Code(rawValue: "stateDamaged")
        /// The state could not be written, so nothing was acked.
        public static let stateUnwritable = Code(rawValue: "stateUnwritable")
        /// The configuration is invalid.
        public static let badConfiguration = Code(rawValue: "badConfiguration")
        /// The gateway refused the client with a code after which it does not reconnect.
        public static let refused = Code(rawValue: "refused")
        /// The peer violated the protocol.
        public static let protocolViolation = Code(rawValue: "protocolViolation")
        /// The network or the gateway is unreachable; a running client retries.
        public static let unreachable = Code(rawValue: "unreachable")
        /// The system gave no thread or descriptor.
        public static let systemResource = Code(rawValue: "systemResource")
        /// A change or query of aliases or tags was refused permanently.
        public static let namesRefused = Code(rawValue: "namesRefused")
        /// A call about aliases or tags failed temporarily, for example by a rate limit.
        ///
        /// Call again later.
        public static let tryLater = Code(rawValue: "tryLater")
        /// The call is not possible now: the client already runs, or the device is not registered yet.
        public static let wrongState = Code(rawValue: "wrongState")
    }

    /// The kind of the error.
    public let code: Code
    /// The cause and a remedy; it never holds a secret, a token or a payload.
    public let message: String
    /// The gateway's close code, if a Close caused the error.
    public let closeCode: UInt32?

    public init(code: Code, message: String, closeCode: UInt32? = nil) {
        (self.code, self.message, self.closeCode) = (code, message, closeCode)
    }

    public var description: String { "\(code.rawValue): \(message)" }
}
