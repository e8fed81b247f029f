internal import Cryptography
internal import Glibc
internal import TextForms

enum HTTPToken {
    /// Calls `POST /v2/{appId}/auth` with the signature of Getui's API.
    ///
    /// - Throws: a failure with the gateway's answer.
    static func fetch(_ credentials: Credentials, timeoutSeconds: Double) throws(CommandFailure) -> String {
        let timestamp = String(Clocks.wallMilliseconds())
        let sign = SHA256.digest(Array((credentials.appKey + timestamp + credentials.masterSecret).utf8)).hex
        let body =
            "{\"sign\":\"\(sign)\",\"timestamp\":\"\(timestamp)\",\"appkey\":\(JSONString.quoted(credentials.appKey))}"
        let request =
            "POST /v2/\(credentials.appID)/auth HTTP/1.1\r\nHost: \(credentials.http.text)\r\n"
            + "Content-Type: application/json;charset=utf-8\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
        let answer = try exchange(credentials.http, credentials.tls, Array(request.utf8), timeoutSeconds)
        let (status, token, message) = answer.withUnsafeBytes { bytes in
            guard case .response(let response) = HTTPResponseScanner.scan(bytes) else { return (0, nil, nil) as Found }
            let body = UnsafeRawBufferPointer(rebasing: bytes[response.body])
            return (
                response.status, HTTPResponseScanner.text("token", body), HTTPResponseScanner.text("msg", body)
            )
        }
        guard status != 0 else { throw CommandFailure.unreachable("\(credentials.http.text) does not answer as HTTP") }
        guard status == 200, let token else {
            throw CommandFailure.unreachable("the push API refused to authenticate: HTTP \(status) \(message ?? "")")
        }
        return token
    }

    private typealias Found = (status: Int, token: String?, message: String?)

    static func exchange(
        _ endpoint: Endpoint, _ tls: TLSFiles?, _ request: [UInt8], _ timeoutSeconds: Double
    ) throws(CommandFailure) -> [UInt8] {
        let (descriptor, error) = Socket.connect(to: endpoint, from: 0)
        guard descriptor >= 0 else { throw CommandFailure.unreachable("\(endpoint.text): \(errorText(error))") }
        defer { _ = close(descriptor) }
        var session: TLSSession?
        var isSecured = !endpoint.isSecure
        let deadline = Clocks.now() + Int64(timeoutSeconds * 1e9)
        var sent = 0
        var answer: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16 << 10)
        while true {
            let left = deadline - Clocks.now()
            guard left > 0 else { throw CommandFailure.unreachable("\(endpoint.text) did not answer in time") }
            let isConnecting = session == nil && !isSecured
            let wanted = isConnecting || isSecured && sent < request.count ? POLLOUT : POLLIN
            var watched = pollfd(fd: descriptor, events: Int16(wanted), revents: 0)
            guard poll(&watched, 1, CInt(left / 1_000_000 + 1)) > 0 else { continue }
            let failure = Socket.pendingError(descriptor)
            guard failure == 0 else { throw CommandFailure.unreachable("\(endpoint.text): \(errorText(failure))") }
            if !isSecured {
                if session == nil { session = try begin(endpoint, tls, descriptor) }
                guard let session else { continue }
                switch Socket.handshake(session) {
                case .done: isSecured = true
                case .waits: break
                case .failed(let reason, _):
                    throw CommandFailure.unreachable("TLS handshake with \(endpoint.text): \(reason)")
                }
                continue
            }
            if sent < request.count {
                let outcome = request.withUnsafeBytes {
                    Socket.send(descriptor, session, $0.baseAddress! + sent, $0.count - sent)
                }
                if case .bytes(let count) = outcome { sent += count }
                continue
            }
            let outcome = chunk.withUnsafeMutableBytes {
                Socket.receive(descriptor, session, into: $0.baseAddress!, $0.count)
            }
            switch outcome {
            case .bytes(let count): answer.append(contentsOf: chunk[..<count])
            case .wouldBlock: continue
            case .ended: return answer
            case .failed(let reason): throw CommandFailure.unreachable("\(endpoint.text): \(reason)")
            }
            if answer.withUnsafeBytes({ HTTPResponseScanner.scan($0) }) != .incomplete { return answer }
        }
    }

    private static func begin(
        _ endpoint: Endpoint, _ files: TLSFiles?, _ descriptor: CInt
    ) throws(CommandFailure) -> TLSSession {
        do throws(TLSFailure) {
            return try TLSSession(
                connecting: (files ?? TLSFiles()).context(), descriptor: descriptor, serverName: endpoint.host)
        } catch {
            throw CommandFailure.unreachable(error.description)
        }
    }
}
