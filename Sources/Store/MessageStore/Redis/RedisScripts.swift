internal import Redis

/// What servers run as one step.
enum RedisScripts {
    /// Makes an epoch the owner's of a group; answers the epoch that is there, which is higher when it was refused.
    ///
    /// A batch of an earlier owner that is still under way is refused from then on, and so is the end of a period. (For
    /// batches alone the replay would do: what a late one has is in the log still, the replay writes it again, and that
    /// makes the group's epoch the owner's. A copy of a batch that ran changes nothing.) Always writes, so that a wait for
    /// replicas covers it.
    static let raise = RedisScript(
        """
        local own = redis.call('HGET', KEYS[1], 'epoch')
        if own and tonumber(own) > tonumber(ARGV[1]) then return own end
        redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
        if own ~= ARGV[1] then redis.call('HSET', KEYS[1], 'done', ARGV[1] .. '-0') end
        return ARGV[1]
        """)

    /// Adds an entry to a log behind another one, if that one is there and is what was sent (`RedisLog`).
    ///
    /// Arguments: id, size and first bytes of the entry before it, then its own id, field and bytes.
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

    /// The code of its refusal.
    static let apart = "APART"

    /// Forgets a log's entries before an id for the owner of an epoch, unless it has a successor, who may be reading them.
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

    /// The epoch of the owner that a script has found in place of the caller.
    static func successor(_ reply: RedisReply) -> UInt64? {
        guard let fault = reply.fault, fault.code == "FENCED" else { return nil }
        return fault.text.split(separator: " ").dropFirst().first.flatMap { UInt64($0) } ?? 0
    }

    /// Removes a period of a group for the owner of an epoch, its rows in the server's background.
    static let endPeriod = RedisScript(
        """
        local own = redis.call('HGET', KEYS[1], 'epoch')
        if own and tonumber(own) > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. own) end
        redis.call('UNLINK', KEYS[2])
        return redis.call('HDEL', KEYS[1], ARGV[2])
        """)

    /// Runs a batch of commands on the keys of a group for the owner of an epoch, once.
    ///
    /// Arguments: epoch, number of the batch, how many sums of bytes it adds to. For each of these its field of the marks, the
    /// bytes, and the place of the key whose rows have them. Then for each command its name, its key's place, how many
    /// arguments follow, and these.
    ///
    /// A batch whose number was reached changes nothing: it was sent again, or it is late. The
    /// first write may be refused for want of memory, and then nothing was changed. The number is noted last: a command that
    /// fails midway, on a key that another program has written, leaves the batch to be sent again.
    ///
    /// A row that was there before adds nothing to a sum: a replay that was cut off is repeated. So a batch of which some
    /// rows were there adds its bytes by their share. Answers the sums, or 1 without any.
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
