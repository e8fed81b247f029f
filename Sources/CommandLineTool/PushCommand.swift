internal import Cryptography
internal import Foundation

/// `longwire push`: publishes one message over the push API, as a business server does.
enum PushCommand {
    static let syntax = CommandSyntax(
        name: "push", summary: "Publishes one message to one device.",
        options: [
            .value("cid", "CID", "The device: 32 hex digits."),
            .value("payload", "TEXT", "The message. Without it, standard input is read to its end."),
            .value("ttl", "MS", "Time to live: 0 one live attempt, -1 no offline storage. Default: two hours."),
            .value("strategy", "N", "1 live, else vendor; 2 vendor only; 3 live only; 4 vendor first. Default: 1."),
            .value("alert-title", "TEXT", "What the vendor shows. With --alert-body, or alone."),
            .value("alert-body", "TEXT", "The text below the title."),
            .value("badge", "CHANGE", "The icon's number: +1, -1 or 5."),
            .value("collapse-key", "KEY", "A newer message of the same key ends older unsent ones."),
            .value("request-id", "ID", "10 to 32 characters; repeating a call with the same id sends nothing twice."),
            .flag("json", "Print the gateway's answer as it came."),
            .value("http", "ADDRESS", "The push API, host:port or a URL. Default: 127.0.0.1:7080."),
            Credentials.appOption,
            .value("app-key", "KEY", "The app's key."),
            .value("master-secret", "SECRET", "The app's master secret; better given by the environment."),
            Credentials.dataOption,
        ],
        notes: [
            "When it returns with 0, the message is on disk. It prints the task, the device and the gateway's word: "
                + "successed_online (sent at once) or successed_offline (queued, or with the vendor), then what the "
                + "gateway says besides."
        ],
        run: { try run($0, $1) })

    private static func run(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure) -> ExitCode
    {
        let body = try body(arguments, context)
        let credentials = try Credentials(arguments, context)
        let appID = try credentials.appID()
        var client = HTTPClient(base: try credentials.httpBase())
        client.headers["token"] = try token(
            client, appID: appID, appKey: try credentials.appKey(), masterSecret: try credentials.masterSecret())
        let answer = try granted(client.send("POST", path(appID, "push/single/cid"), body: body.text))
        if arguments.has("json") {
            context.write(answer.text)
        } else {
            for line in describe(answer) { context.write(line) }
        }
        return .done
    }

    static func body(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure) -> JSONText {
        let cid = try arguments.required("cid", "the device to send to")
        var settings: [(String, JSONText)] = []
        if let ttl = try arguments.number("ttl", in: -1...259_200_000) { settings.append(("ttl", .integer(ttl))) }
        if let strategy = try arguments.number("strategy", in: 1...4) {
            settings.append(("strategy", .object([("default", .integer(strategy))])))
        }
        if let key = arguments.text("collapse-key") { settings.append(("collapse_key", .string(key))) }

        let payload = try payload(arguments, context)
        var ios: [(String, JSONText)] = []
        let alert = [("title", "alert-title"), ("body", "alert-body")].compactMap { member, option in
            arguments.text(option).map { (member, JSONText.string($0)) }
        }
        if !alert.isEmpty { ios.append(("aps", .object([("alert", .object(alert))]))) }
        if let badge = arguments.text("badge") {
            let digits = badge.first == "+" || badge.first == "-" ? badge.dropFirst() : badge[...]
            guard Int32(digits) != nil, digits.first?.isNumber == true else {
                throw .usage("--badge is \(badge); it must be a number, or + or - and a number")
            }
            if alert.isEmpty { ios.append(("aps", .object([("content-available", .integer(1))]))) }
            ios.append(("auto_badge", .string(badge)))
        }

        var members: [(String, JSONText)] = [
            ("request_id", .string(try requestID(arguments))),
            ("audience", .object([("cid", .array([.string(cid)]))])),
        ]
        if !settings.isEmpty { members.append(("settings", .object(settings))) }
        members.append(("push_message", .object([("transmission", .string(payload))])))
        if !ios.isEmpty { members.append(("push_channel", .object([("ios", .object(ios))]))) }
        return .object(members)
    }

    private static func payload(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure)
        -> String
    {
        if let text = arguments.text("payload") { return text }
        let bytes = context.readInput()
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw .usage("standard input is not UTF-8; the push API carries text (encode it, as base64 for example)")
        }
        guard !text.isEmpty else { throw .usage("the payload is empty; give --payload or something on standard input") }
        return text
    }

    private static func requestID(_ arguments: ParsedArguments) throws(CommandFailure) -> String {
        guard let id = arguments.text("request-id") else {
            return "cli-" + SHA256.digest(SecureRandom.bytes(16)).hex.prefix(24)
        }
        guard (10...32).contains(id.count) else {
            throw .usage("--request-id has \(id.count) characters; it must have 10 to 32")
        }
        return id
    }

    private static func token(
        _ client: HTTPClient, appID: String, appKey: String, masterSecret: String
    ) throws(CommandFailure) -> String {
        let timestamp = String(Int64(Date().timeIntervalSince1970 * 1_000))
        let body = JSONText.object([
            ("appkey", .string(appKey)), ("timestamp", .string(timestamp)),
            ("sign", .string(SHA256.digest(Array((appKey + timestamp + masterSecret).utf8)).hex)),
        ])
        let answer = try granted(client.send("POST", path(appID, "auth"), body: body.text))
        guard let data = answer.object["data"] as? [String: Any], let token = data["token"] as? String else {
            throw .refused("the gateway's answer to auth has no token: \(answer.text)")
        }
        return token
    }

    private static func path(_ appID: String, _ rest: String) -> String {
        "/v2/\(appID.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? "")/\(rest)"
    }

    private static func granted(_ answer: HTTPClient.Answer) throws(CommandFailure) -> HTTPClient.Answer {
        guard answer.status == 200, (answer.object["code"] as? NSNumber)?.intValue == 0 else {
            throw .refused("the gateway refused (HTTP \(answer.status)): \(AdminClient.message(of: answer))")
        }
        return answer
    }

    private static func describe(_ answer: HTTPClient.Answer) -> [String] {
        var lines: [String] = []
        for (task, devices) in answer.object["data"] as? [String: [String: String]] ?? [:] {
            for (cid, status) in devices { lines.append("task \(task) device \(cid) \(status)") }
        }
        if let more = answer.object["longwire"],
            let data = try? JSONSerialization.data(withJSONObject: more, options: [.sortedKeys])
        {
            lines.append(String(decoding: data, as: UTF8.self))
        }
        return lines.isEmpty ? [answer.text] : lines
    }
}
