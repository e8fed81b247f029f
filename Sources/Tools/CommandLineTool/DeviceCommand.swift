internal import Foundation
internal import TextForms

enum DeviceCommand {
    private static let options = Display.options + [Credentials.appOption] + AdminClient.options
    private static let cid = (name: "CID", help: "32 hex digits, as the device's registration named it.")

    static let list = CommandSyntax(
        name: "device list", summary: "Lists the devices of an app.",
        options: [
            .value("limit", "N", "How many, 1 to 500. Default: 20."),
            .value("after", "CID", "Begin after this cid: the next of the earlier page."),
        ] + options
    ) { arguments, context in
        var path =
            "\(try appPath(arguments, context))/devices?limit=\(try arguments.number("limit", in: 1...500) ?? 20)"
        if let after = arguments.text("after") { path += "&after=\(try TraceCommand.hexDigits(after, "--after"))" }
        let answer = try AdminClient(Credentials(arguments, context)).send(.get, path)
        return Display(arguments, context).show(answer, on: context) { page in
            page.texts("devices") + (page.text("next").map { ["more: --after \($0)"] } ?? [])
        }
    }

    static let show = syntax("device show")
    static let device = syntax("device")

    private static func syntax(_ name: String) -> CommandSyntax {
        CommandSyntax(
            name: name, summary: "Shows the state of a device: session, state, queue, tokens, badge.", operands: [cid],
            options: options, notes: ["Exit code 1 when the gateway knows no such device in this app."]
        ) { arguments, context in
            let word = arguments.operands[0]
            let cid = try TraceCommand.hexDigits(word, "CID")
            let client = try AdminClient(Credentials(arguments, context))
            let answer = try client.send(.get, "\(try appPath(arguments, context))/devices/\(cid)")
            let display = Display(arguments, context)
            return display.show(answer, on: context) { view in
                ["Device \(display.paint(cid, .strong)) of app \(view.text("appId") ?? "")"] + lines(view, display)
            }
        }
    }

    static let disconnect = CommandSyntax(
        name: "device disconnect", summary: "Ends a device's session; its client reconnects.",
        operands: [cid], options: options
    ) { arguments, context in
        let answer = try change(arguments, context, cid: arguments.operands[0], "disconnect")
        return Display(arguments, context).show(answer, on: context) { result in
            [result.flag("disconnected") ? "The session was ended." : "The device has no session."]
        }
    }

    static let unblacklist = CommandSyntax(
        name: "device unblacklist",
        summary: "Removes a device from its app's blacklist; its queued messages are then sent.",
        operands: [cid], options: options
    ) { arguments, context in
        let answer = try change(arguments, context, cid: arguments.operands[0], "unblacklist")
        return Display(arguments, context).show(answer, on: context) { result in
            [result.flag("removed") ? "The device was removed from the blacklist." : "The device is not blacklisted."]
        }
    }

    static func change(
        _ arguments: ParsedArguments, _ context: CommandContext, cid: String, _ change: String
    ) throws(CommandFailure) -> GatewayHTTP.Answer {
        let cid = try TraceCommand.hexDigits(cid, "CID")
        return try AdminClient(Credentials(arguments, context)).send(
            .post, "\(try appPath(arguments, context))/devices/\(cid)/\(change)", body: .verbatim(""))
    }

    static func appPath(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure) -> String {
        "/v1/apps/\(AdminClient.segment(try Credentials(arguments, context).appID()))"
    }

