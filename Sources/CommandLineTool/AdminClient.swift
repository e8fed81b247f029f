internal import Foundation

/// The admin listener behind its bearer token.
struct AdminClient {
    private let client: HTTPClient

    static let options: [CommandSyntax.Option] = [
        .value("admin", "ADDRESS", "The admin listener, host:port or a URL. Default: 127.0.0.1:7081."),
        .value("admin-token", "TOKEN", "The bearer token of a credential with the permission for this."),
        Credentials.dataOption,
    ]

    init(_ credentials: Credentials, timeoutSeconds: Double = 30) throws(CommandFailure) {
        client = HTTPClient(
            base: try credentials.adminBase(),
            headers: ["Authorization": "Bearer \(try credentials.adminToken())"], timeoutSeconds: timeoutSeconds)
    }

    /// The answer to a request that was granted.
    func send(_ method: String, _ path: String, body: String? = nil) throws(CommandFailure) -> HTTPClient.Answer {
        let answer = try client.send(method, path, body: body)
        guard (200..<300).contains(answer.status) else {
            throw .refused("the gateway refused (HTTP \(answer.status)): \(Self.message(of: answer))")
        }
        return answer
    }

    static func message(of answer: HTTPClient.Answer) -> String {
        let object = answer.object["error"] as? [String: Any] ?? answer.object
        if let text = object["msg"] as? String ?? object["message"] as? String {
            if let code = object["code"] { return "\(text) (code \(code))" }
            return text
        }
        return answer.body.isEmpty ? "no reason given" : answer.text
    }
}
