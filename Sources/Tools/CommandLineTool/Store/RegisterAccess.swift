internal import Cryptography
internal import Delivery
internal import MessageStore
internal import Redis

/// The facts that the register keeps for all gateways of a cluster.
struct ClusterFacts: Equatable {
    var tokenKey: [UInt8]?
    var queueEpoch: UInt64?
    /// The highest gateway time that any gateway issued.
    var clock: Int64?
    var history: StoreHistory?
}

/// The register of a cluster, locked against gateways while a store is copied.
///
/// A copy to the cluster sets a mark that stays until the copy has ended, even if the process dies. The mark of a copy from the
/// cluster expires unless the copy renews it.
final class RegisterAccess {
    private let client: RedisClient
    private let name: String
    private let keys: [[UInt8]]
    private let slot: Int
    private let minReplicas: Int
    private let nonce = "\(UInt64.random(in: .min ... .max))"
    private var renewAt: UInt64 = 0
    /// The cluster's number of partitions when the mark was set.
    private(set) var partCount: Int?
    private(set) var facts = ClusterFacts()
    private(set) var epochs: [Int: UInt64] = [:]

    /// The time for which a mark is valid without a renewal.
    private static let holdMilliseconds: UInt64 = 60_000
    private static let renewMilliseconds: UInt64 = 5_000
    private static let timeoutMilliseconds: UInt64 = 15_000

    init(_ cluster: RedisCluster, name: String, minReplicas: Int) {
        client = RedisClient(cluster)
        (self.name, self.minReplicas) = (name, minReplicas)
        keys = RegisterKeys.all(name)
        slot = RedisSlot.of(keys[0])
    }

    func close() { client.close() }

    // MARK: Calls

    private static let opening = """
        local c, n, l, o, w = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
        local call = redis.call
        local time = call('TIME')
        local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
        local nonce = ARGV[1]
        local mark = call('HMGET', c, 'copy', 'copyNonce', 'copyUntil', 'copyOther', 'copyEnded')
        local own = mark[1] and mark[2] == nonce

        """

    /// Arguments: nonce, kind, other side, hold time, may replace (0 or 1).
    private static let beginScript = RedisScript(
        opening + """
            if mark[1] and not own then
                if tonumber(mark[3]) > now then return {'copying', mark[4]} end
                if mark[1] == 'to' and ARGV[2] == 'from' then return {'half', mark[4]} end
                if mark[1] == 'to' and ARGV[5] == '0' then return {'half', mark[4]} end
            end
            local leases = call('ZRANGE', l, 0, -1, 'WITHSCORES')
            for i = 1, #leases, 2 do
                if tonumber(leases[i + 1]) > now then
                    return {'member', string.match(call('HGET', n, leases[i]) or '', 'address=(%S+)') or ''}
                end
            end
            local facts = call('HMGET', c, 'format', 'parts', 'tokenKey', 'queueEpoch', 'clock', 'history')
            for i = 1, 6 do facts[i] = facts[i] or '' end
            call('HSET', c, 'copy', ARGV[2], 'copyNonce', nonce, 'copyOther', ARGV[3],
                'copyUntil', string.format('%.0f', now + tonumber(ARGV[4])))
            return {'ok', facts, call('HGETALL', o)}
            """)

    /// Arguments: nonce, hold time.
    private static let renewScript = RedisScript(
        opening + """
            if not own then return {'lost'} end
            call('HSET', c, 'copyUntil', string.format('%.0f', now + tonumber(ARGV[2])))
            return {'ok'}
            """)

    /// Arguments: nonce, format, parts, tokenKey, queueEpoch, clock, history (empty: none).
    private static let setScript = RedisScript(
        opening + """
            if not own then return {'lost'} end
            call('HSET', c, 'format', ARGV[2], 'parts', ARGV[3])
            for i, field in ipairs({'tokenKey', 'queueEpoch', 'clock', 'history'}) do
                if ARGV[i + 3] == '' then call('HDEL', c, field) else call('HSET', c, field, ARGV[i + 3]) end
            end
            return {'ok'}
            """)

    /// Arguments: nonce, a version, then pairs of part and entry; none if nothing was opened.
    private static let endScript = RedisScript(
        opening + """
            if mark[5] == nonce then return {'ok'} end
            if not own then return {'lost'} end
            if #ARGV > 2 then
                call('DEL', n, l, o, w)
                for i = 3, #ARGV, 2 do call('HSET', o, ARGV[i], ARGV[i + 1]) end
                call('HSET', c, 'version', ARGV[2])
            end
            call('HDEL', c, 'copy', 'copyNonce', 'copyUntil', 'copyOther')
            call('HSET', c, 'copyEnded', nonce)
            return {'ok'}
            """)