    static func lines(_ view: Fields, _ display: Display) -> [String] {
        let queue = view.fields("queue")
        let isConnected = view.flag("connected")
        var session = isConnected ? display.paint("connected", .good) : display.paint("not connected", .waiting)
        if isConnected {
            session += ", \(view.text("state") ?? "")"
            session +=
                view.flag("suspect") ? ", does not ack" : view.flag("reachable") ? ", reachable" : ", unreachable"
        }
        if let seen = view.number("lastSeenAt"), seen > 0 { session += ", last seen \(Display.time(seen))" }
        if let registered = view.number("registeredAt") { session += ", registered \(Display.time(registered))" }
        if let slowed = view.number("slowedUntil") {
            session += display.paint(", connects over and over: refused until \(Display.time(slowed))", .bad)
        }
        let refused = view.fields("refusedHello")
        if let time = refused.number("time") {
            session +=
                "\n            last refused Hello: \(Display.time(time)), "
                + "code \(refused.number("code") ?? 0), \(refused.text("reason") ?? "")"
        }
        if view.flag("blacklisted") {
            let remedy = "longwire device unblacklist \(view.text("cid") ?? "CID")"
            session += display.paint("\n            blacklisted: nothing is sent to it (\(remedy))", .bad)
        }
        if view.flag("appDisabled") { session += display.paint("\n            its app is disabled", .bad) }
        let bound = queue.number("messageLimit").map { " of \($0)" } ?? ""
        var lines = [
            "  session   \(session)",
            "  queue     \(queue.number("messages") ?? 0)\(bound) messages, \(queue.number("bytes") ?? 0) bytes, "
                + "\(queue.number("inFlight") ?? 0) in flight",
            "  badge     \(view.number("badge") ?? 0)",
        ]
        for (name, label) in [("aliases", "alias  "), ("tags", "tags   ")] {
            let texts = view.texts(name)
            if !texts.isEmpty { lines.append("  \(label)   \(texts.joined(separator: ", "))") }
        }
        let alert =
            view.text("fallback") == "available"
            ? display.paint("available", .good)
            : display.paint("none: \(TraceWords.explained(view.text("fallbackReason") ?? ""))", .bad)
        lines.append("  alerts    \(alert)")
        for token in view.list("tokens") {
            let quarantine = token.flag("quarantined") ? display.paint(", quarantined", .bad) : ""
            lines.append(
                "  token     \(token.text("channel") ?? "") \(token.text("kind") ?? "") \(token.text("environment") ?? "") "
                    + "\(token.text("topic") ?? "") \(token.text("token") ?? "")\(quarantine)")
        }
        let failure = view.fields("vendorFailure")
        if let message = failure.text("msgId") {
            lines.append(
                "  vendor    did not take \(message) \(Display.time(failure.number("time") ?? 0)): "
                    + "\(failure.text("outcome") ?? "") \(failure.text("reason") ?? "")")
        }
        return lines
    }
}

enum AppCommand {
    static let list = CommandSyntax(
        name: "app list", summary: "Lists the apps that the credential may see.",
        options: Display.options + AdminClient.options
    ) { arguments, context in
        let answer = try AdminClient(Credentials(arguments, context)).send(.get, "/v1/apps")
        let display = Display(arguments, context)
        return display.show(answer, on: context) { found in
            let rows = found.list("apps").map { app in ["appId", "state", "source"].map { app.text($0) ?? "" } }
            return display.table([["app", "state", "source"]] + rows)
        }
    }

    static let show = CommandSyntax(
        name: "app show", summary: "Shows the state of an app, and its figures: devices connected, messages, due jobs.",
        operands: [("APPID", "As the configuration has it, or as app create named it.")],
        options: Display.options + AdminClient.options,
        notes: ["The figures are those of /metrics with the label app."]
    ) { arguments, context in
        let name = arguments.operands[0]
        let client = try AdminClient(Credentials(arguments, context))
        let apps = Fields(try client.send(.get, "/v1/apps").object).list("apps").compactMap { $0.text("appId") }
        guard apps.contains(name) else {
            let near = Suggestion.hint(for: name, among: apps)
            throw CommandFailure.refused("the gateway has no app \(name)\(near)")
        }
        let page = try client.find("/v1/apps/\(AdminClient.segment(name))")
        let samples = MetricsText(try client.send(.get, "/metrics").text).samples.filter { $0.labels["app"] == name }
        let display = Display(arguments, context)
        if display.isJSON {
            let figures = samples.map { sample -> JSONText in
                let labels = sample.labels.filter { $0.key != "app" }.sorted { $0.key < $1.key }
                return [
                    "name": sample.name, "labels": JSONText.object(labels.map { ($0.key, $0.value) }),
                    "value": JSONText.verbatim(MetricsText.number(sample.value)),
                ]
            }
            let app = page.map { JSONText.verbatim($0.text) }
            context.write((["appId": name, "figures": figures, "app": app] as JSONText).text)
            return .done
        }
        let rows = samples.map { sample in
            let labels = sample.labels.filter { $0.key != "app" }.sorted { $0.key < $1.key }
            let more = labels.map { "\($0.key) \($0.value)" }.joined(separator: ", ")
            return [
                sample.name.replacingOccurrences(of: "longwire_app_", with: ""), more, MetricsText.number(sample.value),
            ]
        }
        for line in lines(Fields(page?.object ?? [:]), display) { context.write(line) }
        for line in display.table([["figure", "of", "value"]] + rows) { context.write(line) }
        return .done
    }
}
