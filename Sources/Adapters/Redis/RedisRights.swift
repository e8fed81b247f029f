// The rights that a gateway's Redis user needs, and error texts for missing rights. Servers name only the command or "one of the
// keys", but an operator needs the command that grants the right.

package enum RedisRights {
    /// The keys of clusters: logs, rows and the register.
    package static let keys = "~{lw:*"
    /// The keys written before a wait for replicas, one per slot (`RedisClient.touchCommand`).
    package static let touchKeys = "~lw:touch:*"

    /// A command without effect and the right that it needs.
    package struct Probe: Sendable {
        /// The right in the form of `ACL SETUSER`.
        package var right: String
        package var command: RedisCommand
    }

    /// Returns a command for each right that a gateway needs at a server.
    ///
    /// Servers check the number of arguments first and rights second. Each command is therefore denied, fails on its arguments or
    /// finds nothing to change, and no key is written. Scripts need the same rights for their calls.
    ///
    /// - Parameters:
    ///   - name: the name of the cluster.
    ///   - isCluster: whether the servers run in cluster mode.
    ///   - waitsForDisks: whether the server supports `WAITAOF`.
    /// - Returns: the commands, to be sent together.
    package static func probes(name: String, isCluster: Bool, waitsForDisks: Bool) -> [Probe] {
        let key = "{lw:\(name)}:rights"
        var probes: [Probe] = []
        func add(_ right: String, _ words: String...) {
            var command = RedisCommand()
            for word in words { command.append(word) }
            probes.append(Probe(right: right, command: command))
        }
        // The first two probes check rights to keys, the next two the rights to the same commands. `missing` distinguishes them.
        add(keys, "EXISTS", key)
        add(touchKeys, "SET", "lw:touch:0", "1", "NX", "XX")
        add("+exists", "EXISTS", key)
        add("+set", "SET", "lw:touch:0", "1", "NX", "XX")
        add("+del", "DEL", key)
        add("+unlink", "UNLINK", key)
        add("+pexpire", "PEXPIRE", key, "1000")
        add("+hget", "HGET", key, "f")
        add("+hmget", "HMGET", key, "f")
        add("+hgetall", "HGETALL", key)
        add("+hkeys", "HKEYS", key)
        add("+hlen", "HLEN", key)
        add("+hscan", "HSCAN", key, "0")
        add("+hstrlen", "HSTRLEN", key, "f")
        add("+hexists", "HEXISTS", key, "f")
        add("+hdel", "HDEL", key, "f")
        add("+hset", "HSET", key, "f", "v", "g")
        add("+hincrby", "HINCRBY", key, "f", "x")
        add("+zadd", "ZADD", key, "NX", "XX", "0", "m")
        add("+zrem", "ZREM", key, "m")
        add("+zscore", "ZSCORE", key, "m")
        add("+zrange", "ZRANGE", key, "0", "-1")
        add("+zrangebylex", "ZRANGEBYLEX", key, "-", "+")
        add("+zrangebyscore", "ZRANGEBYSCORE", key, "0", "1")
        add("+xadd", "XADD", key, "NOMKSTREAM", "*", "f", "v")
        add("+xrange", "XRANGE", key, "-", "+", "COUNT", "1")
        add("+xinfo", "XINFO", "STREAM", key)
        add("+xtrim", "XTRIM", key, "MAXLEN", "x")
        add("+eval", "EVAL", "return 1", "1", key)
        add("+evalsha", "EVALSHA", String(repeating: "0", count: 40), "1", key)
        add("+time", "TIME")
        add("+wait", "WAIT", "0", "1")
        if waitsForDisks { add("+waitaof", "WAITAOF", "0", "0", "1") }
        guard isCluster else { return probes }
        add("+asking", "ASKING")
        add("+cluster", "CLUSTER", "SLOTS")
        add("+cluster", "CLUSTER", "INFO")
        return probes
    }

    /// Returns the rights that the replies report as missing, without duplicates.
    package static func missing(_ probes: [Probe], _ replies: [RedisReply]) -> [String] {
        var missing: [String] = []
        for (probe, reply) in zip(probes, replies) {
            guard let fault = reply.fault, fault.kind == .notAllowed else { continue }
            // A command with a key is denied for lack of either the key's or the command's right.
            guard fault.isOfKey == probe.right.hasPrefix("~"), !missing.contains(probe.right) else { continue }
            missing.append(probe.right)
        }
        return missing
    }
}

extension RedisFault {
    /// Whether a right is missing, as opposed to a wrong password.
    var isOfRights: Bool { kind == .notAllowed }

    /// Whether the password or a right is wrong or missing, which an operator must fix.
    package var isOfAccess: Bool { kind == .notAdmitted || kind == .notAllowed }

    var isOfKey: Bool { isOfRights && (text.contains("access") || text.contains(" key")) }

    /// Returns the fault with the command or key, and with the `ACL SETUSER` line that grants the right.
    func explained(_ command: RedisCommand) -> RedisFault {
        guard isOfRights, !text.contains(Self.line) else { return self }
        let arguments = command.arguments
        func word(_ place: Int) -> String {
            arguments.indices.contains(place) ? String(decoding: arguments[place], as: UTF8.self) : ""
        }
        let isScript = command.script != nil || word(0) == "EVAL"
        if isOfKey {
            let key = word(isScript ? 3 : 1)
            let right = key.hasPrefix("lw:touch:") ? RedisRights.touchKeys : RedisRights.keys
            return RedisFault("\(text); \(word(0)) needs the key \(key): \(Self.line) \(right)")
        }
        // Servers quote the command's name, but not always for a command in a script.
        let quoted = text.split(separator: "'", omittingEmptySubsequences: false)
        if quoted.count >= 3, !quoted[1].isEmpty {
            return RedisFault("\(text); the user lacks a right: \(Self.line) +\(quoted[1])")
        }
        guard isScript else {
            return RedisFault("\(text); the user lacks a right: \(Self.line) +\(word(0).lowercased())")
        }
        return RedisFault("\(text); what scripts call needs rights, too: \(Self.line) +@read +@write +time")
    }

    private static let line = "ACL SETUSER <user>"
}
