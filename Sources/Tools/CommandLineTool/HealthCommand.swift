internal import Foundation
internal import TextForms

enum HealthCommand {
    static let health = CommandSyntax(
        name: "health", summary: "Checks whether a gateway, or longwire-sender, is ready.",
        options: [
            .value("http", "ADDRESS", "A listener with /readyz, host:port or a URL. Default: 127.0.0.1:7080."),
            .value("timeout-seconds", "N", "How long the answer may take, 1 to 60. Default: 5."),
            .flag("live", "Checks /healthz: whether the process runs. A drain does not change the answer."),
            Credentials.authoritiesOption, Credentials.certificateOption, Credentials.keyOption,
            Credentials.contextOption, Credentials.dataOption,
        ],
        notes: [
            "Prints the answer. Exit code 0: ready. 1: it answers and is not ready: it starts, drains or lacks its store. "
                + "69: no answer."
        ]
    ) { arguments, context in
        let seconds = try arguments.number("timeout-seconds", in: 1...60) ?? 5
        let credentials = try Credentials(arguments, context)
        let client = GatewayHTTP(
            base: try credentials.httpBase(), timeoutSeconds: Double(seconds),
            trust: credentials.trust)
        let answer = try client.send(.get, arguments.has("live") ? "/healthz" : "/readyz")
        context.write(answer.text.trimmingCharacters(in: .newlines))
        return answer.status == 200 ? .done : .refused
    }
}
