// The Apple transport, type-checked against stubs (Tests/Checks/check-client.sh). A Linux build leaves this file out.
#if canImport(Network)
internal import CryptoKit
internal import Dispatch
internal import Foundation
internal import Network
internal import Security

/// A connection of Network.framework, with the system's TLS.
///
/// Its callbacks run on a private dispatch queue. They put their results into `inbox` and wake the client's thread.
final class NetworkTransport: ClientTransport {
    private struct Inbox {
        var isReady = false
        var bytes: [UInt8] = []
        /// The reason why the connection ended; thrown once all earlier bytes have been read.
        var end: TransportFailure?
        var isReceiving = false
        var unsentByteCount = 0
    }

    private let connection: NWConnection
    private let inbox = Guarded(Inbox())
    private let wake: @Sendable () -> Void
    private(set) var isOpen = false
    private var isClosing = false
    private(set) var hasMoreToRead = false

    /// Starts to connect; callbacks on the dispatch queue call `wake` after each change of `inbox`.
    init(
        to endpoint: Endpoint, security: TransportSecurity?, wake: @escaping @Sendable () -> Void
    ) throws(TransportFailure) {
        self.wake = wake
        guard let port = NWEndpoint.Port(rawValue: endpoint.port) else { throw TransportFailure(reason: "no port") }
        let queue = DispatchQueue(label: "longwire.connection")
        let tcp = NWProtocolTCP.Options()
        tcp.noDelay = true
        var tls: NWProtocolTLS.Options?
        if let security { tls = try Self.options(for: security, host: endpoint.host, queue: queue) }
        connection = NWConnection(
            host: NWEndpoint.Host(endpoint.host), port: port, using: NWParameters(tls: tls, tcp: tcp))
        let inbox = inbox
        connection.stateUpdateHandler = { state in
            inbox.withValue { inbox in
                switch state {
                case .ready: inbox.isReady = true
                // The framework's retry is not used: the client has its own backoff and a network monitor.
                case .waiting(let error), .failed(let error):
                    inbox.end = inbox.end ?? TransportFailure(reason: "cannot connect: \(error)")
                default: break
                }
            }
            wake()
        }
        connection.start(queue: queue)
    }

    deinit {
        connection.stateUpdateHandler = nil
        // A gracefully closing connection is cancelled after its last bytes are sent.
        if !isClosing { connection.cancel() }
    }

    var interest: PollInterest? { nil }

    func serve() throws(TransportFailure) {
        guard !isOpen else { return }
        let (isReady, end) = inbox.withValue { ($0.isReady, $0.end) }
        if isReady {
            isOpen = true
            receiveNext()
        } else if let end {
            throw end
        }
    }

    // MARK: Bytes

    func read() throws(TransportFailure) -> [UInt8] {
        let (bytes, end) = inbox.withValue { inbox in
            defer { inbox.bytes = [] }
            return (inbox.bytes, inbox.end)
        }
        if bytes.isEmpty, let end { throw end }
        hasMoreToRead = end != nil
        if end == nil { receiveNext() }
        return bytes
    }

    /// Requests one piece of bytes at a time, so that TCP flow control slows the gateway down while the client does not read.
    private func receiveNext() {
        let isFirst = inbox.withValue { inbox in
            defer { inbox.isReceiving = true }
            return !inbox.isReceiving
        }
        guard isFirst else { return }
        let (inbox, wake) = (inbox, wake)
        connection.receive(minimumIncompleteLength: 1, maximumLength: Limits.readByteCount) {
            data, _, isComplete, error in
            inbox.withValue { inbox in
                inbox.isReceiving = false
                if let data { inbox.bytes += [UInt8](data) }
                if let error {
                    inbox.end = inbox.end ?? TransportFailure(reason: "the connection broke: \(error)")
                } else if isComplete {
                    inbox.end = inbox.end ?? TransportFailure(reason: "the gateway closed the connection")
                }
            }
            wake()
        }
    }

    func write(_ bytes: [UInt8]) throws(TransportFailure) {
        let unsent = inbox.withValue { inbox in
            inbox.unsentByteCount += bytes.count
            return inbox.unsentByteCount
        }
        guard unsent <= Limits.outboxByteCount else {
            throw TransportFailure(reason: "the gateway does not read what it is sent")
        }
        let (inbox, wake, count) = (inbox, wake, bytes.count)
        connection.send(
            content: Data(bytes),
            completion: .contentProcessed { error in
                inbox.withValue { inbox in
                    inbox.unsentByteCount -= count
                    if let error, inbox.end == nil {
                        inbox.end = TransportFailure(reason: "the connection broke: \(error)")
                    }
                }
                if error != nil { wake() }
            })
    }

    func closeGracefully() {
        guard isOpen, !isClosing else { return }
        isClosing = true
        let connection = connection
        connection.send(
            content: nil, contentContext: .finalMessage, isComplete: true,
            completion: .contentProcessed { _ in connection.cancel() })
    }

    // MARK: TLS

    private static func options(
        for security: TransportSecurity, host: String, queue: DispatchQueue
    ) throws(TransportFailure) -> NWProtocolTLS.Options {
        let options = NWProtocolTLS.Options()
        sec_protocol_options_set_min_tls_protocol_version(options.securityProtocolOptions, .TLSv12)
        var anchors: [Data] = []
        if let path = security.trustedCertificatesPath { anchors = try certificates(in: path) }
        let pins = security.pins
        // Without anchors and pins the system's verification applies.
        guard !anchors.isEmpty || !pins.isEmpty else { return options }
        sec_protocol_options_set_verify_block(
            options.securityProtocolOptions,
            { [anchors] _, trust, complete in
                let trust = sec_trust_copy_ref(trust).takeRetainedValue()
                complete(isTrusted(trust, host: host, anchors: anchors, pins: pins))
            }, queue)
        return options
    }

    private static func isTrusted(_ trust: SecTrust, host: String, anchors: [Data], pins: [[UInt8]]) -> Bool {
        SecTrustSetPolicies(trust, SecPolicyCreateSSL(true, host as CFString))
        if !anchors.isEmpty {
            let certificates = anchors.compactMap { SecCertificateCreateWithData(nil, $0 as CFData) }
            SecTrustSetAnchorCertificates(trust, certificates as CFArray)
            SecTrustSetAnchorCertificatesOnly(trust, true)
        }
        guard SecTrustEvaluateWithError(trust, nil) else { return false }
        let chain = SecTrustCopyCertificateChain(trust) as? [SecCertificate] ?? []
        return pins.isEmpty
            || chain.contains { pins.contains(Array(SHA256.hash(data: SecCertificateCopyData($0) as Data))) }
    }

    /// Returns the certificates of a PEM file, as DER.
    private static func certificates(in path: String) throws(TransportFailure) -> [Data] {
        guard let file = FileManager.default.contents(atPath: path) else {
            throw TransportFailure(reason: "TLS: \(path) cannot be read")
        }
        var (found, lines, isInside) = ([Data](), "", false)
        for line in String(decoding: file, as: UTF8.self).split(whereSeparator: \.isNewline) {
            if line.hasPrefix("-----BEGIN CERTIFICATE") {
                (lines, isInside) = ("", true)
            } else if line.hasPrefix("-----END CERTIFICATE") {
                if let data = Data(base64Encoded: lines) { found.append(data) }
                isInside = false
            } else if isInside {
                lines += line
            }
        }
        guard !found.isEmpty else { throw TransportFailure(reason: "TLS: \(path) holds no PEM certificates") }
        return found
    }
}
#endif
