internal import Redis

/// What a stream says of itself.
enum LogReading {
    /// The last id that a stream has given, trimmed entries included; `nil` without a stream.
    static func lastID(of key: [UInt8], slot: Int, by client: RedisClient) throws(RedisError) -> LogID? {
        try tail(of: key, slot: slot, nil, by: client).last
    }

    /// The last id, and what the same server answers to a look at entries after it.
    ///
    /// A successor may begin and trim meanwhile: the id is asked for again behind the look, and tells of that.
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

    /// The id in a reply to `XINFO STREAM`; `nil` without a stream.
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

    /// Whether a stream's last entry, behind those of an owner, is none that a gateway can have written.
    ///
    /// A successor claims its epoch in the register before it fences. So an epoch that nobody claimed is another program's,
    /// unless the bytes are a group's: a group is nobody's to remove, whatever became of the register.
    ///
    /// - Parameters:
    ///   - id: the last one of the stream, above the owner's.
    ///   - key: the stream's.
    ///   - slot: the key's.
    ///   - claimed: asks for the highest epoch that the register knows for the part; `nil` when it does not tell.
    ///   - client: for the question to the stream.
    /// - Returns: false when there is an owner of that epoch, or may be one.
    /// - Throws: when the stream's server does not answer.
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
            // Neither a group nor a fence as we know them; a successor of a later release may have claimed it.
            if name != "f", name != "w" { return claimed().map { $0 < id.epoch } ?? true }
        }
        // Of a fence, and of an entry that is gone, the epoch alone tells.
        return claimed().map { $0 < id.epoch } ?? false
    }
}

extension LogReading {
    /// The entries of a stream that no owner can follow, and the highest epoch below theirs.
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
        // Of more than that the next error tells.
        let beyond = try entries(from: limit, before: "+", 16)
        // The rights that a gateway needs have no look from the end.
        var (low, high) = (UInt64(0), limit.epoch)
        while low + 1 < high {
            let middle = low + (high - low) / 2
            let found = try entries(from: LogID(epoch: middle, number: 0), before: "(\(limit)", 1)
            if let found = found.first { low = found.epoch } else { high = middle }
        }
        return (beyond, low)
    }
}

/// What an operator does about an entry of another program.
enum LogMending {
    /// The commands that let a part open again.
    ///
    /// - Parameters:
    ///   - stream: the log's key.
    ///   - entry: the foreign one.
    ///   - epoch: no owner so far had a higher one, and no entry that stays.
    ///   - others: more entries that nobody can follow.
    /// - Returns: a clause for the operator's log; what is in single quotes stays in them in a shell, too.
    static func advice(_ stream: [UInt8], _ entry: LogID, after epoch: UInt64, others: [LogID] = []) -> String {
        let name = String(decoding: stream, as: UTF8.self)
        guard entry.isBeyondEpochs else { return "remove the entry with XDEL \(name) \(entry)" }
        let more = others.isEmpty ? "" : " and \(others.map(\.description).joined(separator: ", "))"
        // Above all that gateways wrote, and below the next owner's first.
        let last = LogID(epoch: epoch, number: .max)
        return "copy the log without the entry\(more) with EVAL '\(copyScript)' 2 \(name) \(name):copy \(last) \(entry)"
    }

    /// Puts a copy of a log in its place, which has the entries up to an id, and that one as its last.
    ///
    /// A stream remembers its last id, and from Redis 7.2 on also the highest one that an XDEL took away. `XSETID` sets
    /// neither back below it, and a new stream has neither. Arguments: the log, a key of its slot, the id, and the last id
    /// that the log has now. With another last id, or with entries of a later owner, nothing is changed: it is one line,
    /// without quotes, for operators to paste, also when it is too late.
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
    /// No gateway has such an epoch, or none could follow it.
    var isBeyondEpochs: Bool { epoch >= RedisEngine.epochLimit - 1 }
}
