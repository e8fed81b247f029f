internal import Foundation
internal import TextForms

extension AppCommand {
    private static let appID = (name: "APPID", help: "The app's id: 1 to 64 of A–Z a–z 0–9 _ - .")
    private static let options = Display.options + AdminClient.options
    private static let settings: [CommandOption] = [
        .value("settings", "JSON", "An object with the keys of the configuration's apps[]: push, queue, apns, …"),
        .value("settings-file", "FILE", "The same from a file, or from standard input with -."),
    ]
    private static let fileNote =
        "An app of the configuration file is changed there, with a reload; the admin API refuses it. The credential needs the "
        + "permission admin for all apps."

    static let create = CommandSyntax(
        name: "app create", summary: "Creates an app on the running gateways; prints the secrets that they generated.",
        operands: [appID], options: settings + options,
        notes: [
            "Without appKey, appSecret and masterSecret in the settings the gateway generates them. It shows them once: keep them. "
                + "Repeated with the same settings the command changes nothing, and shows no secret.",
            fileNote,
        ]
    ) { arguments, context in
        var object = try settings(arguments) ?? [:]
        object["appId"] = arguments.operands[0]
        return try act(arguments, context, .post, "/v1/apps", object)
    }

    static let set = CommandSyntax(
        name: "app set", summary: "Changes settings of an app; other settings stay.", operands: [appID],
        options: settings + options,
        notes: [
            "The settings are a merge patch (RFC 7396): null takes a key back to its default. No device is disconnected.",
            fileNote,
        ]
    ) { arguments, context in
        guard let object = try settings(arguments) else {
            throw CommandFailure.usage("--settings is missing: the settings to change")
        }
        return try act(arguments, context, .patch, path(arguments), object)
    }

    static let rotate = CommandSyntax(
        name: "app rotate", summary: "Gives an app a new secret; the old one stays valid for a time.",
        operands: [appID],
        options: [
            .value(
                "secret", "NAME",
                "appSecret, which the copies of the app have, or masterSecret, which the servers have."),
            .value(
                "overlap", "TIME",
                "How long old ones stay valid, such as 12h or 30d; 0: not at all. Default: 1d, of an appSecret 90d."),
            .value(
                "value-file", "FILE", "The new secret, from a file or from standard input with -. Default: generated."
            ),
        ] + options,
        notes: [
            "Without --value-file the new secret is printed, only this time. Open sessions and connections continue. Earlier "
                + "tokens of the push API stay valid until they expire, at most a day.",
            fileNote,
        ]
    ) { arguments, context in
        var object: [String: Any] = [:]
        object["secret"] = try arguments.required("secret", "appSecret or masterSecret")
        if let text = arguments.text("overlap") {
            guard let time = text == "0" ? 0 : Durations.milliseconds(text), time >= 0 else {
                throw CommandFailure.usage("--overlap is \(text); it must be a time such as 90s, 12h or 30d, or 0")
            }
            object["overlapSeconds"] = time / 1_000
        }
        if let file = arguments.text("value-file") {
            object["value"] = try read(file, "--value-file").trimmingCharacters(in: .whitespacesAndNewlines)
        }
        return try act(arguments, context, .post, path(arguments) + "/rotate", object)
    }

    static let enable = CommandSyntax(
        name: "app enable", summary: "Serves a disabled app again.", operands: [appID], options: options,
        notes: ["Its devices reconnect within 15 minutes.", fileNote]
    ) { arguments, context in
        try act(arguments, context, .post, path(arguments) + "/enable", nil)
    }

    static let disable = CommandSyntax(
        name: "app disable", summary: "Stops serving an app: calls are refused, its devices are disconnected.",
        operands: [appID], options: options,
        notes: [
            "The app's devices, queued messages and due alerts stay; messages end by their TTL. longwire app enable undoes it.",
            fileNote,
        ]
    ) { arguments, context in
        try act(arguments, context, .post, path(arguments) + "/disable", nil)
    }

    static let delete = CommandSyntax(
        name: "app delete", summary: "Removes an app that is disabled, with its secrets.", operands: [appID],
        options: [.flag("yes", "Confirms the removal. Without it the command only prints the effect.")] + options,
        notes: [
            "The app's secrets are removed permanently. Its devices and messages stay until they expire; a new app with the "
                + "same APPID has them.",
            fileNote,
        ]
    ) { arguments, context in
        guard arguments.has("yes") else {
            throw CommandFailure.usage(
                "this would remove the app \(arguments.operands[0]) and its secrets permanently; to do it, add --yes")
        }
        return try act(arguments, context, .delete, path(arguments), nil)
    }

