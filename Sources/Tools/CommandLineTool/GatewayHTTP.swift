internal import Foundation
internal import HTTPClient
internal import TextForms

struct GatewayHTTP {
    enum Method { case get, post, patch, delete }

    struct Answer {
        let status: Int
        let body: [UInt8]

        var text: String { String(decoding: body, as: UTF8.self) }
        /// The body as a JSON object; empty for anything else.
        var object: [String: Any] { (try? JSONSerialization.jsonObject(with: Data(body))) as? [String: Any] ?? [:] }
    }

    let base: URL
    var headers: [String: String] = [:]
    var timeoutSeconds: Double = 30
    var trust = HTTPTrust()

    /// - Throws: `unreachable` without an HTTP answer, `usage` for an unreadable file. An error status is not thrown.
    func send(_ method: Method, _ path: String, body: String? = nil) throws(CommandFailure) -> Answer {
        for (option, file) in [("ca", trust.authoritiesFile), ("cert", trust.certificateFile), ("key", trust.keyFile)] {
            guard let file, !FileManager.default.isReadableFile(atPath: file) else { continue }
            throw .usage("--\(option) names \(file), which cannot be read")
        }
        let target = base.absoluteString.hasSuffix("/") ? String(base.absoluteString.dropLast()) : base.absoluteString
        var fields = headers.map { (name: $0.key, value: $0.value) }
        if body != nil { fields.append((name: "Content-Type", value: "application/json;charset=utf-8")) }
        var call = HTTPCall(
            target + path, headers: fields, body: Array((body ?? "").utf8), userAgent: "longwire",
            timeoutMilliseconds: Int(timeoutSeconds * 1_000))
        call.method =
            switch method {
            case .get: .get
            case .post: .post
            case .patch: .patch
            case .delete: .delete
            }
        call.trust = trust
        call.isLoopbackOnly = false
        guard let transfers = HTTPTransfers(), let transfer = HTTPTransfer(call, in: transfers) else {
            throw .refused("libcurl has no memory")
        }
        defer { transfer.leave() }
        while true {
            transfers.perform()
            if let ended = transfers.nextEnded() {
                switch ended.result {
                case .success(let reply): return Answer(status: reply.status, body: reply.body)
                case .failure(let failure):
                    let hint = ConnectionHint.text(failure, base).map { "\n\($0)" } ?? ""
                    throw .unreachable("no answer from \(base.absoluteString): \(failure)\(hint)")
                }
            }
            transfers.wait(milliseconds: 1_000)
        }
    }
}

enum ConnectionHint {
    static func text(_ failure: HTTPCallFailure, _ base: URL) -> String? {
        let isSecure = base.scheme == "https"
        if isSecure, let hint = CertificateHint.text(failure.description, host: base.host ?? "") { return hint }
        let host = base.host ?? ""
        let address = "\(host.contains(":") ? "[\(host)]" : host):\(base.port ?? (isSecure ? 443 : 80))"
        switch failure.kind {
        case .resolve: return "Hint: the name has no address here; check its spelling, or give the address itself."
        case .connect:
            return
                "Hint: nothing listens at \(address). By default the push API is on port 7080, the admin listener on 7081, "
                + "devices on 7000."
        case .certificate:
            return
                "Hint: the certificate is not one that this machine trusts for \(base.host ?? ""). Is it from a private "
                + "authority? Name its certificate with --ca FILE."
        case .ownCertificate:
            return
                "Hint: the listener at \(address) takes only clients with a certificate that its operator's authority "
                + "signed: give it with --cert FILE and --key FILE."
        case .tls:
            return "Hint: the listener at \(address) may speak plain HTTP: try http://\(address)."
        case .timeout where isSecure:
            return "Hint: the listener at \(address) may speak plain HTTP: try http://\(address). Or a firewall drops "
                + "packets."
        case .timeout: return "Hint: a firewall may drop packets to \(address)."
        case .cut where !isSecure, .other where !isSecure:
            return
                "Hint: the listener at \(address) may want TLS: try https://\(address). Or it is a listener of devices or "
                + "senders, which speaks no HTTP."
        case .cut:
            return
                "Hint: a listener that takes only clients with a certificate ends connections so: give one with --cert FILE "
                + "and --key FILE."
        case .other, .tooLarge, .notLoopback, .forbiddenAddress, .cancelled: return nil
        }
    }
}
