internal import Delivery
package import Redis

/// A finding about a server's settings or state.
package struct RedisProblem: Sendable, Equatable, CustomStringConvertible {
    /// Whether the finding stops a gateway, and whether waiting helps.
    package enum Kind: Sendable, Equatable {
        /// The setting breaks the store's guarantees; an operator has to change it.
        case wrong
        /// The state of a restart, an election or a resynchronization, which ends by itself.
        case passing
        /// The value cannot be read; a gateway starts only if the operator confirms it.
        case unread
        /// The change is recommended, but a gateway works without it.
        case advice
    }

    package var kind: Kind
    package var server: RedisAddress
    /// The setting or fact.
    package var name: String
    package var found: String
    package var required: String
    /// The line of `redis.conf`, the command or the step that corrects the setting.
    package var remedy: String

    /// Whether the finding is that a primary has too few replicas.
    package var isReplicaCount: Bool { name == Self.replicaCount }
    static let replicaCount = "connected replicas"

    package var description: String {
        "Redis at \(server): \(name) is \(found) and \(kind == .advice ? "should" : "must") be \(required); \(remedy)"
    }
}

package enum RedisSettings {
    /// A line of `deploy/redis/redis.conf` that the check compares with a server's value.
    private struct Line {
        var name: String
        var required: String
        /// The setting does not exist, or has no effect, outside a Redis Cluster.
        var isOfCluster = false
        var isDurability = false
        /// The section and field of `INFO` that report the setting, for a server that hides `CONFIG`.
        var information: (section: String, field: String, value: String)?
        /// The consequence of another value.
        var reason = ""
    }

    /// The lines of `deploy/redis/redis.conf` in its order, except `cluster-enabled`, which a single primary does not need.
    private static let lines = [
        Line(name: "appendonly", required: "yes", isDurability: true, information: ("persistence", "aof_enabled", "1")),
        Line(name: "appendfsync", required: "always", isDurability: true),
        Line(
            name: "maxmemory-policy", required: "noeviction", isDurability: true,
            information: ("memory", "maxmemory_policy", "noeviction")),
        Line(name: "save", required: "", reason: "a failed snapshot stops all writes"),
        Line(
            name: "cluster-node-timeout", required: "2000", isOfCluster: true,
            reason: "a replica takes over later, or while its primary is only slow"),
        Line(
            name: "cluster-require-full-coverage", required: "no", isOfCluster: true,
            reason: "one primary without replicas stops the writes of all others"),
        Line(
            name: "cluster-replica-validity-factor", required: "0", isOfCluster: true,
            reason: "a replica that was cut off for a while is not elected"),
        Line(
            name: "cluster-allow-replica-migration", required: "no", isOfCluster: true,
            reason: "a replica leaves its primary for another one"),
        Line(
            name: "repl-diskless-sync", required: "yes",
            reason: "a resynchronization waits until the primary has written its data to a file"),
        Line(
            name: "repl-diskless-sync-delay", required: "0",
            reason: "commits wait for it after each failover"),
        Line(
            name: "repl-diskless-load", required: "swapdb",
            reason: "a resynchronization is slower, and an interrupted one leaves the replica empty"),
        Line(
            name: "repl-ping-replica-period", required: "1",
            reason: "a broken replication link is noticed later"),
    ]

    /// The names and required values of all compared settings, in the order of `deploy/redis/redis.conf`.
    package static var required: [(name: String, value: String)] { lines.map { ($0.name, $0.required) } }

    /// Checks every primary of the slot map and its replicas.
    ///
    /// - Parameters:
    ///   - cluster: The cluster. Its slot map is requested first.
    ///   - name: The cluster's name, for the keys that the Redis user must be allowed to access.
    ///   - minReplicas: The number of connected replicas that each primary must have.
    /// - Returns: The findings; empty if all settings are correct.
    /// - Throws: When no server returns a slot map.
    package static func check(
        _ cluster: RedisCluster, name: String, minReplicas: Int
    ) throws(RedisError) -> [RedisProblem] {
        let client = RedisClient(cluster)
        defer { client.close() }
        try client.askForMap()
        var problems: [RedisProblem] = []
        for primary in cluster.primaries {
            inspect(primary.address, name, isPrimary: true, minReplicas, client, &problems)
            // A replica becomes primary in a failover, with its own settings.
            for replica in primary.replicas {
                inspect(replica, name, isPrimary: false, minReplicas, client, &problems)
            }
        }
        return problems
    }

    /// Checks the settings of a server that durability depends on.
    ///
    /// - Returns: The wrong settings, without unreadable ones; `nil` if the server does not answer.
    static func durabilityProblems(at server: RedisAddress, _ client: RedisClient) -> [RedisProblem]? {
        let lines = lines.filter(\.isDurability)
        guard let values = try? read(lines, at: server, client) else { return nil }
        return zip(lines, values).compactMap { problem($0, $1, server) }.filter { $0.kind == .wrong }
    }

    /// A server's value of a setting, and the way it was read.
    private enum Reading {
        case value(String)
        /// The value in `INFO` is not the required one; the actual setting is unknown.
        case differs
        /// The value is from a replica that disables its append-only file while it synchronizes.
        case synchronizes
        case unread(String)
    }

    private static func read(
        _ lines: [Line], at server: RedisAddress, _ client: RedisClient
    ) throws(RedisError) -> [Reading] {
        let replies = try client.exchange(
            lines.map { RedisCommand("CONFIG", "GET", $0.name) } + [
                RedisCommand("INFO", "persistence"), RedisCommand("INFO", "memory"),
                RedisCommand("INFO", "replication"),
            ], at: server
        ).replies
        let information = [
            "persistence": replies[lines.count].text.map { RedisInformation($0) },
            "memory": replies[lines.count + 1].text.map { RedisInformation($0) },
        ]
        let replication = replies[lines.count + 2].text.map { RedisInformation($0) }
        let persistence = information["persistence"] ?? nil
        let synchronizes =
            replication?["master_sync_in_progress"] == "1" || replication?["master_link_status"] == "down"
            || persistence?["loading"] == "1" || persistence?["async_loading"] == "1"
        return lines.indices.map { place in
            let (line, reply) = (lines[place], replies[place])
            if let pair = reply.array, pair.count == 2, let value = pair[1].text { return .value(value) }
            if let source = line.information,
                let value = information[source.section].flatMap({ $0?[source.field] })
            {
                return value == source.value ? .value(line.required) : synchronizes ? .synchronizes : .differs
            }
            return .unread(reply.fault?.text ?? "the server does not know it")
        }
    }

    private static func problem(_ line: Line, _ reading: Reading, _ server: RedisAddress) -> RedisProblem? {
        let found: String
        switch reading {
        case .value(line.required): return nil
        case .value(let value): found = value.isEmpty ? "empty" : "\"\(value)\""
        case .differs: found = "another value"
        case .synchronizes:
            return RedisProblem(
                kind: .passing, server: server, name: line.name, found: "off during a synchronization",
                required: line.required, remedy: "it is on again when the replica has its primary's data")
        case .unread(let reason):
            guard line.isDurability else { return nil }
            return RedisProblem(
                kind: .unread, server: server, name: line.name, found: "unknown (\(reason))", required: line.required,
                remedy:
                    "let the user read it: ACL SETUSER <user> +config|get; or, if you have set it so on every server, "
                    + "vouch for it with store.redis.assumesFsync true")
        }
        let value = line.required.isEmpty ? "\"\"" : line.required
        let reason = line.reason.isEmpty ? "" : "otherwise \(line.reason); "
        return RedisProblem(
            kind: line.isDurability ? .wrong : .advice, server: server, name: line.name, found: found, required: value,
            remedy: "\(reason)in redis.conf: \(line.name) \(value); or at once: CONFIG SET \(line.name) \(value)")
    }

    private static func inspect(
        _ server: RedisAddress, _ cluster: String, isPrimary: Bool, _ minReplicas: Int, _ client: RedisClient,
        _ problems: inout [RedisProblem]
    ) {
        func add(_ kind: RedisProblem.Kind, _ name: String, _ found: String, _ required: String, _ remedy: String) {
            problems.append(
                RedisProblem(
                    kind: kind, server: server, name: name, found: found, required: required, remedy: remedy))
        }
        func addUnreachable(_ error: RedisError) {
            var kind = RedisProblem.Kind.passing
            if case .refused(_, let fault) = error, fault.isOfAccess { kind = .wrong }
            add(
                kind, "the server", "out of reach (\(error))", "reachable",
                "start it, or take it out of the cluster")
        }
        let isCluster = client.cluster.isCluster
        var commands = [
            RedisCommand("INFO", "server"), RedisCommand("INFO", "replication"), RedisCommand("INFO", "persistence"),
            RedisCommand("INFO", "memory"),
        ]
        if isCluster { commands.append(RedisCommand("CLUSTER", "INFO")) }
        let lines = lines.filter { isCluster || !$0.isOfCluster }
        let (replies, values): ([RedisReply], [Reading])
        do throws(RedisError) {
            replies = try client.exchange(commands, at: server).replies
            values = try read(lines, at: server, client)
        } catch { return addUnreachable(error) }
        guard let about = replies[0].text, let replication = replies[1].text else {
            let fault = replies[0].fault ?? replies[1].fault
            return add(
                fault?.isPassing == true ? .passing : .wrong, "INFO", "refused (\(fault?.text ?? "no text"))",
                "allowed",
                "give the user the command: ACL SETUSER <user> +info")
        }
        if let loading = replies[2].text.map({ RedisInformation($0)["loading"] }), loading == "1" {
            return add(.passing, "the server", "loading its data", "ready", "it answers when it has read its files")
        }
        let version = RedisInformation(about).version
        if version < (6, 2, 0) {
            add(
                .wrong, "redis_version", "\(version.0).\(version.1).\(version.2)", "6.2 or later",
                "install a later Redis")
        }
        for (line, value) in zip(lines, values) {
            if let problem = problem(line, value, server) { problems.append(problem) }
        }
        // Without a limit the kernel kills the server when memory runs out, and then its replicas, which hold the same data.
        // This is only advice, because a container may set the limit.
        if replies[3].text.flatMap({ RedisInformation($0).number("maxmemory") }) == 0 {
            add(
                .advice, "maxmemory", "0", "less than the machine's memory",
                "nothing refuses publishes before it is full; in redis.conf: maxmemory 12gb, for 16 GB; or at once: CONFIG "
                    + "SET maxmemory 12gb")
        }
        lookAtRights(server, cluster, version, client, add: { add(.wrong, $0, $1, $2, $3) }, failed: addUnreachable)
        let facts = RedisInformation(replication)
        if isPrimary {
            if facts["role"] != "master" {
                add(
                    isCluster ? .passing : .wrong, "role", facts["role"] ?? "unknown", "master",
                    isCluster
                        ? "an election is under way" : "name its primary in store.redis.nodes")
            } else if facts.replicas.count < minReplicas {
                let step =
                    isCluster
                    ? "start its replicas, or add one: redis-cli --cluster add-node ADDRESS:PORT \(server) --cluster-slave"
                    : "on another server, in redis.conf: replicaof \(server.host) \(server.port)"
                add(
                    .passing, RedisProblem.replicaCount, "\(facts.replicas.count)", "\(minReplicas) or more",
                    "\(step); or, to go without, set store.redis.minReplicas to 0")
            }
        }
        if isCluster, let state = replies.last?.text.map({ RedisInformation($0)["cluster_state"] }), state != "ok" {
            add(
                .passing, "cluster_state", state ?? "unknown", "ok",
                "look at CLUSTER NODES: every slot must have a primary that answers")
        }
    }

    /// Checks the ACL permissions that a gateway needs, without writing anything.
    private static func lookAtRights(
        _ server: RedisAddress, _ name: String, _ version: (Int, Int, Int), _ client: RedisClient,
        add: (_ name: String, _ found: String, _ required: String, _ remedy: String) -> Void,
        failed: (RedisError) -> Void
    ) {
        let probes = RedisRights.probes(
            name: name, isCluster: client.cluster.isCluster, waitsForDisks: version >= (7, 2, 0))
        do throws(RedisError) {
            let replies = try client.exchange(probes.map(\.command), at: server).replies
            let missing = RedisRights.missing(probes, replies)
            guard !missing.isEmpty else { return }
            let rights = missing.joined(separator: " ")
            add(
                "the user's rights", "without \(rights)", "those of docs/use/Cluster.md, \"Redis\"",
                "ACL SETUSER <user> \(rights), and the same in the ACL file of the server")
        } catch { failed(error) }
    }
}