    /// Sets the mark.
    ///
    /// - Parameters:
    ///   - isTarget: whether the cluster is the copy's target.
    ///   - other: the other side, for messages.
    ///   - isReplacing: whether existing data and an unfinished copy may be replaced.
    /// - Throws: `CopyFailure` while a gateway or another copy runs, or when the cluster has an unfinished copy.
    func begin(isTarget: Bool, other: String, isReplacing: Bool) throws {
        let reply = try call(
            Self.beginScript, [isTarget ? "to" : "from", other, "\(Self.holdMilliseconds)", isReplacing ? "1" : "0"])
        switch reply[0].text {
        case "ok": break
        case "copying":
            throw CopyFailure("another copy works on cluster \(name) (\(reply[1].text ?? "")): wait until it has ended")
        case "half" where isTarget:
            throw CopyFailure(
                "cluster \(name) has a copy of \(reply[1].text ?? "") that did not end; run it again with --replace")
        case "half":
            throw CopyFailure(
                "cluster \(name) is not whole: a copy of \(reply[1].text ?? "") to it did not end; run that one again "
                    + "with --replace")
        case "member":
            let address = reply[1].text ?? ""
            throw CopyFailure(
                "a gateway\(address.isEmpty ? "" : " at \(address)") works on cluster \(name): stop all its gateways; one "
                    + "that was killed counts for 2 seconds more")
        default: throw unusable
        }
        guard reply.count == 3, let fields = reply[1].array?.map({ $0.text ?? "" }), fields.count == 6,
            let owners = reply[2].array, owners.count % 2 == 0
        else { throw unusable }
        guard fields[0].isEmpty || fields[0] == "\(RegisterKeys.format)" else {
            throw CopyFailure(
                "the data of cluster \(name) has format \(fields[0]), and this release knows \(RegisterKeys.format)")
        }
        partCount = Int(fields[1])
        facts.tokenKey = Self.bytes(hex: fields[2])
        (facts.queueEpoch, facts.clock, facts.history) = (UInt64(fields[3]), Int64(fields[4]), StoreHistory(fields[5]))
        for place in stride(from: 0, to: owners.count, by: 2) {
            guard let part = owners[place].text.flatMap({ Int($0) }), let entry = owners[place + 1].text,
                let epoch = entry.split(separator: ":").first.flatMap({ UInt64($0) })
            else { throw unusable }
            epochs[part] = epoch
        }
        renewAt = client.cluster.network.monotonicMilliseconds + Self.renewMilliseconds
    }

    /// Renews the mark when it is due; called often.
    func keep() throws {
        guard client.cluster.network.monotonicMilliseconds >= renewAt else { return }
        try check(try call(Self.renewScript, ["\(Self.holdMilliseconds)"]))
        renewAt = client.cluster.network.monotonicMilliseconds + Self.renewMilliseconds
    }

    func set(_ facts: ClusterFacts, partCount: Int) throws {
        try check(
            try call(
                Self.setScript,
                [
                    "\(RegisterKeys.format)", "\(partCount)", facts.tokenKey?.hexDigits ?? "",
                    facts.queueEpoch.map { "\($0)" } ?? "", facts.clock.map { "\($0)" } ?? "",
                    facts.history.map { "\($0)" } ?? "",
                ]))
        (self.facts, self.partCount) = (facts, partCount)
    }

    /// Removes the mark, so that gateways may start.
    ///
    /// - Parameter epochs: the epochs under which the partitions were opened. The next owners get higher epochs.
    /// - Throws: `CopyFailure` when another copy has the mark.
    func end(_ epochs: [UInt64]) throws {
        var words = ["\(UInt64.random(in: 1 ... .max))"]
        for (part, epoch) in epochs.enumerated() { words += ["\(part)", "\(epoch):released:0"] }
        try check(try call(Self.endScript, words))
    }

    // MARK: Sending

    private var unusable: CopyFailure { CopyFailure("the register of cluster \(name) has what no gateway wrote") }

    private func check(_ reply: [RedisReply]) throws {
        if reply[0].text == "lost" {
            throw CopyFailure("another copy has taken over cluster \(name): this one was suspended for too long")
        }
        guard reply[0].text == "ok" else { throw unusable }
    }

    private func call(_ script: RedisScript, _ words: [String]) throws -> [RedisReply] {
        var command = RedisCommand(script, keys: keys)
        command.append(nonce)
        for word in words { command.append(word) }
        let reply = try client.run(
            [RedisRequest(command, slot: slot)], isDurable: true, minReplicas: minReplicas,
            deadline: client.cluster.network.monotonicMilliseconds + Self.timeoutMilliseconds)[0]
        if let fault = reply.fault { throw CopyFailure("the register of cluster \(name): \(fault)") }
        guard let array = reply.array, !array.isEmpty else { throw unusable }
        return array
    }

    // MARK: Bytes

    private static func bytes(hex: String) -> [UInt8]? {
        let digits = hex.utf8.compactMap { Character(UnicodeScalar($0)).hexDigitValue }
        guard digits.count == hex.utf8.count, digits.count == 64 else { return nil }
        return stride(from: 0, to: 64, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
    }
}
