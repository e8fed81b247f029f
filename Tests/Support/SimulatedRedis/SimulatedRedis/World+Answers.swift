// The replies in which a server describes itself and the cluster.

extension SimulatedCluster.World {
    func role(_ number: Int) -> Reply {
        let server = servers[number]
        if let primary = server.primary {
            return .array([
                .text("slave"), .text(servers[primary].host), .integer(Int64(servers[primary].port)),
                .text(server.isCutOff ? "connect" : "connected"), .integer(Int64(max(server.applied, 0))),
            ])
        }
        let replicas = replicas(of: number).map { replica in
            Reply.array([
                .text(servers[replica].host), .text(String(servers[replica].port)),
                .text(String(max(servers[replica].applied, 0))),
            ])
        }
        return .array([.text("master"), .integer(Int64(server.history.count)), .array(replicas)])
    }

    private func replicas(of number: Int) -> [Int] {
        shards[servers[number].shard].members.filter {
            $0 != number && servers[$0].isUp && !servers[$0].isCutOff && servers[$0].primary == number
                && !servers[number].isForgotten
        }
    }

    func info(_ number: Int) -> Reply {
        let server = servers[number]
        var lines = [
            "# Server", "redis_version:\(layout.waitsForWritesOnly ? "7.2.5" : "7.0.15")",
            "redis_mode:\(layout.isCluster ? "cluster" : "standalone")",
            "run_id:\(server.identity)", "", "# Memory", "used_memory:1000000",
            "maxmemory:\(server.settings["maxmemory"] ?? "0")",
            "maxmemory_policy:\(server.settings["maxmemory-policy"] ?? "noeviction")", "", "# Persistence",
            "loading:\(server.loadingUntil > now ? 1 : 0)",
            "aof_enabled:\(server.settings["appendonly"] == "yes" ? 1 : 0)", "aof_last_write_status:ok", "",
            "# Replication",
            "role:\(server.primary == nil ? "master" : "slave")",
        ]
        if let primary = server.primary {
            lines += [
                "master_host:\(servers[primary].host)", "master_port:\(servers[primary].port)",
                "master_link_status:\(server.isCutOff || !servers[primary].isUp ? "down" : "up")",
                "master_sync_in_progress:0", "slave_repl_offset:\(max(server.applied, 0))",
            ]
        }
        let connected = server.primary == nil ? replicas(of: number) : []
        lines.append("connected_slaves:\(connected.count)")
        for (index, replica) in connected.enumerated() {
            let offset = max(servers[replica].applied, 0)
            lines.append(
                "slave\(index):ip=\(servers[replica].host),port=\(servers[replica].port),state=online,offset=\(offset),lag=0"
            )
        }
        lines += [
            "master_repl_offset:\(server.history.count)", "", "# Cluster",
            "cluster_enabled:\(layout.isCluster ? 1 : 0)",
        ]
        return .text(lines.joined(separator: "\r\n") + "\r\n")
    }

    func config(_ number: Int, _ words: [Bytes]) -> Reply {
        guard words.count > 2 else { return .error("ERR wrong number of arguments for 'config|get' command") }
        guard Keyspace.upper(words[1]) == "GET" else { return .ok }
        var found: [Reply] = []
        for (name, value) in servers[number].settings.sorted(by: { $0.key < $1.key }) {
            let isAsked = words.dropFirst(2).contains { word in
                let pattern = String(decoding: word, as: UTF8.self)
                return pattern == name || pattern.hasSuffix("*") && name.hasPrefix(pattern.dropLast())
            }
            if isAsked { found += [.text(name), .text(value)] }
        }
        return .array(found)
    }

    /// Returns the shard's replicas in the cluster map, which omits replicas that are down.
    private func named(_ shard: Int) -> [Int] {
        shards[shard].members.filter {
            $0 != shards[shard].primary && servers[$0].isUp && servers[$0].primary == shards[shard].primary
        }
    }

    func cluster(_ number: Int, _ words: [Bytes]) -> Reply {
        guard layout.isCluster else { return .error("ERR This instance has cluster support disabled") }
        guard words.count > 1 else { return .error("ERR wrong number of arguments for 'cluster' command") }
        switch Keyspace.upper(words[1]) {
        case "MYID": return .text(servers[number].identity)
        case "KEYSLOT": return .integer(Int64(words.count > 2 ? Slots.slot(of: words[2]) : 0))
        case "INFO":
            let state = downUntil > now ? "fail" : "ok"
            return .text(
                "cluster_enabled:1\r\ncluster_state:\(state)\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n"
                    + "cluster_known_nodes:\(servers.count)\r\ncluster_size:\(shards.count)\r\n"
                    + "cluster_current_epoch:\(shards.map(\.epoch).max() ?? 0)\r\n")
        case "SLOTS":
            return .array(
                spans.map { span in
                    .array(
                        [.integer(Int64(span.first)), .integer(Int64(span.last))]
                            + ([shards[span.shard].primary] + named(span.shard)).map { member in
                                .array([
                                    .text(servers[member].host), .integer(Int64(servers[member].port)),
                                    .text(servers[member].identity), .array([]),
                                ])
                            })
                })
        case "SHARDS":
            return .array(
                shards.enumerated().map { index, shard in
                    let ranges = spans.filter { $0.shard == index }
                        .flatMap { [Reply.integer(Int64($0.first)), .integer(Int64($0.last))] }
                    let nodes = shard.members.map { member -> Reply in
                        let server = servers[member]
                        return .array([
                            .text("id"), .text(server.identity), .text("port"), .integer(Int64(server.port)),
                            .text("ip"),
                            .text(server.host), .text("endpoint"), .text(server.host), .text("role"),
                            .text(member == shard.primary ? "master" : "replica"), .text("replication-offset"),
                            .integer(Int64(max(server.applied, server.history.count))), .text("health"),
                            .text(!server.isUp ? "failed" : server.loadingUntil > now ? "loading" : "online"),
                        ])
                    }
                    return .array([.text("slots"), .array(ranges), .text("nodes"), .array(nodes)])
                })
        case "NODES":
            let lines = servers.map { server -> String in
                let isPrimary = shards[server.shard].primary == server.number
                let flags =
                    (server.number == number ? "myself," : "") + (isPrimary ? "master" : "slave")
                    + (server.isUp ? "" : ",fail")
                let of = isPrimary ? "-" : servers[shards[server.shard].primary].identity
                let ranges =
                    isPrimary
                    ? spans.filter { $0.shard == server.shard }.map { " \($0.first)-\($0.last)" }.joined() : ""
                return "\(server.identity) \(server.host):\(server.port)@1\(server.port) \(flags) \(of) 0 0 "
                    + "\(shards[server.shard].epoch) connected\(ranges)"
            }
            return .text(lines.joined(separator: "\n") + "\n")
        case "COUNTKEYSINSLOT": return .integer(0)
        default:
            return .error("ERR unknown subcommand '\(String(decoding: words[1], as: UTF8.self))'. Try CLUSTER HELP.")
        }
    }
}
