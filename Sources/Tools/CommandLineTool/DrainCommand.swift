internal import Foundation
internal import TextForms

enum DrainCommand {
    static let drain = CommandSyntax(
        name: "drain", summary: "Empties a gateway of its devices at a pace, or lets them come again.",
        options: [
            .value("pace", "N/s", "How many devices a second are told to go, 1/s to 1000000/s."),
            .value(
                "alternate", "ADDRESS", "Where they are told to go, host:port as devices reach it. Default: nowhere."),
            .flag("undo", "Lets devices come again."),
            .value("wait-seconds", "S", "How long to watch it, 0 to 86400; 0: not at all. Default: until it is empty."),
        ] + AdminClient.options,
        notes: [
            "Tells each second how many connections are left and about how long they take. Meanwhile the gateway's /readyz is "
                + "503 (draining), so that a balancer sends no new device, and one that comes all the same is told to go. The "
                + "rest goes on: publishes, the handoff, the admin API.",
            "The drain goes on when this command is interrupted; --undo ends it, and so does a restart. Exit code 1 when "
                + "devices are left after the time. The credential needs the permission admin, for all apps.",
        ]
    ) { arguments, context in
        let client = try AdminClient(Credentials(arguments, context))
        if arguments.has("undo") {
            guard arguments.text("pace") == nil, arguments.text("alternate") == nil else {
                throw CommandFailure.usage("--undo stands alone")
            }
            let status = try Status(client.send(.post, "/v1/drain", body: ["undo": true]))
            context.write("devices may come again; \(status.connections) are connected")
            return .done
        }
        let pace = try Self.pace(try arguments.required("pace", "how many devices a second, for example 200/s"))
        let seconds = try arguments.number("wait-seconds", in: 0...86_400)
        let body: JSONText = ["pace": pace, "alternate": arguments.text("alternate")]
        var status = try Status(client.send(.post, "/v1/drain", body: body))
        let end = seconds.map { Date().addingTimeInterval(Double($0)) }
        while true {
            context.write(status.words)
            if status.isDrained || seconds == 0 { return .done }
            if let end, Date() >= end { return .refused }
            Thread.sleep(forTimeInterval: 1)
            status = try Status(client.send(.get, "/v1/drain"))
            guard status.state != "none" else {
                context.write("the drain was taken back; \(status.connections) devices are connected")
                return .refused
            }
        }
    }

    static func pace(_ text: String) throws -> Int64 {
        let digits = text.hasSuffix("/s") ? String(text.dropLast(2)) : text
        guard let pace = Int64(digits), 1...1_000_000 ~= pace else {
            throw CommandFailure.usage("--pace is \(text); it must be 1/s to 1000000/s, for example 200/s")
        }
        return pace
    }

    private struct Status {
        let state: String
        let connections: Int64
        let secondsLeft: Int64

        init(_ answer: GatewayHTTP.Answer) throws(CommandFailure) {
            let object = answer.object
            guard let state = object["state"] as? String, let connections = object["connections"] as? NSNumber else {
                throw .refused("the answer tells no state of a drain: is that the admin listener of a gateway?")
            }
            (self.state, self.connections) = (state, connections.int64Value)
            secondsLeft = (object["secondsLeft"] as? NSNumber)?.int64Value ?? 0
        }

        var isDrained: Bool { state == "drained" }

        var words: String {
            let count = connections == 1 ? "1 connection" : "\(connections) connections"
            if !isDrained { return "\(count) left, about \(secondsLeft) s" }
            return connections == 0
                ? "no device is connected"
                : "no device is connected; \(count) of other gateways' devices are relayed here"
        }
    }
}
