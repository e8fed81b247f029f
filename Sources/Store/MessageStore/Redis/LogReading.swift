internal import Redis

enum LogReading {
    /// Returns the last id that a stream assigned, even to a trimmed entry; `nil` without a stream.
    static func lastID(of key: [UInt8], slot: Int, by client: RedisClient) throws(RedisError) -> LogID? {
        try tail(of: key, slot: slot, nil, by: client).last
    }

    /// Returns the last id and the entries that `look` reads, both from the same server.
    ///
    /// The last id is read again afterwards, because a successor may fence and trim during the call.
    static func tail(
        of key: [UInt8], slot: Int, _ look: RedisCommand?, by client: RedisClient
    ) throws(RedisError) -> (last: LogID?, entries: [RedisReply]) {
        var facts = RedisCommand("XINFO", "STREAM")
        facts.append(key)
        let attempt = try client.attempt(look.map { [facts, $0, facts] } ?? [facts], slot: slot)
        guard let last = try id(attempt.replies[0], at: attempt.address) else { return (nil, []) }
        guard look != nil else { return (last, []) }
        if let fault = attempt.replies[1].fault { throw .refused(attempt.address, fault) }
        guard let entries = attempt.replies[1].array else {
            throw .unexpected(attempt.address, command: "XRANGE", "no list of entries")
        }
        if let later = try id(attempt.replies[2], at: attempt.address), later.epoch > last.epoch { return (later, []) }
        return (last, entries)
    }

    /// Parses the reply to `XINFO STREAM`; `nil` without a stream.
    private static func id(_ reply: RedisReply, at address: RedisAddress) throws(RedisError) -> LogID? {
        if let fault = reply.fault {
            if fault.text.contains("no such key") { return nil }
            throw .refused(address, fault)
        }
        guard let fields = reply.array, let place = fields.firstIndex(where: { $0.text == "last-generated-id" }),
            place + 1 < fields.count, let id = fields[place + 1].text.flatMap({ LogID($0) })
        else { throw .unexpected(address, command: "XINFO STREAM", "no last id") }
        return id
    }

    /// Returns whether a stream's last entry, above the owner's epoch, cannot have been written by a gateway.
    ///
    /// A successor claims its epoch in the register before it fences. An unclaimed epoch therefore stems from another program,
    /// unless the entry contains a valid group. A valid group must never be removed, whatever the register's state.
    ///
    /// - Parameters:
    ///   - id: The stream's last id, above the owner's.
    ///   - key: The stream's key.
    ///   - slot: The key's slot.
    ///   - claimed: Returns the highest epoch that the register has for the partition; `nil` if the register does not answer.
    ///   - client: The client for reading the stream.
    /// - Returns: False if an owner of that epoch exists or may exist.
    /// - Throws: When the stream's server does not answer.
    static func isForeign(
        _ id: LogID, of key: [UInt8], slot: Int, claimed: () -> UInt64?, by client: RedisClient
    ) throws(RedisError) -> Bool {
        guard !id.isBeyondEpochs else { return true }
        var command = RedisCommand("XRANGE", key)
        for _ in 0..<2 { command.append(id.description) }
        let attempt = try client.attempt([command], slot: slot)
        if let fault = attempt.replies[0].fault { throw .refused(attempt.address, fault) }
        if let fields = attempt.replies[0].array?.first?.array?.last?.array {
            let name = fields.count == 2 ? fields[0].text ?? "" : ""
            if name == "b", let bytes = fields[1].bytes, bytes.withUnsafeBytes({ LogEntry.begins($0, id) }) {
                return false
            }
            // The entry is neither a group nor a fence of this release. A successor of a later release may have claimed the
            // epoch.
            if name != "f", name != "w" { return claimed().map { $0 < id.epoch } ?? true }
        }
        // For a fence or a removed entry, only the epoch can be checked.
        return claimed().map { $0 < id.epoch } ?? false
    }
}

