internal import Foundation

/// `longwire trace` and `longwire device`: what became of a message, how a device stands.
enum TraceCommand {
    static let trace = CommandSyntax(
        name: "trace", summary: "Shows what became of a message, step by step.",
        operands: [("MSGID", "32 hex digits, as push and the messages name it.")],
        options: AdminClient.options,
        notes: ["Prints the gateway's JSON. Exit code 1 when it knows no such message."]
    ) { arguments, context in
        let id = try hexDigits(arguments.operands[0], "MSGID")
        let answer = try AdminClient(Credentials(arguments, context)).send("GET", "/v1/messages/\(id)")
        context.write(answer.text)
        return .done
    }

    static let device = CommandSyntax(
        name: "device", summary: "Shows how a device stands: session, state, queue, tokens, badge.",
        operands: [("CID", "32 hex digits, as the device's registration named it.")],
        options: [Credentials.appOption] + AdminClient.options,
        notes: ["Prints the gateway's JSON. Exit code 1 when it knows no such device in this app."]
    ) { arguments, context in
        let credentials = try Credentials(arguments, context)
        let id = try hexDigits(arguments.operands[0], "CID")
        let app = try credentials.appID().addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
        let answer = try AdminClient(credentials).send("GET", "/v1/apps/\(app)/devices/\(id)")
        context.write(answer.text)
        return .done
    }

    private static func hexDigits(_ text: String, _ name: String) throws(CommandFailure) -> String {
        guard text.count == 32, text.allSatisfy({ $0.isASCII && $0.isHexDigit && !$0.isUppercase }) else {
            throw .usage("\(name) is \(text); it must be 32 lower-case hex digits")
        }
        return text
    }
}
