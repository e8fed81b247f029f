internal import Foundation
internal import TextForms

/// A client of the admin listener, with a bearer token.
struct AdminClient {
    private let client: GatewayHTTP

    static let options: [CommandOption] = [
        .value("admin", "ADDRESS", "The admin listener, host:port or a URL. Default: 127.0.0.1:7081."),
        .value("admin-token", "TOKEN", "The bearer token of a credential with the permission for this."),
        Credentials.authoritiesOption, Credentials.certificateOption, Credentials.keyOption, Credentials.contextOption,
        Credentials.dataOption,
    ]

    init(_ credentials: Credentials, timeoutSeconds: Double = 30) throws(CommandFailure) {
        client = GatewayHTTP(
            base: try credentials.adminBase(),
            headers: ["Authorization": "Bearer \(try credentials.adminToken())"], timeoutSeconds: timeoutSeconds,
            trust: credentials.trust)
    }

    /// Sends a request and returns the answer; throws `refused` for an error status.
    func send(
        _ method: GatewayHTTP.Method, _ path: String, body: JSONText? = nil
    ) throws(CommandFailure) -> GatewayHTTP.Answer {
        let answer = try client.send(method, path, body: body?.text)
        try Self.requireGranted(answer)
        return answer
    }

    /// Sends a GET request; returns `nil` if the gateway does not know the object.
    func find(_ path: String) throws(CommandFailure) -> GatewayHTTP.Answer? {
        let answer = try client.send(.get, path)
        if answer.status == 404, (answer.object["error"] as? [String: Any])?["code"] as? String == "notFound" {
            return nil
        }
        try Self.requireGranted(answer)
        return answer
    }

    private static func requireGranted(_ answer: GatewayHTTP.Answer) throws(CommandFailure) {
        guard (200..<300).contains(answer.status) else {
            // Errors of the push API have the member `code` and no `error`.
            let isOtherListener = answer.object["error"] == nil && answer.object["code"] != nil
            let hint =
                isOtherListener
                ? "\nHint: this looks like the push API; the admin listener has another port."
                : deviceListenerHint(answer)
            throw .refused("the gateway refused (HTTP \(answer.status)): \(message(of: answer))\(hint)")
        }
    }

    /// Returns a hint if a device listener answered, which names the path of its WebSocket; otherwise an empty text.
    private static func deviceListenerHint(_ answer: GatewayHTTP.Answer) -> String {
        answer.object.isEmpty && answer.text.contains("/v1/device")
            ? "\nHint: this looks like the devices' listener; the admin listener has another port." : ""
    }

    static func message(of answer: GatewayHTTP.Answer) -> String { TerminalText.plain(rawMessage(of: answer)) }

    private static func rawMessage(of answer: GatewayHTTP.Answer) -> String {
        let object = answer.object["error"] as? [String: Any] ?? answer.object
        if let text = object["msg"] as? String ?? object["message"] as? String {
            if let code = object["code"] { return "\(text) (code \(code))" }
            return text
        }
        let text = answer.text.trimmingCharacters(in: .whitespacesAndNewlines)
        return text.isEmpty ? "no reason given" : text
    }

    static func segment(_ text: String) -> String {
        text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
    }
}
