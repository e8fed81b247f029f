// The platform interface has three parts: a transport (this file), cryptography (ClientCryptography) and notices of network
// changes (NetworkWatch). `Apple` implements them with Network.framework and CryptoKit, `Linux` with POSIX sockets and OpenSSL.
// Each side stays within 200 lines (Tests/Checks/check-client.sh).

struct TransportFailure: Error, Equatable {
    let reason: String
}

struct TransportSecurity: Equatable, Sendable {
    /// A PEM file of trusted authorities that replaces the system's.
    var trustedCertificatesPath: String?
    /// SHA-256 digests of pinned certificates; if not empty, one certificate of the verified chain must match.
    var pins: [[UInt8]] = []
    /// PEM files of the client certificate and its key; not used on Apple's systems.
    var certificatePath: String?
    var keyPath: String?
}

struct PollInterest {
    var descriptor: CInt
    var events: Int16
}

/// A non-blocking connection to a gateway, plain or TLS.
///
/// Confined to the client's thread, which calls `serve` and `read` whenever something may have happened.
protocol ClientTransport: AnyObject {
    /// Whether bytes can be sent, with the TLS handshake complete.
    var isOpen: Bool { get }
    /// The events to poll for, or `nil` if the transport itself wakes the client's thread.
    var interest: PollInterest? { get }
    /// The latest time to call `serve`, in monotonic milliseconds, or `nil` without a deadline.
    var deadline: Int64? { get }
    /// Whether the last read left bytes behind, so that the caller must not wait in `poll`.
    var hasMoreToRead: Bool { get }

    /// Continues to connect, and writes pending bytes.
    func serve() throws(TransportFailure)
    /// Returns the bytes that have arrived, up to a limit; empty if there are none.
    ///
    /// - Throws: the reason why the connection ended, once all bytes before the end have been returned.
    func read() throws(TransportFailure) -> [UInt8]
    /// Appends bytes to the outgoing buffer and sends as much as possible.
    ///
    /// - Throws: the connection's failure, or a failure when more than `Limits.outboxByteCount` bytes are pending.
    func write(_ bytes: [UInt8]) throws(TransportFailure)
    /// Flushes pending bytes, signals the end of the stream, and closes.
    func closeGracefully()
}

extension ClientTransport {
    var deadline: Int64? { nil }
}