    // MARK: Calls

    private static func path(_ arguments: ParsedArguments) -> String {
        "/v1/apps/\(AdminClient.segment(arguments.operands[0]))"
    }

    private static func settings(_ arguments: ParsedArguments) throws(CommandFailure) -> [String: Any]? {
        var given = arguments.text("settings")
        if given == nil, let file = arguments.text("settings-file") { given = try read(file, "--settings-file") }
        guard let text = given else { return nil }
        guard let object = (try? JSONSerialization.jsonObject(with: Data(text.utf8))) as? [String: Any] else {
            throw .usage("the settings are no JSON object, such as {\"queue\":{\"messages\":500}}")
        }
        return object
    }

    private static func read(_ file: String, _ option: String) throws(CommandFailure) -> String {
        let data =
            file == "-" ? FileHandle.standardInput.readDataToEndOfFile() : FileManager.default.contents(atPath: file)
        guard let data else { throw .usage("\(option) names \(file), which cannot be read") }
        return String(decoding: data, as: UTF8.self)
    }

    private static func act(
        _ arguments: ParsedArguments, _ context: CommandContext, _ method: GatewayHTTP.Method, _ path: String,
        _ body: [String: Any]?
    ) throws(CommandFailure) -> ExitCode {
        var text: JSONText?
        if let body {
            guard let data = try? JSONSerialization.data(withJSONObject: body, options: [.sortedKeys]) else {
                throw .usage("the settings cannot be written as JSON")
            }
            text = .verbatim(String(decoding: data, as: UTF8.self))
        } else if method == .post {
            text = .verbatim("")
        }
        let answer = try AdminClient(Credentials(arguments, context)).send(method, path, body: text)
        guard !Display(arguments, context).isJSON else {
            context.write(answer.text)
            return .done
        }
        let fields = Fields(answer.object)
        let act = ["created", "changed", "rotated", "enabled", "disabled", "deleted"].first { answer.object[$0] != nil }
        let name = fields.text("appId") ?? arguments.operands[0]
        guard let act, fields.flag(act) else {
            context.write("The app \(name) is in this state already; nothing was changed.")
            return .done
        }
        context.write("The app \(name) was \(act).")
        let secrets = ["appSecret", "masterSecret"].compactMap { key in fields.text(key).map { (key, $0) } }
        if act == "created" { context.write("  appKey        \(fields.text("appKey") ?? "")") }
        for (key, value) in secrets { context.write("  \(HelpText.pad(key, 14))\(value)") }
        if !secrets.isEmpty { context.write("Keep the secrets: no command shows them again.") }
        return .done
    }

    static func lines(_ page: Fields, _ display: Display) -> [String] {
        guard let state = page.text("state") else { return [] }
        var lines = [
            "App \(display.paint(page.text("appId") ?? "", .strong)), "
                + (state == "enabled" ? display.paint(state, .good) : display.paint(state, .bad))
                + (page.text("source") == "file" ? ", of the configuration file" : ", of the admin API")
        ]
        for (key, name) in [("appSecrets", "appSecret"), ("masterSecrets", "masterSecret")] {
            let ends = page.list(key).map { secret in
                secret.number("validUntil").map { "until \(Display.time($0))" } ?? "without an end"
            }
            lines.append("  \(HelpText.pad(name, 14))\(ends.joined(separator: "; "))")
        }
        // The quota names come from the gateway, because a newer gateway may have further quotas.
        let quotas = page.fields("quotas")
        for key in quotas.keys {
            let use = quotas.fields(key)
            guard let limit = use.number("limit") else { continue }
            let refused = use.number("refused") ?? 0
            let share = use.number("share").map { _ in " at this gateway, \(limit) in all" }
            let bound = use.number("share") ?? limit
            lines.append(
                "  quota \(HelpText.pad(key, 22))\(use.number("used") ?? 0) of \(bound)\(share ?? "")"
                    + (refused > 0 ? display.paint(", \(refused) refused", .bad) : ""))
        }
        if let changed = page.number("changedAt") { lines.append("  changed       \(Display.time(changed))") }
        return lines
    }
}
