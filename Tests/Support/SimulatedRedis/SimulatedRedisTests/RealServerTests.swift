import SimulatedRedis
import Testing

/// Goal: the simulated server replies as the real one does.
///
/// Method: both get the same seeded random commands, and the replies are compared one by one. Hash fields are sorted first,
/// because their order is unspecified.
@Suite("The simulated Redis replies as a real server", .serialized)
struct RealServerTests {
    @Test("random commands", arguments: [1, 2, 3] as [UInt64])
    func randomCommands(seed: UInt64) throws {
        let real = try RealServer()
        defer { real.end() }
        var simulated = Keyspace()
        var generator = CommandGenerator(seed: seed)
        for step in 0..<6_000 {
            let words = generator.next()
            let expected = Self.ordered(words, try real.run(words))
            let found = Self.ordered(words, simulated.run(words, at: 1_700_000_000_000))
            guard Self.agree(expected, found) else {
                let text = words.map { String(decoding: $0, as: UTF8.self) }.joined(separator: " ")
                Issue.record("seed \(seed), step \(step): \(text)\nreal \(expected)\nsimulated \(found)")
                return
            }
        }
    }

    @Test("scripts", arguments: Self.scriptCases)
    func scripts(body: String, keys: [String], arguments: [String]) throws {
        let real = try RealServer()
        defer { real.end() }
        var simulated = Keyspace()
        let setup = [
            ["HSET", "h", "a", "1", "b", "2"], ["ZADD", "z", "1", "x", "2", "y"], ["XADD", "s", "3-1", "b", "v"],
        ]
        let call = ["EVAL", body, String(keys.count)] + keys + arguments
        let checks = [
            ["HGETALL", "h"], ["ZRANGE", "z", "0", "-1", "WITHSCORES"], ["XRANGE", "s", "-", "+"], ["GET", "k"],
        ]
        for words in setup + [call, call] + checks {
            let words = words.map { Bytes($0.utf8) }
            let expected = Self.ordered(words, try real.run(words))
            let found = Self.ordered(words, simulated.run(words, at: 1_700_000_000_000))
            #expect(Self.agree(expected, found), "real \(expected), simulated \(found)")
        }
    }

    static let scriptCases: [(String, [String], [String])] = [
        ("return redis.call('HGET', KEYS[1], ARGV[1])", ["h"], ["a"]),
        ("return redis.call('HGET', KEYS[1], 'none')", ["h"], []),
        ("return {1, 2.9, 'text', false, 4}", [], []),
        ("return {1, nil, 3}", [], []),
        ("return true", [], []),
        ("return redis.error_reply('FENCED 7')", [], []),
        ("return redis.error_reply('FENCED')", [], []),
        ("return {err = 'MINE of mine'}", [], []),
        ("return redis.status_reply('GOOD')", [], []),
        ("local r = redis.pcall('HGET', 'z', 'a') return r['err']", [], []),
        ("return redis.call('HGET', KEYS[1], 'a')", ["z"], []),
        ("return redis.call('NOSUCH', 'a')", [], []),
        ("redis.call('SET', 'k', 1700000000123) return redis.call('GET', 'k')", [], []),
        ("return tostring(tonumber(ARGV[1]) > tonumber(ARGV[2]))", [], ["10", "9"]),
        (
            "local t = {} for i = 1, 300 do t[i] = i end return redis.call('ZADD', KEYS[1], 0, unpack({'m', 0, 'n'}))",
            ["z"], []
        ),
        (
            "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) redis.call('HDEL', KEYS[1], 'a') return redis.call('HLEN', KEYS[1])",
            ["h"], ["c", "3"]
        ),
        ("return redis.call('XADD', KEYS[1], ARGV[1], 'b', 'w')", ["s"], ["4-0"]),
        ("return #redis.call('XRANGE', KEYS[1], '-', '+')", ["s"], []),
        ("return redis.sha1hex('')", [], []),
        ("local v = redis.call('GET', 'absent') if v == false then return 'nothing' end return 'something'", [], []),
        ("return {redis.call('PING'), redis.call('ZSCORE', 'z', 'x'), redis.call('XLEN', 's')}", [], []),
        ("this is no Lua", [], []),
        ("return redis.call('SET', 'k', 'v', 'PX', 100000)", [], []),
        ("redis.call('SET', 'k', 'before') return redis.call('HGET', 'k', 'a')", [], []),
    ]

    /// The real server returns hash fields in an unspecified order.
    static func ordered(_ words: [Bytes], _ reply: Reply) -> Reply {
        guard case .array(let items) = reply else { return reply }
        func text(_ reply: Reply) -> String { "\(reply)" }
        switch String(decoding: words[0], as: UTF8.self) {
        case "HGETALL":
            let pairs = stride(from: 0, to: items.count - 1, by: 2).map { [items[$0], items[$0 + 1]] }
            return .array(pairs.sorted { text($0[0]) < text($1[0]) }.flatMap { $0 })
        case "HKEYS", "KEYS": return .array(items.sorted { text($0) < text($1) })
        case "XINFO":
            // Compares only the fields that the simulated server has.
            let names = ["length", "last-generated-id", "first-entry", "last-entry"]
            let pairs = stride(from: 0, to: items.count - 1, by: 2).map { (items[$0], items[$0 + 1]) }
            return .array(pairs.filter { pair in names.contains { .text($0) == pair.0 } }.flatMap { [$0.0, $0.1] })
        default: return reply
        }
    }

