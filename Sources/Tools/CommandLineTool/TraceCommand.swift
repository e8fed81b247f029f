internal import Foundation
internal import TextForms

enum TraceCommand {
    static let trace = CommandSyntax(
        name: "trace", summary: "Shows the result of a message, and why, step by step.",
        operands: [("ID", "A msgId, taskId, cid, request id or alias; the form decides which, where it can.")],
        options: [
            .flag("task", "ID is a taskId."), .flag("cid", "ID is a device: lists its newest messages."),
            .flag("request", "ID is the request_id of a publish."), .flag("alias", "ID is an alias."),
            .value("device", "CID", "With a taskId: the message for this device."),
            .value("limit", "N", "How many messages of a device, 1 to 500. Default: 20."),
        ] + Display.options + [Credentials.appOption] + AdminClient.options,
        notes: [
            "Without an option, 32 hex digits are a msgId, else a cid; RASS_, RASL_ and RASA_ begin a taskId; anything else is a "
                + "request id, else an alias. Ended messages are known for a day. Refused publishes are known until the "
                + "gateway restarts, the last 1,024 of each event loop.",
            "Exit code 1 if the gateway does not know it.",
        ]
    ) { arguments, context in
        let form = try form(arguments)
        return try Search(arguments, context).run(arguments.operands[0], as: form)
    }

    enum Form: String, CaseIterable { case task, cid, request, alias }

    private static func form(_ arguments: ParsedArguments) throws(CommandFailure) -> Form? {
        let forms = Form.allCases.filter { arguments.has($0.rawValue) }
        guard forms.count <= 1 else { throw .usage("--\(forms[0]) and --\(forms[1]) exclude each other") }
        if forms.first == .cid { _ = try hexDigits(arguments.operands[0], "ID") }
        return forms.first
    }

    static func hexDigits(_ text: String, _ name: String) throws(CommandFailure) -> String {
        guard isHexDigits(text) else { throw .usage("\(name) is \(text); it must be 32 lower-case hex digits") }
        return text
    }

    static func isHexDigits(_ text: String) -> Bool {
        text.utf8.count == 32 && text.allSatisfy { $0.isASCII && $0.isHexDigit && !$0.isUppercase }
    }
}

private struct Search {
    let arguments: ParsedArguments
    let context: CommandContext
    let display: Display
    let credentials: Credentials
    let client: AdminClient

    init(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure) {
        (self.arguments, self.context) = (arguments, context)
        display = Display(arguments, context)
        credentials = try Credentials(arguments, context)
        client = try AdminClient(credentials)
    }

    func run(_ id: String, as form: TraceCommand.Form?) throws(CommandFailure) -> ExitCode {
        let isFound: Bool =
            switch form {
            case .task: try task(id)
            case .cid: try device(id)
            case .request: try request(id)
            case .alias: try alias(id)
            case nil: try guess(id)
            }
        guard isFound else { throw .refused("the gateway knows nothing of \(id)\n\(Self.advice)") }
        return .done
    }

    private static let advice =
        "It keeps ended messages for a day, and refused publishes until it restarts. Is it the right app (--app)?"

    private func guess(_ id: String) throws(CommandFailure) -> Bool {
        if TraceCommand.isHexDigits(id) {
            // A msgId begins with its 12-bit bucket as four hex digits, so its first digit is 0.
            if id.hasPrefix("0"), try message(id) { return true }
            return credentials.hasApp ? try device(id) : false
        }
        if ["RASS_", "RASL_", "RASA_"].contains(where: { id.hasPrefix($0) }) { return try task(id) }
        if try request(id) { return true }
        // An id with other characters cannot be an alias.
        guard
            id.unicodeScalars.allSatisfy({ $0.properties.isAlphabetic || $0.properties.numericType != nil || $0 == "_" }
            )
        else { return false }
        return try alias(id)
    }

    private func appPath() throws(CommandFailure) -> String {
        "/v1/apps/\(AdminClient.segment(try credentials.appID()))"
    }

    // MARK: Forms

    private func message(_ id: String) throws(CommandFailure) -> Bool {
        guard let answer = try client.find("/v1/messages/\(id)") else { return false }
        try show(answer)
        return true
    }

