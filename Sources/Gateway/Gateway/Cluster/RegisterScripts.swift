internal import Cluster
internal import Redis

/// The register's operations as Lua scripts on keys of one slot.
///
/// `RegisterState` (Cluster) implements the same operations in memory; `RedisRegisterTests` compares the two. The keys after
/// `{lw:NAME}:` are:
/// - `c`: format, parts, tokenKey, queueEpoch, history (`ID:BEGAN`, as in `StoreHistory`), lastNode, clock, version, last (the
///   server's time at the last call), and the fields of a store copy (`RegisterKeys.CopyField`)
/// - `n`: node → `instance since info`
/// - `l`: nodes by lease end
/// - `o`: part → `epoch:state:node`
/// - `w`: `drain:NODE` → 1, `pin:PART` → node
/// - `u`: node → the server's time at which its number was last used; deleted when the node leaves
enum RegisterScripts {
    /// The common prefix of all scripts; its arguments are the version after a change, and the lease.
    ///
    /// Members renew several times per lease. If no call arrived for half a lease, the register was down or its clock was
    /// changed. In both cases all leases are extended.
    private static let opening = """
        local c, n, l, o, w, u = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
        local nonce, lease = ARGV[1], tonumber(ARGV[2])
        local call = redis.call
        local time = call('TIME')
        local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
        local copy = call('HMGET', c, 'copy', 'copyUntil', 'copyOther')
        if copy[1] == 'to' then return {'copyTo', copy[3] or ''} end
        if copy[1] == 'from' and tonumber(copy[2]) > now then return {'copyFrom', copy[3] or ''} end
        local function text(number) return string.format('%.0f', number) end
        local function changed() call('HSET', c, 'version', nonce) end
        local last = tonumber(call('HGET', c, 'last') or '0')
        if now < last or now > last + lease / 2 then
            for _, id in ipairs(call('ZRANGE', l, 0, -1)) do call('ZADD', l, text(now + lease), id) end
        end
        call('HSET', c, 'last', text(now))
        for _, id in ipairs(call('ZRANGEBYSCORE', l, '-inf', text(now))) do
            call('ZREM', l, id)
            call('HDEL', n, id)
            changed()
        end
        local function instance(id)
            local member = call('HGET', n, id)
            return member and string.match(member, '^%d+')
        end
        local function keep(id) call('ZADD', l, text(now + lease), id) call('HSET', u, id, text(now)) end
        local function forget(id)
            call('HDEL', w, 'drain:' .. id)
            local wishes = call('HGETALL', w)
            for i = 1, #wishes, 2 do
                if string.sub(wishes[i], 1, 4) == 'pin:' and wishes[i + 1] == id then call('HDEL', w, wishes[i]) end
            end
        end
        local function snapshot(status, detail)
            return {status, detail, call('HGET', c, 'version') or '0', text(now), call('HGET', c, 'clock') or '0',
                call('HGETALL', n), call('ZRANGE', l, 0, -1, 'WITHSCORES'), call('HGETALL', o), call('HGETALL', w),
                call('HMGET', c, 'format', 'parts', 'tokenKey', 'queueEpoch', 'history')}
        end
        local function history()
            local id, began = string.match(call('HGET', c, 'history') or '', '^(%x+):(%d+)$')
            if id and #id == 16 then return tonumber(began) end
        end
        local function renew(id)
            call('HSET', c, 'history', id .. ':' .. text(math.max(now * 1000, (history() or 0) + 1000000)))
            changed()
        end

        """

