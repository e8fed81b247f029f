internal import Redis

enum RedisScripts {
    /// Sets a group's epoch to the owner's.
    ///
    /// Returns the resulting epoch, which is higher than the argument if the owner was refused. From then on the group refuses
    /// batches and period drops of earlier owners that are still in flight. (For batches alone the script would be unnecessary,
    /// because the replay writes the batches' rows again under the new epoch.) The script always writes, so that a wait for
    /// replicas covers it.
    static let raise = RedisScript(
        """
        local own = redis.call('HGET', KEYS[1], 'epoch')
        if own and tonumber(own) > tonumber(ARGV[1]) then return own end
        redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
        if own ~= ARGV[1] then redis.call('HSET', KEYS[1], 'done', ARGV[1] .. '-0') end
        return ARGV[1]
        """)

    /// Appends an entry to a log if the previous entry exists and matches what was sent (`RedisLog`).
    ///
    /// Arguments: id, size and first bytes of the previous entry, then the new entry's id, field and bytes.
    static let appendBehind = RedisScript(
        """
        local before = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
        local isBehind = false
        if #before > 0 then
            local field, bytes = before[1][2][1], before[1][2][2]
            isBehind = field == ARGV[5] and #bytes == tonumber(ARGV[2]) and string.sub(bytes, 1, #ARGV[3]) == ARGV[3]
        end
        if not isBehind then return redis.error_reply('APART ' .. ARGV[1] .. ' is not there') end
        return redis.call('XADD', KEYS[1], 'NOMKSTREAM', ARGV[4], ARGV[5], ARGV[6])
        """)

    /// The error code of a refused `appendBehind`.
    static let apart = "APART"

    /// Trims a log's entries before an id, unless the owner has a successor, which may be reading them.
    static let trim = RedisScript(
        """
        if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
        local facts = redis.call('XINFO', 'STREAM', KEYS[1])
        for place = 1, #facts, 2 do
            if facts[place] == 'last-generated-id' then
                local epoch = string.match(facts[place + 1], '^(%d+)-')
                if tonumber(epoch) > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. epoch) end
            end
        end
        return redis.call('XTRIM', KEYS[1], 'MINID', ARGV[2])
        """)

    static func trim(_ log: [UInt8], epoch: UInt64, before number: UInt64) -> RedisCommand {
        var command = RedisCommand(trim, keys: [log])
        command.append(epoch, "\(epoch)-\(number)")
        return command
    }

    /// Returns the successor's epoch from the error reply of a fenced script; `nil` for other replies.
    static func successor(_ reply: RedisReply) -> UInt64? {
        guard let fault = reply.fault, fault.code == "FENCED" else { return nil }
        return fault.text.split(separator: " ").dropFirst().first.flatMap { UInt64($0) } ?? 0
    }

    /// Drops a period of a group; the server frees its rows in the background.
    static let endPeriod = RedisScript(
        """
        local own = redis.call('HGET', KEYS[1], 'epoch')
        if own and tonumber(own) > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. own) end
        redis.call('UNLINK', KEYS[2])
        return redis.call('HDEL', KEYS[1], ARGV[2])
        """)

    /// Runs a batch of commands on a group's keys, exactly once per owner epoch.
    ///
    /// Arguments: epoch, batch number, number of byte sums. For each sum: its field in the marks, the added bytes, and the index
    /// of the key with the counted rows. For each command: its name, the index of its key, the number of arguments, and the
    /// arguments.
    ///
    /// A batch whose number was already reached is a repetition or late, and changes nothing. The first write may be refused for
    /// lack of memory, before anything is changed. The number is stored last. If a command fails in the middle, on a key that
    /// another program has written, the batch is therefore sent again.
    ///
    /// A row that already existed adds nothing to a sum, because an interrupted replay is repeated. If only some rows are new,
    /// the bytes are added in proportion. Returns the sums, or 1 without sums.
    static let batch = RedisScript(
        """
        local own = redis.call('HMGET', KEYS[1], 'epoch', 'done')
        if own[1] and tonumber(own[1]) > tonumber(ARGV[1]) then
            return redis.error_reply('FENCED ' .. own[1])
        end
        local done, isNew = 0, false
        if own[2] then
            local epoch, number = string.match(own[2], '^(%d+)-(%d+)$')
            if epoch == ARGV[1] then done = tonumber(number) end
        end
        local sumCount = tonumber(ARGV[3])
        local at = 4 + 3 * sumCount
        if done >= tonumber(ARGV[2]) then
            redis.call('HSET', KEYS[1], 'done', own[2])
            at = #ARGV + 1
        else
            redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
            isNew = true
        end
        local new = {}
        while at <= #ARGV do
            local command, place, count = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
            local last, added = at + 2 + count, 0
            at = at + 3
            while at <= last do
                local to = math.min(at + 3999, last)
                local reply = redis.call(command, KEYS[place], unpack(ARGV, at, to))
                if command == 'HSET' then added = added + reply end
                at = to + 1
            end
            if command == 'HSET' then new[place] = 2 * added / count end
        end
        local sums = {}
        for index = 1, sumCount do
            local field, place = ARGV[3 * index + 1], tonumber(ARGV[3 * index + 3])
            local sum = tonumber(redis.call('HGET', KEYS[1], field) or 0) or 0
            if not (sum >= 0 and sum <= 281474976710656) then sum = 0 end
            if new[place] then
                sum = math.floor(sum + new[place] * tonumber(ARGV[3 * index + 2]) + 0.5)
                redis.call('HSET', KEYS[1], field, string.format('%.0f', sum))
            end
            sums[index] = sum
        end
        if isNew then redis.call('HSET', KEYS[1], 'done', ARGV[1] .. '-' .. ARGV[2]) end
        if sumCount > 0 then return sums end
        return 1
        """)
}
