// The seam to the platform, in three parts: a transport (this file), a little cryptography (ClientCryptography) and the
// news that the network changed (NetworkWatch). `Apple` has one side, by Network.framework and CryptoKit. `Linux` has
// the other, by POSIX sockets and OpenSSL. Each side stays within 200 lines (Tests/Checks/check-client.sh).

/// Why a connection was not made, or ended.
struct TransportFailure: Error, Equatable {
    let reason: String
}

/// How a gateway proves over TLS who it is.
struct TransportSecurity: Equatable, Sendable {
    /// A PEM file of the authorities to trust instead of the system's.
    var trustedCertificatesPath: String?
    /// SHA-256 digests; not empty: one certificate of the verified chain must have one of them.
    var pins: [[UInt8]] = []
    /// PEM files of what is shown to a gateway that asks for it; not used on Apple's systems.
    var certificatePath: String?
    var keyPath: String?
}

/// What a transport asks `poll` to wait for.
struct PollInterest {
    var descriptor: CInt
    var events: Int16
}

/// One connection to a gateway, plain or TLS, that never blocks.
///
/// Confined to the client's thread, which calls `serve` and `read` whenever something may have happened.
protocol ClientTransport: AnyObject {
    /// True once bytes can travel, TLS included.
    var isOpen: Bool { get }
    /// What to wait for; `nil`: the transport itself wakes the client's thread.
    var interest: PollInterest? { get }
    /// When to call `serve` at the latest, in monotonic milliseconds; `nil`: no time of its own.
    var deadline: Int64? { get }
    /// True when the last read left something behind, so that nothing may be waited for.
    var hasMoreToRead: Bool { get }

    /// Goes on with connecting and with what waits to be written.
    func serve() throws(TransportFailure)
    /// What has arrived, within a bound; empty: nothing now.
    ///
    /// - Throws: what ended the connection, once everything before the end has been read.
    func read() throws(TransportFailure) -> [UInt8]
    /// Writes behind what was written before.
    ///
    /// - Throws: also when more than `Limits.outboxByteCount` wait for a gateway that does not read.
    func write(_ bytes: [UInt8]) throws(TransportFailure)
    /// Lets what was written leave, says that nothing follows, and closes.
    func closeGracefully()
}

extension ClientTransport {
    var deadline: Int64? { nil }
}
