internal import Foundation

/// `longwire cluster`: shows the gateways of a cluster, and moves parts between them.
enum ClusterCommand {
    static let status = CommandSyntax(
        name: "cluster status", summary: "Shows the gateways of a cluster and the parts that each serves.",
        options: [.flag("json", "Prints the gateway's JSON.")] + AdminClient.options,
        notes: [
            "Any gateway of the cluster answers, as it sees the cluster. The credential needs the permission admin."
        ]
    ) { arguments, context in
        let answer = try AdminClient(Credentials(arguments, context)).send("GET", "/v1/cluster")
        context.write(arguments.has("json") ? answer.text : table(answer.object))
        return .done
    }

    static let drain = CommandSyntax(
        name: "cluster drain", summary: "Has a gateway give all its parts to the others, or takes that back.",
        options: [
            .value("node", "N", "The gateway's number. Default: the one that is asked."),
            .flag("undo", "Lets it have parts again."),
        ] + AdminClient.options,
        notes: ["The gateway goes on taking calls and devices. A stop drains by itself."]
    ) { arguments, context in
        var body: [(String, JSONText)] = []
        if let node = try arguments.number("node", in: 1...1_023) { body.append(("node", .integer(node))) }
        if arguments.has("undo") { body.append(("undo", .bool(true))) }
        let client = try AdminClient(Credentials(arguments, context))
        context.write(try client.send("POST", "/v1/cluster/drain", body: JSONText.object(body).text).text)
        return .done
    }

    static let move = CommandSyntax(
        name: "cluster move", summary: "Has a gateway serve a part, for as long as the gateway is there.",
        options: [
            .value("part", "P", "The part."),
            .value("to", "N", "The gateway's number. Without it the part goes where the cluster would place it."),
        ] + AdminClient.options,
        notes: ["Its devices are told to come back, and reconnect within about a second."]
    ) { arguments, context in
        guard let part = try arguments.number("part", in: 0...255) else {
            throw CommandFailure.usage("--part is missing: the number that cluster status shows")
        }
        var body: [(String, JSONText)] = [("part", .integer(part))]
        if let node = try arguments.number("to", in: 1...1_023) { body.append(("to", .integer(node))) }
        let client = try AdminClient(Credentials(arguments, context))
        context.write(try client.send("POST", "/v1/cluster/move", body: JSONText.object(body).text).text)
        return .done
    }

    /// One line a gateway, then the parts that nobody serves.
    private static func table(_ object: [String: Any]) -> String {
        let nodes = object["nodes"] as? [[String: Any]] ?? []
        let parts = object["parts"] as? [[String: Any]] ?? []
        func number(_ value: Any?) -> Int { (value as? NSNumber)?.intValue ?? 0 }
        func list(_ chosen: [[String: Any]]) -> String {
            chosen.isEmpty ? "none" : chosen.map { "\(number($0["part"]))" }.joined(separator: " ")
        }
        var lines = ["cluster \(object["name"] as? String ?? ""), asked gateway \(number(object["node"]))"]
        if let error = object["registerError"] as? String {
            lines.append("the register was last reached \(number(object["registerAgeMilliseconds"])) ms ago: \(error)")
        }
        for node in nodes {
            let name = number(node["node"])
            let own = parts.filter { number($0["node"]) == name && $0["state"] as? String == "open" }
            var line =
                "gateway \(name)  \(node["address"] as? String ?? "")  release \(node["release"] as? String ?? "")"
            line += "  lease \(number(node["leaseMilliseconds"])) ms  parts \(list(own))"
            if node["drained"] as? Bool == true { line += "  drained" }
            if node["leaving"] as? Bool == true { line += "  leaving" }
            lines.append(line)
        }
        lines.append("parts that nobody serves: \(list(parts.filter { $0["state"] as? String != "open" }))")
        return lines.joined(separator: "\n")
    }
}
