internal import Cryptography
internal import Foundation
internal import TextForms

struct PublishClient {
    static let options: [CommandOption] = [
        .value("http", "ADDRESS", "The push API, host:port or a URL. Default: 127.0.0.1:7080."),
        Credentials.appOption, .value("app-key", "KEY", "The app's key."),
        .value("master-secret", "SECRET", "The app's master secret; better given by the environment."),
        Credentials.authoritiesOption, Credentials.certificateOption, Credentials.keyOption, Credentials.contextOption,
        Credentials.dataOption,
    ]

    private var client: GatewayHTTP
    private let appID: String

    init(_ credentials: Credentials) throws(CommandFailure) {
        appID = try credentials.appID()
        client = GatewayHTTP(base: try credentials.httpBase(), trust: credentials.trust)
        let (appKey, secret) = (try credentials.appKey(), try credentials.masterSecret())
        let timestamp = String(Int64(Date().timeIntervalSince1970 * 1_000))
        let sign = SHA256.digest(Array((appKey + timestamp + secret).utf8)).hex
        let answer = try send(.post, "auth", body: ["appkey": appKey, "timestamp": timestamp, "sign": sign])
        guard let data = answer.object["data"] as? [String: Any], let token = data["token"] as? String else {
            throw .refused("the gateway's answer to auth has no token: \(TerminalText.plain(answer.text))")
        }
        client.headers["token"] = token
    }

    /// Sends a call and returns the answer.
    ///
    /// Throws `refused` for an error. `path` is relative to `/v2/{appId}/`.
    func send(
        _ method: GatewayHTTP.Method, _ path: String, body: JSONText? = nil
    ) throws(CommandFailure) -> GatewayHTTP.Answer {
        let answer = try client.send(method, "/v2/\(AdminClient.segment(appID))/\(path)", body: body?.text)
        guard answer.status == 200, (answer.object["code"] as? NSNumber)?.intValue == 0 else {
            // Errors of the admin listener have the member `error`.
            let hint =
                answer.object["error"] == nil
                ? "" : "\nHint: this looks like the admin listener; the push API has another port."
            throw .refused("the gateway refused (HTTP \(answer.status)): \(AdminClient.message(of: answer))\(hint)")
        }
        return answer
    }
}

enum RevokeCommand {
    static let syntax = CommandSyntax(
        name: "revoke", summary: "Stops a task: what is still pending of it ends as revoked.",
        operands: [("TASKID", "As push printed it.")], options: Display.options + PublishClient.options,
        notes: [
            "As Getui's DELETE /task/{taskid}. A message that a device has already stays there; a publish with "
                + "revoke withdraws it on the device, too (docs/use/GetuiCompatibility.md)."
        ]
    ) { arguments, context in
        let task = arguments.operands[0]
        let client = try PublishClient(Credentials(arguments, context))
        let answer = try client.send(.delete, "task/\(AdminClient.segment(task))")
        return Display(arguments, context).show(answer, on: context) { _ in ["Stopped \(task)."] }
    }
}
