internal import Foundation
internal import MessageStore
internal import Redis
internal import TextForms

enum RedisOptions {
    static let all: [CommandOption] = [
        .value("user", "NAME", "The ACL user. Default: the default one."),
        .value("password-file", "FILE", "A file with the password in its first line."),
        .flag("tls", "Speaks TLS to the servers."),
        .value("ca", "FILE", "PEM certificates of the authorities to trust, with --tls. Default: the system's."),
        .value("server-name", "NAME", "The name in the servers' certificates. Default: each server's host."),
        .value("certificate", "FILE", "PEM chain that this side shows, with --tls."),
        .value("key", "FILE", "Its key."),
        .value("min-replicas", "N", "Connected replicas that each primary must have, 0 to 5. Default: 1."),
    ]

    static func cluster(_ text: some StringProtocol, _ arguments: ParsedArguments) throws -> RedisCluster {
        let seeds = try text.split(separator: ",").map { text -> RedisAddress in
            guard let address = RedisAddress(text) else { throw CommandFailure.usage("\(text) is no host:port") }
            return address
        }
        guard !seeds.isEmpty else { throw CommandFailure.usage("no server is named") }
        var access = RedisAccess(user: arguments.text("user"))
        if let file = arguments.text("password-file") {
            guard let text = try? String(contentsOfFile: file, encoding: .utf8) else {
                throw CommandFailure.usage("--password-file \(file) cannot be read")
            }
            access.password = text.split(whereSeparator: \.isNewline).first.map(String.init)
        }
        if arguments.has("tls") {
            let certificate = arguments.text("certificate").map { (path: $0, keyPath: arguments.text("key")) }
            access.security = try RedisAccess.Security(
                caFile: arguments.text("ca"), serverName: arguments.text("server-name"), certificate: certificate)
        }
        return RedisCluster(seeds: seeds, network: RedisSockets(access))
    }

    static func minReplicas(_ arguments: ParsedArguments) throws -> Int {
        Int(try arguments.number("min-replicas", in: 0...5) ?? 1)
    }
}

extension StoreCommands {
    static let redisCheck = CommandSyntax(
        name: "redis check", summary: "Checks whether Redis servers have the settings that a gateway needs.",
        operands: [("SERVERS", "host:port of one or more servers, with commas between; the others are found by them.")],
        options: RedisOptions.all + [
            .value("cluster", "NAME", "The cluster's name, which keys begin with. Default: longwire.")
        ],
        notes: [
            "Prints a line for each problem, with the change that corrects it. Exit code 1 when there is one; 0 with warnings and "
                + "settings that cannot be read alone. A lack of replicas is a warning unless --min-replicas is given."
        ]
    ) { arguments, context in
        let cluster = try RedisOptions.cluster(arguments.operands[0], arguments)
        let found = try RedisSettings.check(
            cluster, name: arguments.text("cluster") ?? RedisEngine.Configuration().name,
            minReplicas: try RedisOptions.minReplicas(arguments))
        // Without the option the replica count that the gateways require is unknown.
        let isCountKnown = arguments.text("min-replicas") != nil
        let problems = found.filter {
            $0.kind == .wrong || $0.kind == .passing && (isCountKnown || !$0.isReplicaCount)
        }
        for finding in found where !problems.contains(finding) {
            context.write(
                "\(finding.kind == .unread ? "not checked" : "warning"): \(TerminalText.plain(finding.description))")
        }
        guard problems.isEmpty else {
            throw CommandFailure.refused(problems.map { TerminalText.plain($0.description) }.joined(separator: "\n"))
        }
        context.write("the servers are set up as a gateway needs them")
        return .done
    }
}