    private func task(_ id: String) throws(CommandFailure) -> Bool {
        let device = try arguments.text("device").map { cid throws(CommandFailure) in
            "/devices/\(try TraceCommand.hexDigits(cid, "--device"))"
        }
        guard let answer = try client.find("\(try appPath())/tasks/\(AdminClient.segment(id))\(device ?? "")") else {
            return false
        }
        try show(answer)
        return true
    }

    private func alias(_ name: String) throws(CommandFailure) -> Bool {
        guard let answer = try client.find("\(try appPath())/aliases/\(AdminClient.segment(name))") else {
            return false
        }
        for cid in Fields(answer.object).texts("devices") { _ = try device(cid) }
        return true
    }

    private func device(_ cid: String) throws(CommandFailure) -> Bool {
        let limit = try arguments.number("limit", in: 1...500) ?? 20
        guard let answer = try client.find("\(try appPath())/devices/\(cid)/messages?limit=\(limit)") else {
            return false
        }
        if display.isJSON {
            context.write(answer.text)
            return true
        }
        let found = Fields(answer.object)
        let view = try view(of: cid)
        context.write("Device \(display.paint(cid, .strong)) of app \(found.text("appId") ?? "")")
        if let view { for line in DeviceCommand.lines(view, display) { context.write(line) } }
        let messages = found.list("messages")
        if messages.isEmpty {
            context.write("No message is queued, and none ended in the last day.")
        } else {
            let rows =
                [["accepted", "message", "state", "why"]]
                + messages.map { TraceWords($0, device: view, display).summary }
            for line in display.table(rows) { context.write(line) }
            if found.flag("more") { context.write("There are older ones: --limit N") }
        }
        for refusal in found.list("refusals") { context.write(display.paint(TraceWords.refusal(refusal), .bad)) }
        return true
    }

    private func request(_ id: String) throws(CommandFailure) -> Bool {
        guard let answer = try client.find("\(try appPath())/requests/\(AdminClient.segment(id))") else { return false }
        if display.isJSON {
            context.write(answer.text)
            return true
        }
        let found = Fields(answer.object)
        for refusal in found.list("refusals") { context.write(display.paint(TraceWords.refusal(refusal), .bad)) }
        for one in found.list("messages") { _ = try message(one.text("msgId") ?? "") }
        for one in found.list("tasks") {
            context.write("Request \(id) was a call of \(one.text("call") ?? "").")
            if try !task(one.text("taskId") ?? "") {
                context.write("Its task \(one.text("taskId") ?? "") has no messages.")
            }
        }
        return true
    }

    // MARK: Showing

    private func view(of cid: String) throws(CommandFailure) -> Fields? {
        guard credentials.hasApp else { return nil }
        return try client.find("\(try appPath())/devices/\(cid)").map { Fields($0.object) }
    }

    private func show(_ answer: GatewayHTTP.Answer) throws(CommandFailure) {
        if display.isJSON { return context.write(answer.text) }
        let found = Fields(answer.object)
        if found.text("msgId") != nil {
            let view = try client.find(
                "/v1/apps/\(AdminClient.segment(found.text("appId") ?? ""))/devices/\(found.text("cid") ?? "")")
            for line in TraceWords(found, device: view.map { Fields($0.object) }, display).lines { context.write(line) }
            return
        }
        let kind = found.flag("broadcast") ? "broadcast" : "task"
        var head = "Task \(display.paint(found.text("taskId") ?? "", .strong)) of app \(found.text("appId") ?? "")"
        if let state = found.text("task") { head += ", a \(kind) that is \(state)" }
        context.write(head)
        if let time = found.number("createdAt") { context.write("  made \(Display.time(time))") }
        if let time = found.number("scheduledAt") { context.write("  scheduled for \(Display.time(time))") }
        context.write("  messages: \(found.number("accepted") ?? 0), pending: \(found.number("pending") ?? 0)")
        let states = found.fields("states")
        for state in states.keys { context.write("  \(state): \(states.number(state) ?? 0)") }
        let failures = found.fields("failures")
        for reason in failures.keys {
            context.write("    \(failures.number(reason) ?? 0) failed: \(TraceWords.explained(reason))")
        }
        context.write("One device's message of it: longwire trace \(found.text("taskId") ?? "") --device CID")
    }
}
