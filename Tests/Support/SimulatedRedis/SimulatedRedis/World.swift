extension SimulatedCluster.World {
    typealias Connection = SimulatedCluster.Connection

    var wallTime: Int64 { SimulatedCluster.startOfTime + now }

    mutating func note(_ fault: String) { faultCounts[fault, default: 0] += 1 }

    // MARK: Connections

    mutating func connect(host: String, port: Int, timeout: Int) throws(CallFailure) -> Int {
        now += 1
        guard let number = servers.firstIndex(where: { $0.host == host && $0.port == port }), servers[number].isUp
        else {
            note("connection refused")
            throw .refused
        }
        if servers[number].stalledUntil > now {
            // The kernel accepts the connection, but no process answers on it.
            now += 1
        }
        lastConnection += 1
        let identity = lastConnection
        connections[identity] = Connection(server: number, life: servers[number].life)
        return identity
    }

    private mutating func chance(for commands: [[Bytes]]) -> Chance {
        let key = commands.lazy.compactMap { Keyspace.keys(of: $0).first }.first
        let name = tag(key ?? commands.first?.first ?? [])
        if let chance = chances[name] { return chance }
        return Chance(seed: name.reduce(seed) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01B3 })
    }

    private mutating func keep(_ chance: Chance, for commands: [[Bytes]]) {
        let key = commands.lazy.compactMap { Keyspace.keys(of: $0).first }.first
        chances[tag(key ?? commands.first?.first ?? [])] = chance
    }

    private func tag(_ key: Bytes) -> Bytes {
        guard let begin = key.firstIndex(of: UInt8(ascii: "{")),
            let end = key[begin...].firstIndex(of: UInt8(ascii: "}"))
        else { return key }
        return Bytes(key[begin...end])
    }

    mutating func call(_ identity: Int, _ commands: [[Bytes]], timeout: Int) throws(CallFailure) -> [Reply] {
        guard var connection = connections[identity], connection.isOpen else { throw .broken }
        let number = connection.server
        guard servers[number].isUp, servers[number].life == connection.life else {
            connections[identity] = nil
            throw .broken
        }
        if let name = commands.first?.first { callCounts[Keyspace.upper(name), default: 0] += 1 }
        now += 1
        let deadline = now + Int64(max(timeout, 1))
        if servers[number].stalledUntil > now {
            if servers[number].stalledUntil > deadline {
                // The commands run after the stall, even if the client has disconnected.
                servers[number].waiting.append((servers[number].stalledUntil, commands))
                note("stalled")
                try fail(identity, at: deadline, .timedOut)
            }
            now = servers[number].stalledUntil
        }
        runWaiting(on: number)
        var chance = chance(for: commands)
        defer { keep(chance, for: commands) }
        if chance.happens(rates.refused) {
            note("cut before")
            try fail(identity, at: now, .broken)
        }
        if chance.happens(rates.timedOut) {
            note("timed out")
            try fail(identity, at: deadline, .timedOut)
        }
        if chance.happens(rates.late) {
            note("late")
            servers[number].waiting.append((deadline + Int64(chance.below(1500)), commands))
            try fail(identity, at: deadline, .timedOut)
        }
        let cutAt = chance.happens(rates.cutWithin) ? chance.below(commands.count) : nil
        let isReplyLost = chance.happens(rates.replyLost)
        var replies: [Reply] = []
        for (index, words) in commands.enumerated() {
            if index == cutAt {
                note("cut within")
                try fail(identity, at: now, .broken)
            }
            if chance.happens(rates.scriptsForgotten) { servers[number].data.forgetScripts() }
            if chance.happens(rates.refusal), let reply = refusal(&chance, words) {
                replies.append(reply)
                continue
            }
            replies.append(execute(words, on: number, &connection, &chance, deadline: deadline))
            guard now <= deadline else {
                note("timed out")
                try fail(identity, at: deadline, .timedOut)
            }
        }
        if isReplyLost {
            note("reply lost")
            try fail(identity, at: chance.happens(0.5) ? now : deadline, .broken)
        }
        connections[identity] = connection
        return replies
    }

    private mutating func fail(_ identity: Int, at time: Int64, _ failure: CallFailure) throws(CallFailure) -> Never {
        now = max(now, time)
        connections[identity] = nil
        throw failure
    }

    /// Returns an error that does not depend on the command.
    private mutating func refusal(_ chance: inout Chance, _ words: [Bytes]) -> Reply? {
        let texts = [
            "LOADING Redis is loading the dataset in memory", "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "MISCONF Errors writing to the AOF file: No space left on device",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ]
        let text = texts[chance.below(texts.count)]
        guard let name = words.first.map(Keyspace.upper), Keyspace.traits(of: name) != nil, name != "PING" else {
            return nil
        }
        if text.hasPrefix("MISCONF"), Keyspace.traits(of: name)?.isWrite != true, !name.hasPrefix("EVAL") { return nil }
        if text.hasPrefix("CLUSTERDOWN") || text.hasPrefix("TRYAGAIN"), !layout.isCluster { return nil }
        note(String(text.prefix { $0 != " " }))
        return .error(text)
    }

    /// Runs the due commands that arrived while the server did not answer.
    private mutating func runWaiting(on number: Int) {
        while let index = servers[number].waiting.firstIndex(where: { $0.time <= now }) {
            let call = servers[number].waiting.remove(at: index)
            var connection = Connection(server: number, life: servers[number].life)
            var chance = Chance(seed: seed)
            for words in call.words where words.first.map(Keyspace.upper) != "WAIT" {
                note("ran late")
                _ = execute(words, on: number, &connection, &chance, deadline: now)
            }
        }
    }

    // MARK: Commands

    private mutating func execute(
        _ words: [Bytes], on number: Int, _ connection: inout Connection, _ chance: inout Chance, deadline: Int64
    ) -> Reply {
        guard let first = words.first else { return .error("ERR unknown command ''") }
        let name = Keyspace.upper(first)
        let isAsking = connection.isAsking
        connection.isAsking = false
        if servers[number].loadingUntil > now, !["INFO", "CONFIG", "AUTH", "HELLO", "CLIENT"].contains(name) {
            return .error("LOADING Redis is loading the dataset in memory")
        }
        switch name {
        case "AUTH", "CLIENT", "READONLY", "READWRITE": return .ok
        case "ASKING":
            guard layout.isCluster else { return clusterDisabled }
            connection.isAsking = true
            return .ok
        case "INFO": return info(number)
        case "CONFIG": return config(number, words)
        case "CLUSTER": return cluster(number, words)
        case "ROLE": return role(number)
        case "WAIT", "WAITAOF": return wait(name, words, number, connection, &chance, deadline: deadline)
        default: break
        }
        if let redirection = redirection(of: words, on: number, isAsking: isAsking) { return redirection }
        let isReplica = servers[number].primary != nil
        servers[number].data.refusesWrites = isReplica
        let reply = servers[number].data.run(words, at: wallTime)
        let effects = servers[number].data.takeEffects()
        if !effects.isEmpty { servers[number].history.append((effects, wallTime)) }
        if !effects.isEmpty || !layout.waitsForWritesOnly { connection.offset = servers[number].history.count }
        replicateSome(from: number, &chance)
        return reply
    }

    /// Runs a command on the key's current owner; replicas apply its effects like any other.
    mutating func intrude(_ words: [Bytes]) -> Reply {
        guard let key = Keyspace.keys(of: words).first else { return .null }
        let slot = Slots.slot(of: key)
        var number = shards[layout.isCluster ? slots[slot] : 0].primary
        if let move = moving[slot], !servers[number].data.has(key) { number = shards[move.target].primary }
        let wasRefusing = servers[number].data.refusesWrites
        servers[number].data.refusesWrites = false
        let reply = servers[number].data.run(words, at: wallTime)
        servers[number].data.refusesWrites = wasRefusing
        let effects = servers[number].data.takeEffects()
        if !effects.isEmpty { servers[number].history.append((effects, wallTime)) }
        return reply
    }

    private var clusterDisabled: Reply { .error("ERR This instance has cluster support disabled") }

    /// Returns the redirection for a command whose slot this server does not own.
    private func redirection(of words: [Bytes], on number: Int, isAsking: Bool) -> Reply? {
        guard layout.isCluster else { return nil }
        let keys = Keyspace.keys(of: words)
        guard let key = keys.first else { return nil }
        if downUntil > now { return .error("CLUSTERDOWN The cluster is down") }
        let slot = Slots.slot(of: key)
        guard keys.allSatisfy({ Slots.slot(of: $0) == slot }) else {
            return .error("CROSSSLOT Keys in request don't hash to the same slot")
        }
        func address(_ shard: Int) -> String {
            let primary = servers[shards[shard].primary]
            return "\(primary.host):\(primary.port)"
        }
        let shard = servers[number].shard
        let owner = slots[slot]
        if servers[number].isForgotten { return owner == shard ? nil : .error("MOVED \(slot) \(address(owner))") }
        guard shards[shard].primary == number else { return .error("MOVED \(slot) \(address(owner))") }
        if owner == shard {
            guard let move = moving[slot] else { return nil }
            let present = keys.count { servers[number].data.has($0) }
            if present == keys.count { return nil }
            if present > 0 { return .error("TRYAGAIN Multiple keys request during rehashing of slot") }
            return .error("ASK \(slot) \(address(move.target))")
        }
        if let move = moving[slot], move.target == shard, isAsking {
            let present = keys.count { servers[number].data.has($0) }
            return keys.count > 1 && present > 0 && present < keys.count
                ? .error("TRYAGAIN Multiple keys request during rehashing of slot") : nil
        }
        return .error("MOVED \(slot) \(address(owner))")
    }

    // MARK: Replication

    private func follows(_ replica: Int, _ primary: Int) -> Bool {
        let server = servers[replica]
        return server.isUp && !server.isCutOff && server.primary == primary && server.stalledUntil <= now
            && server.loadingUntil <= now && servers[primary].isUp && !servers[primary].isForgotten
    }

    /// Applies the primary's history up to this entry on a replica.
    private mutating func replicate(_ replica: Int, upTo count: Int) {
        guard let primary = servers[replica].primary else { return }
        if servers[replica].applied < 0 {
            servers[replica].data = servers[primary].data
            servers[replica].applied = servers[primary].history.count
            return
        }
        while servers[replica].applied < count {
            let entry = servers[primary].history[servers[replica].applied]
            servers[replica].data.refusesWrites = false
            servers[replica].data.isOutOfMemory = false
            for words in entry.effects { _ = servers[replica].data.run(words, at: entry.time) }
            _ = servers[replica].data.takeEffects()
            servers[replica].data.isOutOfMemory = servers[primary].data.isOutOfMemory
            servers[replica].applied += 1
        }
    }

    /// Applies some of the missing entries on each replica, as asynchronous replication does.
    private mutating func replicateSome(from primary: Int, _ chance: inout Chance) {
        for replica in shards[servers[primary].shard].members where follows(replica, primary) {
            let lag = servers[primary].history.count - servers[replica].applied
            if lag > 0, chance.happens(rates.eagerReplica) {
                replicate(replica, upTo: servers[replica].applied + chance.below(lag + 1))
            }
        }
    }

    private mutating func wait(
        _ name: String, _ words: [Bytes], _ number: Int, _ connection: Connection, _ chance: inout Chance,
        deadline: Int64
    ) -> Reply {
        // Redis 7.2 added WAITAOF. The server's own disk has every entry, because the server syncs before it replies.
        let isOfDisks = name == "WAITAOF"
        if isOfDisks, !layout.waitsForWritesOnly {
            return .error("ERR unknown command 'WAITAOF', with args beginning with: ")
        }
        guard words.count == (isOfDisks ? 4 : 3) else {
            return .error("ERR wrong number of arguments for '\(name.lowercased())' command")
        }
        let words = isOfDisks ? Array(words.dropFirst()) : words
        guard servers[number].primary == nil else {
            return .error(
                "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is "
                    + "configured to be writable (which is not the default) writes to replicas are just local and are "
                    + "not propagated.")
        }
        guard let wanted = Keyspace.integer(words[1]), let time = Keyspace.integer(words[2]) else {
            return .error("ERR value is not an integer or out of range")
        }
        guard time >= 0 else { return .error("ERR timeout is negative") }
        let members = shards[servers[number].shard].members.filter { $0 != number }
        var isSlow: Set<Int> = []
        for replica in members where chance.happens(rates.slowReplica) { isSlow.insert(replica) }
        func acknowledged() -> Int {
            members.count { follows($0, number) && servers[$0].applied >= connection.offset }
        }
        if acknowledged() < wanted {
            for replica in members where follows(replica, number) && !isSlow.contains(replica) {
                replicate(replica, upTo: servers[number].history.count)
                now += 1
            }
        }
        let count = acknowledged()
        if count < wanted {
            note("too few replicas")
            // With a timeout of 0 the command waits until the client's own timeout.
            now = time == 0 ? deadline + 1 : now + time
        }
        return isOfDisks ? .array([.integer(1), .integer(Int64(count))]) : .integer(Int64(count))
    }

    // MARK: Server faults

    mutating func failOver(_ shard: Int, to wanted: Int?, isGraceful: Bool, forgetsOld: Bool) -> Bool {
        let old = shards[shard].primary
        let candidates = shards[shard].members.filter { replica in
            replica != old && servers[replica].isUp && servers[replica].primary == old && servers[replica].applied >= 0
                && servers[replica].stalledUntil <= now
        }
        guard let new = wanted ?? candidates.max(by: { servers[$0].applied < servers[$1].applied }),
            candidates.contains(new)
        else { return false }
        if isGraceful {
            guard follows(new, old) else { return false }
            replicate(new, upTo: servers[old].history.count)
        }
        note(isGraceful ? "failover by command" : "election")
        servers[new].primary = nil
        servers[new].history = []
        servers[new].applied = -1
        servers[new].isCutOff = false
        shards[shard].primary = new
        shards[shard].epoch = (shards.map(\.epoch).max() ?? 0) + 1
        for member in shards[shard].members where member != new {
            if member == old {
                if forgetsOld, servers[old].isUp {
                    servers[old].isForgotten = true
                    note("two primaries")
                    continue
                }
            }
            rejoin(member)
        }
        return true
    }

    /// Gives a restarted server its role in the cluster.
    mutating func rejoin(_ number: Int) {
        let primary = shards[servers[number].shard].primary
        guard primary != number else { return }
        servers[number].isForgotten = false
        if servers[number].primary != primary || servers[number].applied < 0 {
            // Clients stay connected to a primary that becomes a replica.
            servers[number].primary = primary
            servers[number].history = []
            servers[number].applied = -1
        }
        if servers[number].isUp, follows(number, primary) { replicate(number, upTo: servers[primary].history.count) }
    }

    mutating func mend() {
        downUntil = 0
        for number in servers.indices {
            servers[number].isCutOff = false
            servers[number].stalledUntil = min(servers[number].stalledUntil, now)
            servers[number].loadingUntil = min(servers[number].loadingUntil, now)
            servers[number].isUp = true
        }
        for number in servers.indices { rejoin(number) }
        for (slot, _) in moving { finishMove(slot) }
    }

    private mutating func finishMove(_ slot: Int) {
        _ = moveKeys(slot: slot, count: .max)
        if let move = moving.removeValue(forKey: slot) { slots[slot] = move.target }
    }

    mutating func moveKeys(slot: Int, count: Int) -> Int {
        guard let move = moving[slot] else { return 0 }
        let (source, target) = (shards[move.source].primary, shards[move.target].primary)
        let keys = servers[source].data.keys.filter { Slots.slot(of: $0) == slot }
            .sorted { $0.lexicographicallyPrecedes($1) }
        for key in keys.prefix(count) {
            guard let entry = servers[source].data.lift(key) else { continue }
            servers[target].data.put(key, entry)
        }
        // RESTORE and DEL reach real replicas in order with all other commands. Here each replica copies the primary's data.
        for shard in [move.source, move.target] {
            let primary = shards[shard].primary
            for replica in shards[shard].members where replica != primary && servers[replica].primary == primary {
                servers[replica].applied = -1
                if follows(replica, primary) { replicate(replica, upTo: servers[primary].history.count) }
            }
        }
        return max(0, keys.count - count)
    }
}
