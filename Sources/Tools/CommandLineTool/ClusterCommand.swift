internal import Foundation
internal import TextForms

enum ClusterCommand {
    static let status = CommandSyntax(
        name: "cluster status", summary: "Shows the gateways of a cluster and the parts that each serves.",
        options: formats + AdminClient.options,
        notes: [
            "Any gateway of the cluster answers, as it sees the cluster. A table for a terminal, JSON for a pipe. The credential "
                + "needs the permission admin.",
            "Exit code 1 when a part has no owner, when the gateway has not reached the register for two seconds, or when it is "
                + "in no cluster.",
        ]
    ) { arguments, context in
        let answer = try AdminClient(Credentials(arguments, context)).send(.get, "/v1/cluster")
        let view = try ClusterView(answer)
        context.write(try wantsTable(arguments, context) ? view.table : answer.text)
        return view.isWhole ? .done : .refused
    }

    static let drain = CommandSyntax(
        name: "cluster drain", summary: "Moves all parts of a gateway to the others, or undoes that.",
        options: [
            .value("node", "GATEWAY", "The gateway's address or number. Default: the gateway that is asked."),
            .flag("undo", "Lets it serve parts again."),
        ] + waiting + AdminClient.options,
        notes: [
            "Prints how many parts are left, and ends when all have moved. The gateway still accepts calls and devices, and its "
                + "/readyz reports draining. A stop also drains.",
            "Exit code 1 if parts are left after the time.",
        ]
    ) { arguments, context in
        let client = try AdminClient(Credentials(arguments, context))
        let before = try ClusterView(try client.send(.get, "/v1/cluster"))
        let node = try number(arguments, "node", before) ?? before.node
        if !arguments.has("undo"),
            !before.nodes.contains(where: { $0.number != node && !$0.isDrained && !$0.isLeaving })
        {
            throw CommandFailure.refused(
                "no other gateway of cluster \(before.name) takes parts: gateway \(node) would keep them")
        }
        let undo = arguments.has("undo") ? true : nil
        _ = try client.send(.post, "/v1/cluster/drain", body: ["node": node, "undo": undo])
        if arguments.has("undo") {
            context.write("gateway \(node) may serve parts again")
            return .done
        }
        return try wait(client, arguments, context, until: { $0.parts(of: node).isEmpty && $0.unserved.isEmpty }) {
            view, isDone in
            let count = view.parts(of: node).count
            if isDone { return "gateway \(node) has given all its parts away" }
            return "gateway \(node) has \(count == 1 ? "1 part" : "\(count) parts") left"
        }
    }

    static let move = CommandSyntax(
        name: "cluster move", summary: "Moves a part to a gateway, for as long as the gateway runs.",
        options: [
            .value("part", "P", "The part."),
            .value(
                "to", "GATEWAY", "The gateway's address or number. Default: where the cluster would place the part."),
        ] + waiting + AdminClient.options,
        notes: [
            "Ends when the part is served there; exit code 1 if it is not after the time. Its devices are disconnected and "
                + "reconnect within about a second."
        ]
    ) { arguments, context in
        guard let part = try arguments.number("part", in: 0...255) else {
            throw CommandFailure.usage("--part is missing: the number that cluster status shows")
        }
        let client = try AdminClient(Credentials(arguments, context))
        var target: Int?
        if arguments.text("to") != nil {
            target = try number(arguments, "to", try ClusterView(try client.send(.get, "/v1/cluster")))
        }
        _ = try client.send(.post, "/v1/cluster/move", body: ["part": part, "to": target])
        guard let target else {
            context.write("part \(part) goes where the cluster places it")
            return .done
        }
        return try wait(client, arguments, context, until: { $0.owner(of: Int(part)) == target }) { view, isDone in
            let owner = view.owner(of: Int(part))
            if isDone { return "part \(part) is served by gateway \(target)" }
            return "part \(part) is \(owner.map { "served by gateway \($0)" } ?? "on its way")"
        }
    }

    /// Returns the number of the gateway that an option names by address or number, or `nil` without the option.
    ///
    /// A gateway's number changes with each start; its address does not.
    private static func number(_ arguments: ParsedArguments, _ option: String, _ view: ClusterView) throws -> Int? {
        guard let text = arguments.text(option) else { return nil }
        guard let node = view.nodes.first(where: { $0.address == text || "\($0.number)" == text }) else {
            throw CommandFailure.refused(
                "no gateway of cluster \(view.name) has the address or number \(text); see longwire cluster status")
        }
        return node.number
    }

    // MARK: Output

    private static let formats: [CommandOption] = [
        .flag("json", "Prints the gateway's JSON, on a terminal, too."),
        .flag("table", "Prints the table, into a pipe, too."),
    ]

    private static func wantsTable(_ arguments: ParsedArguments, _ context: CommandContext) throws -> Bool {
        guard !arguments.has("json") || !arguments.has("table") else {
            throw CommandFailure.usage("--json and --table: one of them")
        }
        return arguments.has("table") || context.isTerminal && !arguments.has("json")
    }

    // MARK: Waiting

    private static let waiting: [CommandOption] = [
        .value("wait-seconds", "S", "How long to wait for it, 0 to 3600; 0: not at all. Default: 60.")
    ]

    /// Polls until the condition holds or the time is over, and prints each change.
    private static func wait(
        _ client: AdminClient, _ arguments: ParsedArguments, _ context: CommandContext,
        until isDone: (ClusterView) -> Bool, say: (ClusterView, Bool) -> String
    ) throws -> ExitCode {
        let seconds = try arguments.number("wait-seconds", in: 0...3_600) ?? 60
        let end = Date().addingTimeInterval(Double(seconds))
        var last = ""
        while true {
            let view = try ClusterView(try client.send(.get, "/v1/cluster"))
            let isOver = isDone(view)
            let words = say(view, isOver)
            if words != last { context.write(words) }
            last = words
            if isOver || seconds == 0 { return .done }
            guard Date() < end else { return .refused }
            Thread.sleep(forTimeInterval: 0.2)
        }
    }
}