    /// Errors of scripts contain line numbers and digests, so only their first two words are compared.
    ///
    /// If a command has two errors, a server may report either of them.
    static func agree(_ real: Reply, _ simulated: Reply) -> Bool {
        guard case .error(let left) = real, case .error(let right) = simulated else { return real == simulated }
        if left.hasPrefix("WRONGTYPE") != right.hasPrefix("WRONGTYPE") { return true }
        if (left == "ERR syntax error") != (right == "ERR syntax error") { return true }
        if left.contains("script") || right.contains("script") {
            return left.split(separator: " ").prefix(2) == right.split(separator: " ").prefix(2)
                || left.hasPrefix("ERR Error compiling") && right.hasPrefix("ERR Error compiling")
        }
        return left == right
    }
}

/// A generator of mostly valid commands over a few keys of each type.
struct CommandGenerator {
    private var chance: Chance
    init(seed: UInt64) { chance = Chance(seed: seed) }

    private mutating func any(_ words: String...) -> String { words[chance.below(words.count)] }
    private mutating func number(_ bound: Int) -> String { String(chance.below(bound)) }
    private mutating func key(_ kind: String) -> String {
        // Chooses a key of the wrong type in 3 % of the commands.
        let kind = chance.happens(0.03) ? any("h", "s", "k") : kind
        return kind + number(3)
    }
    private mutating func field() -> String { "f" + number(8) }
    private mutating func id() -> String {
        switch chance.below(6) {
        case 0: number(6)
        case 1: number(6) + "-*"
        case 2: any("-", "+", "bad", "0-0", "1-2-3", "")
        default: number(6) + "-" + number(40)
        }
    }
    private mutating func bound() -> String {
        switch chance.below(6) {
        case 0: any("-", "+")
        case 1: "(" + field()
        case 2: any("x", "")
        default: "[" + field()
        }
    }
    private mutating func score() -> String {
        any("-inf", "+inf", "(" + number(9), number(9), number(9), "-3", "1.5", "no")
    }

    mutating func next() -> [Bytes] {
        var words: [String]
        switch chance.below(46) {
        case 0: words = ["SET", key("k"), number(100)]
        case 1: words = ["SET", key("k"), number(100), any("NX", "XX", "GET", "KEEPTTL", "PX", "ODD")]
        case 2: words = ["GET", key("k")]
        case 3: words = ["INCRBY", key("k"), any("1", "-5", "x", "9223372036854775807")]
        case 4: words = ["DEL", key(any("k", "h", "z", "s")), key("k")]
        case 5: words = ["EXISTS", key("h"), key("z")]
        case 6: words = ["TYPE", key(any("k", "h", "z", "s"))]
        case 7: words = ["PEXPIREAT", key(any("k", "h")), "9000000000" + number(1000)]
        case 8: words = ["PEXPIRETIME", key(any("k", "h"))]
        case 9: words = ["PERSIST", key(any("k", "h"))]
        case 10...12: words = ["HSET", key("h"), field(), number(50), field(), number(50)]
        case 13: words = ["HSETNX", key("h"), field(), number(50)]
        case 14: words = ["HINCRBY", key("h"), field(), any("1", "-3", "x")]
        case 15: words = ["HDEL", key("h"), field(), field()]
        case 16: words = ["HGET", key("h"), field()]
        case 17: words = ["HMGET", key("h"), field(), field()]
        case 18: words = [any("HLEN", "HGETALL", "HKEYS"), key("h")]
        case 19: words = [any("HEXISTS", "HSTRLEN"), key("h"), field()]
        // Members with equal scores, which lexicographical ranges require.
        case 20: words = ["ZADD", "l" + number(3), "0", field(), "0", field()]
        case 21...22: words = ["ZADD", key("z"), any("0", number(9), "2.5", "bad"), field(), number(9), field()]
        case 23: words = ["ZADD", key("z"), any("NX", "XX", "GT", "LT", "CH"), number(9), field()]
        case 24: words = ["ZREM", key("z"), field(), field()]
        case 25: words = ["ZRANGE", key("z"), any("0", "1", "-3"), any("-1", "2", "0"), any("WITHSCORES", "REV")]
        case 26: words = ["ZRANGE", key("z"), score(), score(), "BYSCORE", "LIMIT", number(3), number(4)]
        case 27: words = ["ZRANGEBYLEX", key("l"), bound(), bound()]
        case 28: words = ["ZRANGEBYLEX", key("l"), bound(), bound(), "LIMIT", number(3), any("2", "-1")]
        case 29: words = ["ZRANGEBYSCORE", key("z"), score(), score(), "WITHSCORES"]
        case 30: words = ["ZCARD", key("z")]
        case 31: words = [any("ZSCORE", "ZMSCORE"), key("z"), field()]
        case 32: words = ["ZCOUNT", key("z"), score(), score()]
        case 33: words = ["ZREMRANGEBYSCORE", key("z"), score(), score()]
        case 34...37: words = ["XADD", key("s"), id(), "b", number(50)]
        case 38: words = ["XADD", key("s"), any("NOMKSTREAM", "MAXLEN", "MINID"), number(4), id(), "b", number(50)]
        case 39: words = ["XRANGE", key("s"), id(), id()]
        case 40: words = ["XREVRANGE", key("s"), "+", "-", "COUNT", number(3)]
        case 41: words = ["XRANGE", key("s"), "(" + id(), "+", "COUNT", number(4)]
        case 42: words = ["XTRIM", key("s"), any("MINID", "MAXLEN"), number(5)]
        case 43: words = [any("XLEN", "STRLEN", "UNLINK", "XDEL"), key("s")]
        case 44: words = ["XINFO", "STREAM", key("s")]
        default: words = chance.happens(0.5) ? ["DBSIZE"] : [any("PING", "KEYS", "NOSUCH", "HSET", "XADD"), "*"]
        }
        // Removes a word in 1 % of the commands.
        if words.count > 1, chance.happens(0.01) { words.removeLast() }
        return words.map { Bytes($0.utf8) }
    }
}