    /// Arguments: instance, info, has an address (0 or 1), format, parts, tokenKey, queueEpoch, minimum age of a reused number,
    /// count of numbers, id of a history.
    ///
    /// The script begins a new history if the stored one is missing or invalid. An operator overwrites it after a restore of
    /// older data.
    static let join = RedisScript(
        opening + """
            local format, parts = call('HGET', c, 'format'), call('HGET', c, 'parts')
            if format and format ~= ARGV[6] then return {'format', format} end
            if parts and parts ~= ARGV[7] then return {'parts', parts} end
            local members = call('HGETALL', n)
            for i = 2, #members, 2 do
                local address = string.match(members[i], 'address=(%S+)')
                if ARGV[5] == '0' or not address then return {'alone', address or ''} end
                if address == string.match(ARGV[4], 'address=(%S+)') and string.match(members[i], '^%d+') ~= ARGV[3] then
                    return {'taken', members[i - 1]}
                end
            end
            if not format then
                call('HSET', c, 'format', ARGV[6], 'parts', ARGV[7], 'tokenKey', ARGV[8], 'queueEpoch', ARGV[9],
                    'history', ARGV[12] .. ':0')
            elseif not history() then
                renew(ARGV[12])
            end
            local previous, count = tonumber(call('HGET', c, 'lastNode') or '0'), tonumber(ARGV[11])
            for step = 1, count do
                local id = text((previous + step - 1) % count + 1)
                local used = call('HGET', u, id)
                if call('HEXISTS', n, id) == 0 and (not used or tonumber(used) <= now - tonumber(ARGV[10])) then
                    call('HSET', c, 'lastNode', id)
                    forget(id)
                    call('HSET', n, id, ARGV[3] .. ' ' .. text(now) .. ' ' .. ARGV[4])
                    keep(id)
                    changed()
                    return snapshot('ok', id)
                end
            end
            return {'full', ''}
            """)

    /// Arguments: node, instance, info, clock, version seen.
    static let renew = RedisScript(
        opening + """
            local id, clock = ARGV[3], tonumber(call('HGET', c, 'clock') or '')
            local known = instance(id)
            if known and known ~= ARGV[4] then return {'replaced', ''} end
            local highest = now + \(ClusterTiming.clockStep)
            if tonumber(ARGV[6]) <= highest and (not clock or clock < tonumber(ARGV[6]) or clock > highest) then
                call('HSET', c, 'clock', ARGV[6])
            end
            local since, info = text(now), nil
            if known then since, info = string.match(call('HGET', n, id), '^%d+ (%d+) (.*)$') end
            keep(id)
            if info ~= ARGV[5] then
                call('HSET', n, id, ARGV[4] .. ' ' .. since .. ' ' .. ARGV[5])
                changed()
            end
            if call('HGET', c, 'version') == ARGV[7] then
                return {'same', '', ARGV[7], text(now), call('HGET', c, 'clock') or '0'}
            end
            return snapshot('ok', known and '' or 'recreated')
            """)

    /// Arguments: node, instance, then part, expected entry and new entry of each change.
    static let change = RedisScript(
        opening + """
            local known = instance(ARGV[3])
            if not known then return {'expired', ''} end
            if known ~= ARGV[4] then return {'replaced', ''} end
            local results = {'ok', ''}
            for i = 5, #ARGV, 3 do
                local entry = call('HGET', o, ARGV[i]) or ''
                if entry == ARGV[i + 1] then
                    entry = ARGV[i + 2]
                    call('HSET', o, ARGV[i], entry)
                    changed()
                end
                results[#results + 1] = entry
            end
            return results
            """)

    /// Arguments: node, expected end of its lease.
    static let expire = RedisScript(
        opening + """
            local score = call('ZSCORE', l, ARGV[3])
            if score and tonumber(score) == tonumber(ARGV[4]) then
                call('ZREM', l, ARGV[3])
                call('HDEL', n, ARGV[3])
                changed()
            end
            return {'ok', ''}
            """)

    /// Arguments: node, instance.
    static let leave = RedisScript(
        opening + """
            local id = ARGV[3]
            local known = instance(id)
            if known and known ~= ARGV[4] then return {'replaced', ''} end
            local entries = call('HGETALL', o)
            for i = 1, #entries, 2 do
                local epoch, state, owner = string.match(entries[i + 1], '^(%d+):(%a+):(%d+)$')
                if owner == id and (state == 'open' or state == 'claimed') then
                    call('HSET', o, entries[i], epoch .. ':released:0')
                end
            end
            call('ZREM', l, id)
            call('HDEL', n, id)
            call('HDEL', u, id)
            forget(id)
            changed()
            return {'ok', ''}
            """)

    /// Arguments: id of the new history.
    static let renewHistory = RedisScript(
        opening + """
            renew(ARGV[3])
            return {'ok', ''}
            """)

    /// Arguments: field, value (empty to delete), the node that must be a member (empty for none).
    static let wish = RedisScript(
        opening + """
            if ARGV[5] ~= '' and not instance(ARGV[5]) then return {'unknown', ''} end
            if ARGV[4] == '' then call('HDEL', w, ARGV[3]) else call('HSET', w, ARGV[3], ARGV[4]) end
            changed()
            return {'ok', ''}
            """)
}
