internal import Foundation
internal import TextForms

enum FollowCommand {
    static let upstream = syntax("upstream", "Prints an app's messages from its devices as JSON lines, and acks them.")
    static let events = syntax("events", "Prints an app's events as JSON lines, and acks them.")

    private static func syntax(_ feed: String, _ summary: String) -> CommandSyntax {
        CommandSyntax(
            name: "\(feed) follow", summary: summary,
            options: [
                .value("after", "CURSOR", "Begin after this cursor. Default: after the last acked item."),
                .value("max", "N", "Most items of one request, 1 to 1000. Default: 100."),
                .value("exit-after", "N", "End after N items."),
                .flag("no-ack", "Leave the gateway's cursor unchanged: the items are sent again."),
                .flag("once", "End after the last item instead of waiting for new ones."),
                Credentials.appOption,
            ] + AdminClient.options,
            notes: [
                "Each line is an item as the gateway gives it, with cursor, type, time and cid. A line of type gap says how "
                    + "many items are missing. Items are acked after they are printed: an end in between prints them again."
            ]
        ) { arguments, context in
            let page = try arguments.number("max", in: 1...1_000) ?? 100
            let expected = try arguments.number("exit-after", in: 1...1_000_000_000)
            let wait = arguments.has("once") ? 0 : 20
            let client = try AdminClient(Credentials(arguments, context), timeoutSeconds: 60)
            let path = "\(try DeviceCommand.appPath(arguments, context))/\(feed)"
            var after = arguments.text("after")
            if let after, UInt64(after) == nil {
                throw CommandFailure.usage("--after is \(after); it must be a cursor")
            }
            var count: Int64 = 0
            while true {
                let limit = expected.map { min(page, $0 - count) } ?? page
                let place = after.map { "&after=\($0)" } ?? ""
                let answer = try client.send(.get, "\(path)?max=\(limit)&waitSeconds=\(wait)\(place)")
                let found = Fields(answer.object)
                let items = answer.object["items"] as? [Any] ?? []
                for item in items {
                    let line = try JSONSerialization.data(
                        withJSONObject: item, options: [.sortedKeys, .withoutEscapingSlashes])
                    context.write(String(decoding: line, as: UTF8.self))
                }
                guard let cursor = found.text("cursor") else {
                    throw CommandFailure.refused("the answer has no cursor")
                }
                if !items.isEmpty, !arguments.has("no-ack") {
                    _ = try client.send(.post, "\(path)/ack", body: ["cursor": cursor])
                }
                after = cursor
                count += Int64(items.count)
                if let expected, count >= expected { return .done }
                if items.isEmpty, arguments.has("once") { return .done }
            }
        }
    }
}
