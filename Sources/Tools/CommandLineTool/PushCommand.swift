internal import Cryptography
internal import Foundation
internal import TextForms

enum PushCommand {
    static let syntax = CommandSyntax(
        name: "push", summary: "Publishes one message to a device, an alias, a tag, a list of devices, or all.",
        options: [
            .value("cid", "CID", "To one device: 32 hex digits."),
            .value("alias", "ALIAS", "To the devices of an alias."),
            .value("tag", "TAG", "To the devices that have a tag."),
            .value("list", "FILE", "To the devices of a file, one cid a line."),
            .flag("all", "To every device of the app."),
            .value("payload", "TEXT", "The message. Without it, standard input is read to its end."),
            .value(
                "ttl", "TIME",
                "Time to live: 90s, 2h, 3d, or milliseconds; 0 one live attempt, -1 no offline storage. Default: 2h."),
            .value("strategy", "N", "1 live, else vendor; 2 vendor only; 3 live only; 4 vendor first. Default: 1."),
            .value(
                "alert-title", "TEXT", "The title of the notification for Apple devices. With --alert-body, or alone."),
            .value("alert-body", "TEXT", "The text below the title."),
            .value("badge", "CHANGE", "The icon's number: +1, -1 or 5."),
            .value("collapse-key", "KEY", "A newer message of the same key ends older unsent ones."),
            .value("request-id", "ID", "10 to 32 characters; repeating a call with the same id sends nothing twice."),
        ] + Display.options + PublishClient.options,
        notes: [
            "When it returns with 0, the message is on disk. It prints the task, the device and the gateway's status: "
                + "successed_online (sent at once) or successed_offline (queued, or with the vendor), then what the "
                + "gateway says besides."
        ],
        run: { try run($0, $1) })

    enum Audience: Equatable {
        case device(String), alias(String), tag(String), list(String), all

        var path: String {
            switch self {
            case .device: "push/single/cid"
            case .alias: "push/single/alias"
            case .tag: "push/fast_custom_tag"
            case .list: "push/list/message"
            case .all: "push/all"
            }
        }

        var json: JSONText {
            switch self {
            case .device(let cid): ["cid": [.string(cid)]]
            case .alias(let alias): ["alias": [.string(alias)]]
            case .tag(let tag): ["fast_custom_tag": tag]
            case .list, .all: .string("all")
            }
        }
    }

    private static func run(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure) -> ExitCode
    {
        let audience = try audience(arguments)
        let body = try body(arguments, context)
        let cids = try devices(audience)
        let client = try PublishClient(Credentials(arguments, context))
        let answer = try client.send(.post, audience.path, body: body)
        let display = Display(arguments, context)
        func show(_ answer: GatewayHTTP.Answer) {
            for line in display.isJSON ? [answer.text] : describe(answer) { context.write(line) }
        }
        guard case .list = audience else {
            show(answer)
            return .done
        }
        let task = Fields(answer.object).fields("data").text("taskid") ?? ""
        // One call accepts at most 1,000 cids.
        for start in stride(from: 0, to: cids.count, by: 1_000) {
            let page = cids[start..<min(start + 1_000, cids.count)]
            let targets: JSONText = ["cid": page.map { JSONText.string($0) }]
            show(try client.send(.post, "push/list/cid", body: ["taskid": task, "audience": targets]))
        }
        return .done
    }

    static func audience(_ arguments: ParsedArguments) throws(CommandFailure) -> Audience {
        var given: [Audience] = []
        if let cid = arguments.text("cid") { given.append(.device(cid)) }
        if let alias = arguments.text("alias") { given.append(.alias(alias)) }
        if let tag = arguments.text("tag") { given.append(.tag(tag)) }
        if let file = arguments.text("list") { given.append(.list(file)) }
        if arguments.has("all") { given.append(.all) }
        guard let audience = given.first else {
            throw .usage("the target is missing: --cid, --alias, --tag, --list or --all")
        }
        guard given.count == 1 else { throw .usage("give only one of --cid, --alias, --tag, --list and --all") }
        return audience
    }

    private static func devices(_ audience: Audience) throws(CommandFailure) -> [String] {
        guard case .list(let path) = audience else { return [] }
        guard let data = FileManager.default.contents(atPath: path) else {
            throw .usage("--list names \(path), which cannot be read")
        }
        let lines = String(decoding: data, as: UTF8.self).split(whereSeparator: \.isNewline)
        let cids = lines.map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty }
        for (number, cid) in cids.enumerated() where !TraceCommand.isHexDigits(cid) {
            throw .usage("\(path): entry \(number + 1) is \(cid); it must be 32 lower-case hex digits")
        }
        guard !cids.isEmpty else { throw .usage("\(path) has no cid") }
        return cids
    }

    static func body(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure) -> JSONText {
        let audience = try audience(arguments)
        let ttl = try arguments.duration("ttl", in: -1...259_200_000)
        let strategy = try arguments.number("strategy", in: 1...4).map { ["default": $0] as JSONText }
        let settings: JSONText = [
            "ttl": ttl, "strategy": strategy, "collapse_key": arguments.text("collapse-key"),
        ]
        let payload = try payload(arguments, context)
        let alert: JSONText = ["title": arguments.text("alert-title"), "body": arguments.text("alert-body")]
        var aps = alert.unlessEmpty.map { ["alert": $0] as JSONText }
        let badge = arguments.text("badge")
        if let badge {
            let digits = badge.first == "+" || badge.first == "-" ? badge.dropFirst() : badge[...]
            guard Int32(digits) != nil, digits.first?.isNumber == true else {
                throw .usage("--badge is \(badge); it must be a number, or + or - and a number")
            }
            aps = aps ?? ["content-available": 1]
        }
        let ios: JSONText = ["aps": aps, "auto_badge": badge]
        return [
            "request_id": try requestID(arguments), "audience": audience.json, "settings": settings.unlessEmpty,
            "push_message": ["transmission": payload] as JSONText,
            "push_channel": ios.unlessEmpty.map { ["ios": $0] as JSONText },
        ]
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

    private static func describe(_ answer: GatewayHTTP.Answer) -> [String] {
        var lines: [String] = []
        for (task, devices) in answer.object["data"] as? [String: [String: String]] ?? [:] {
            for (cid, status) in devices { lines.append("task \(task) device \(cid) \(status)") }
        }
        if let task = Fields(answer.object).fields("data").text("taskid") { lines.append("task \(task)") }
        if let more = answer.object["longwire"],
            let data = try? JSONSerialization.data(withJSONObject: more, options: [.sortedKeys])
        {
            lines.append(String(decoding: data, as: UTF8.self))
        }
        return lines.isEmpty ? [answer.text] : lines
    }
}
