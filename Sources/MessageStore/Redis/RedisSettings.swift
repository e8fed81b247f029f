// What the servers' settings must be before a gateway relies on them.

internal import Delivery
package import Redis

/// A server's setting that does not keep what the store promises.
package struct RedisProblem: Sendable, Equatable, CustomStringConvertible {
    package var server: RedisAddress
    /// The setting or fact.
    package var name: String
    package var found: String
    package var required: String
    /// What to change: a line of `redis.conf`, a command, or a step.
    package var remedy: String
    /// A gateway works without the change, and says so in its log.
    package var isWarning = false

    package var description: String {
        "Redis at \(server): \(name) is \(found) and \(isWarning ? "should" : "must") be \(required); \(remedy)"
    }
}

/// The check of the servers' settings.
package enum RedisSettings {
    /// Looks at every primary of the map and its replicas.
    ///
    /// - Parameters:
    ///   - cluster: its map is asked for first.
    ///   - name: the cluster's, for the keys that the user must be allowed.
    ///   - minReplicas: how many connected replicas each primary must have.
    /// - Returns: what is wrong; empty when all is right.
    /// - Throws: when no server gives a map.
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

    private static func inspect(
        _ server: RedisAddress, _ cluster: String, isPrimary: Bool, _ minReplicas: Int, _ client: RedisClient,
        _ problems: inout [RedisProblem]
    ) {
        func add(_ name: String, _ found: String, _ required: String, _ remedy: String, isWarning: Bool = false) {
            problems.append(
                RedisProblem(
                    server: server, name: name, found: found, required: required, remedy: remedy, isWarning: isWarning))
        }
        var commands = [
            RedisCommand("INFO", "server"), RedisCommand("INFO", "replication"), RedisCommand("INFO", "persistence"),
        ]
        let settings = [("appendonly", "yes"), ("appendfsync", "always"), ("maxmemory-policy", "noeviction")]
        for (name, _) in settings { commands.append(RedisCommand("CONFIG", "GET", name)) }
        commands.append(RedisCommand("CONFIG", "GET", "maxmemory"))
        if client.cluster.isCluster { commands.append(RedisCommand("CLUSTER", "INFO")) }
        let replies: [RedisReply]
        do throws(RedisError) { replies = try client.exchange(commands, at: server).replies } catch {
            return add("the server", "out of reach (\(error))", "reachable", "start it, or take it out of the cluster")
        }
        guard let about = replies[0].text, let replication = replies[1].text else {
            let reason = replies[0].fault?.text ?? replies[1].fault?.text ?? "no text"
            return add("INFO", "refused (\(reason))", "allowed", "give the user the command: ACL SETUSER <user> +info")
        }
        let version = RedisInformation(about).version
        if version < (6, 2, 0) {
            add("redis_version", "\(version.0).\(version.1).\(version.2)", "6.2 or later", "install a later Redis")
        }
        for (place, (name, required)) in settings.enumerated() {
            let reply = replies[3 + place]
            guard let pair = reply.array, pair.count == 2, let value = pair[1].text else {
                let reason = reply.fault?.text ?? "the server does not know it"
                add(
                    name, "unknown (\(reason))", required,
                    "let the user read it: ACL SETUSER <user> +config|get, or look at redis.conf")
                continue
            }
            if value != required {
                add(
                    name, value, required,
                    "in redis.conf: \(name) \(required); or at once: CONFIG SET \(name) \(required)")
            }
        }
        // Without it the machine's memory is the bound: a server that is killed for it takes its replicas along, which hold
        // the same. A gateway starts all the same: the bound may be that of a container, and a cluster that works must not
        // stay down for it.
        if let pair = replies[3 + settings.count].array, pair.count == 2, pair[1].text == "0" {
            add(
                "maxmemory", "0", "less than the machine's memory",
                "nothing refuses publishes before it is full; in redis.conf: maxmemory 12gb, for 16 GB; or at once: CONFIG "
                    + "SET maxmemory 12gb", isWarning: true)
        }
        lookAtRights(server, cluster, version, client, add: { add($0, $1, $2, $3) })
        let facts = RedisInformation(replication)
        if isPrimary {
            if facts["role"] != "master" {
                add("role", facts["role"] ?? "unknown", "master", "name its primary in store.redis.nodes")
            } else if facts.replicas.count < minReplicas {
                add(
                    "connected replicas", "\(facts.replicas.count)", "\(minReplicas) or more",
                    "on another server, in redis.conf: replicaof \(server.host) \(server.port); or, to go without, set "
                        + "store.redis.minReplicas to 0")
            }
        }
        if client.cluster.isCluster, let state = replies.last?.text.map({ RedisInformation($0)["cluster_state"] }),
            state != "ok"
        {
            add(
                "cluster_state", state ?? "unknown", "ok",
                "look at CLUSTER NODES: every slot must have a primary that answers")
        }
    }

    /// Tries what a gateway needs the user to be allowed; nothing is written.
    private static func lookAtRights(
        _ server: RedisAddress, _ name: String, _ version: (Int, Int, Int), _ client: RedisClient,
        add: (_ name: String, _ found: String, _ required: String, _ remedy: String) -> Void
    ) {
        let probes = RedisRights.probes(
            name: name, isCluster: client.cluster.isCluster, waitsForDisks: version >= (7, 2, 0))
        do throws(RedisError) {
            let replies = try client.exchange(probes.map(\.command), at: server).replies
            let missing = RedisRights.missing(probes, replies)
            guard !missing.isEmpty else { return }
            let rights = missing.joined(separator: " ")
            add(
                "the user's rights", "without \(rights)", "those of docs/Cluster.md, \"Redis\"",
                "ACL SETUSER <user> \(rights), and the same in the ACL file of the server")
        } catch {
            add("the server", "out of reach (\(error))", "reachable", "start it, or take it out of the cluster")
        }
    }
}