extension LogReading {
    /// Returns the entries whose epochs no owner can exceed, and the highest epoch below them.
    static func beyondEpochs(
        of key: [UInt8], slot: Int, by client: RedisClient
    ) throws(RedisError) -> (entries: [LogID], epochBelow: UInt64) {
        func entries(from first: LogID, before last: String, _ count: Int) throws(RedisError) -> [LogID] {
            let command = RedisCommand("XRANGE", key, first.description, last, "COUNT", count)
            let attempt = try client.attempt([command], slot: slot)
            if let fault = attempt.replies[0].fault { throw .refused(attempt.address, fault) }
            return (attempt.replies[0].array ?? []).compactMap { $0.array?.first?.text.flatMap { LogID($0) } }
        }
        let limit = LogID(epoch: RedisEngine.epochLimit - 1, number: 0)
        // Sixteen entries suffice: any further ones are reported by the next error.
        let beyond = try entries(from: limit, before: "+", 16)
        // Binary search, because a gateway's ACL does not include `XREVRANGE`.
        var (low, high) = (UInt64(0), limit.epoch)
        while low + 1 < high {
            let middle = low + (high - low) / 2
            let found = try entries(from: LogID(epoch: middle, number: 0), before: "(\(limit)", 1)
            if let found = found.first { low = found.epoch } else { high = middle }
        }
        return (beyond, low)
    }
}

/// Instructions for an operator about an entry of another program.
enum LogMending {
    /// Returns the commands after which the partition can be opened again.
    ///
    /// - Parameters:
    ///   - stream: The log's key.
    ///   - entry: The foreign entry.
    ///   - epoch: The highest epoch of any owner so far and of any remaining entry.
    ///   - others: Further entries that no owner can follow.
    /// - Returns: A clause for the operator's log. Single-quoted text can be pasted into a shell.
    static func advice(_ stream: [UInt8], _ entry: LogID, after epoch: UInt64, others: [LogID] = []) -> String {
        let name = String(decoding: stream, as: UTF8.self)
        guard entry.isBeyondEpochs else { return "remove the entry with XDEL \(name) \(entry)" }
        let more = others.isEmpty ? "" : " and \(others.map(\.description).joined(separator: ", "))"
        // An id above all entries of gateways, and below the first entry of the next owner.
        let last = LogID(epoch: epoch, number: .max)
        return "copy the log without the entry\(more) with EVAL '\(copyScript)' 2 \(name) \(name):copy \(last) \(entry)"
    }

    /// Replaces a log by a copy of its entries up to an id, with that id as the last one.
    ///
    /// A stream stores its last id, and since Redis 7.2 also the highest id removed by XDEL. `XSETID` cannot set the last id
    /// below these, but a new stream has neither. Arguments: the log, a temporary key of the same slot, the new last id, and the
    /// current last id of the log. Nothing is changed if the last id differs or if entries of a later owner exist. The script is
    /// one line without quotes, so that operators can paste it safely at any time.
    static let copyScript = [
        "local k,c,l,r=KEYS[1],KEYS[2],ARGV[1],redis.call",
        "local x=r([[XINFO]],[[STREAM]],k)",
        "for i=1,#x,2 do if x[i]==[[last-generated-id]] and x[i+1]~=ARGV[2] then",
        "return redis.error_reply([[ERR nothing was changed: the log has another last id now]]) end end",
        "if #r([[XRANGE]],k,[[(]]..l,[[(\(RedisEngine.epochLimit - 1)-0]],[[COUNT]],1)>0 then",
        "return redis.error_reply([[ERR nothing was changed: the log has entries of a later owner]]) end",
        "r([[DEL]],c) local f=[[-]]",
        "repeat local p=r([[XRANGE]],k,f,l,[[COUNT]],16)",
        "for _,e in ipairs(p) do r([[XADD]],c,e[1],unpack(e[2])) f=[[(]]..e[1] end until #p==0",
        "if f~=[[(]]..l then r([[XADD]],c,l,[[w]],[[]]) r([[XDEL]],c,l) end",
        "return r([[RENAME]],c,k)",
    ].joined(separator: " ")
}

extension LogID {
    /// Whether no gateway can have this epoch, or no higher epoch could follow.
    var isBeyondEpochs: Bool { epoch >= RedisEngine.epochLimit - 1 }
}
