internal import Foundation
internal import TextForms

enum DrainCommand {
    static let drain = CommandSyntax(
        name: "drain", summary: "Disconnects a gateway's devices at a pace, or ends that.",
        options: [
            .value("pace", "N/s", "The devices to disconnect a second, 1/s to 1000000/s."),
            .value(
                "alternate", "ADDRESS", "The address sent to them, host:port as devices reach it. Default: none."),
            .flag("undo", "Ends the drain: accepts devices again."),
            .value("wait-seconds", "S", "How long to watch it, 0 to 86400; 0: not at all. Default: until it is empty."),
        ] + AdminClient.options,
        notes: [
            "Prints each second how many connections are left and about how long they take. During the drain the gateway's "
                + "/readyz is 503 (draining), so that a balancer sends no new device. A device that connects nevertheless is "
                + "disconnected. Publishes, the handoff and the admin API continue.",
            "The drain continues if this command is interrupted; --undo or a restart ends it. Exit code 1 if "
                + "devices are left after the time. The credential needs the permission admin, for all apps.",
        ]
    ) { arguments, context in
        let client = try AdminClient(Credentials(arguments, context))
        if arguments.has("undo") {
            guard arguments.text("pace") == nil, arguments.text("alternate") == nil else {
                throw CommandFailure.usage("--undo stands alone")
            }
            let status = try Status(client.send(.post, "/v1/drain", body: ["undo": true]))
            context.write("devices are accepted again; \(status.connections) are connected")
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
                context.write("the drain was undone; \(status.connections) devices are connected")
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
                throw .refused("the answer has no state of a drain: is that the admin listener of a gateway?")
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
