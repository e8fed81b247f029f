internal import EventLoops

/// A tunnel through an HTTP proxy, requested with `CONNECT` (RFC 9110, section 9.3.6).
package struct ProxyTunnel: Sendable, Equatable {
    /// The maximum size of the head of the proxy's response.
    static let answerByteLimit = 16 << 10
    static let answerMilliseconds: UInt64 = 10_000

    /// The `host:port` to which the proxy connects.
    package var target: String
    /// The value of the header `Proxy-Authorization`, or empty for none.
    package var authorization: String

    package init(target: String, authorization: String = "") {
        (self.target, self.authorization) = (target, authorization)
    }

    var request: [UInt8] {
        let proof = authorization.isEmpty ? "" : "Proxy-Authorization: \(authorization)\r\n"
        return Array("CONNECT \(target) HTTP/1.1\r\nHost: \(target)\r\n\(proof)\r\n".utf8)
    }

    enum Answer: Equatable {
        case incomplete
        case open
        /// The proxy cannot be used, for the reason in the text.
        case refused(String)
    }

    func read(_ bytes: [UInt8]) -> Answer {
        let end = Array("\r\n\r\n".utf8)
        guard let place = bytes.indices.first(where: { bytes[$0...].starts(with: end) }) else {
            return bytes.count < Self.answerByteLimit ? .incomplete : .refused("the proxy's answer is too long")
        }
        let line = String(decoding: bytes.prefix { $0 != 0x0D }, as: UTF8.self)
        let words = line.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
        guard words.count >= 2, words[0] == "HTTP/1.1" || words[0] == "HTTP/1.0", words[1].utf8.count == 3,
            let status = Int(words[1])
        else { return .refused("the configured proxy does not answer as an HTTP proxy") }
        switch status {
        case 200..<300:
            // The target sends nothing before the client, so no bytes may follow the response.
            return place + end.count == bytes.count ? .open : .refused("the proxy sends more than its answer")
        case 407: return .refused("the proxy asks for credentials, or for other ones (407)")
        case 403, 405: return .refused("the proxy does not allow CONNECT to \(target) (\(status))")
        case 502, 503, 504: return .refused("the proxy cannot reach \(target) (\(status))")
        default: return .refused("the proxy refuses CONNECT to \(target) (\(status))")
        }
    }
}

/// The plaintext phase of a connection through a proxy, until the proxy accepts the tunnel.
final class TunnelLink: StreamDelegate {
    private let tunnel: ProxyTunnel
    private var answer: [UInt8] = []
    /// Receives the connection once the tunnel is open; exactly one of `opened` and `failed` is called.
    private var opened: ((DetachedConnection) -> Void)?
    private var failed: ((String) -> Void)?

    init(
        _ tunnel: ProxyTunnel, opened: @escaping (DetachedConnection) -> Void, failed: @escaping (String) -> Void
    ) {
        (self.tunnel, self.opened, self.failed) = (tunnel, opened, failed)
    }

    func begin(_ stream: ByteStream) {
        stream.setTimeout(afterMilliseconds: ProxyTunnel.answerMilliseconds)
        tunnel.request.withUnsafeBytes { _ = stream.write($0) }
    }

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        answer += bytes
        switch tunnel.read(answer) {
        case .incomplete: break
        case .open:
            let opened = opened
            (self.opened, failed) = (nil, nil)
            if let connection = stream.detach(unconsumed: UnsafeRawBufferPointer(start: nil, count: 0)) {
                opened?(connection)
            }
        case .refused(let reason): end(stream, reason)
        }
        return bytes.count
    }

    override func timedOut(_ stream: ByteStream) { end(stream, "the proxy did not answer in time") }

    override func closed(_ stream: ByteStream, _ reason: CloseReason) { end(nil, "the proxy: \(reason)") }

    private func end(_ stream: ByteStream?, _ reason: String) {
        let failed = failed
        (opened, self.failed) = (nil, nil)
        stream?.close()
        failed?(reason)
    }
}
