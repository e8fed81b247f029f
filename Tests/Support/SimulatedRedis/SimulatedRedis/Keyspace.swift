// The data of one simulated server and the commands of Redis 7.0 that Longwire sends, with the replies and errors of the real
// server. `RealServerTests` compares both, command by command.
//
// A keyspace knows no network, replica or slot. `effects` lists the changes of a command as commands with the same result on a
// copy; a replica applies these.

internal import Cryptography

package typealias Bytes = [UInt8]

package indirect enum Reply: Equatable, Sendable {
    case simple(String)
    case error(String)
    case integer(Int64)
    case bulk(Bytes)
    case null
    case array([Reply])

    package static let ok = Reply.simple("OK")
    package static func text(_ text: String) -> Reply { .bulk(Bytes(text.utf8)) }
    static let wrongType = Reply.error("WRONGTYPE Operation against a key holding the wrong kind of value")
    static let syntax = Reply.error("ERR syntax error")
    static let notInteger = Reply.error("ERR value is not an integer or out of range")
    static let outOfMemory = Reply.error("OOM command not allowed when used memory > 'maxmemory'.")

    package var isError: Bool {
        if case .error = self { return true }
        return false
    }
}

package struct Keyspace {
    enum Value: Equatable {
        case string(Bytes)
        case hash([Bytes: Bytes])
        case sorted(SortedSet)
        case stream(Stream)
    }
    struct Entry: Equatable {
        var value: Value
        /// The expiry time in Unix milliseconds; `Int64.max` without one.
        var expiresAt: Int64 = .max
    }

    private(set) var entries: [Bytes: Entry] = [:]
    private(set) var scripts: [Bytes: Bytes] = [:]
    /// The changes of the current command; `takeEffects` returns and clears them.
    private var effects: [[Bytes]] = []
    /// The server's time during the current command, in Unix milliseconds.
    var now: Int64 = 0
    /// Whether this keyspace belongs to a replica, which only serves reads.
    var refusesWrites = false
    /// Whether the server refuses all commands that may need memory.
    package var isOutOfMemory = false
    /// Whether memory was full when the current script started and the script has changed nothing yet.
    private var scriptIsOutOfMemory = false
    private var isInScript = false

    package init() {}

    package static func == (left: Keyspace, right: Keyspace) -> Bool { left.entries == right.entries }

    mutating func takeEffects() -> [[Bytes]] {
        defer { effects = [] }
        return effects
    }

    // MARK: Commands

    /// The properties of a command that the server checks before it runs the command.
    struct Traits {
        var isWrite = false
        /// Whether the command may need memory, so that a full server refuses it.
        var needsMemory = false
    }

    static func traits(of name: String) -> Traits? {
        switch name {
        case "SET", "INCR", "INCRBY", "HSET", "HSETNX", "HINCRBY", "ZADD", "XADD", "XSETID":
            Traits(isWrite: true, needsMemory: true)
        case "DEL", "UNLINK", "RENAME", "HDEL", "ZREM", "ZREMRANGEBYLEX", "ZREMRANGEBYSCORE", "XTRIM", "XDEL",
            "PEXPIRE",
            "PEXPIREAT",
            "EXPIRE", "PERSIST", "FLUSHALL":
            Traits(isWrite: true)
        case "PING", "GET", "EXISTS", "TYPE", "PTTL", "PEXPIRETIME", "STRLEN", "HGET", "HMGET", "HGETALL", "HLEN",
            "HEXISTS",
            "HSTRLEN", "HKEYS", "HSCAN", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZCARD", "ZSCORE", "ZMSCORE",
            "ZCOUNT",
            "ZLEXCOUNT", "ZSCAN", "XLEN", "XRANGE", "XREVRANGE", "XINFO", "DBSIZE", "SCAN", "KEYS", "TIME", "MEMORY":
            Traits()
        // A script's commands are checked one by one.
        case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT": Traits()
        default: nil
        }
    }

    /// Returns the keys of a command, to find its slots.
    static func keys(of words: [Bytes]) -> [Bytes] {
        guard let first = words.first else { return [] }
        switch upper(first) {
        case "PING", "DBSIZE", "SCAN", "KEYS", "TIME", "SCRIPT", "FLUSHALL", "MEMORY": return []
        case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
            guard words.count > 2, let count = integer(words[2]), count >= 0, count <= words.count - 3 else {
                return []
            }
            return Array(words[3..<3 + Int(count)])
        case "DEL", "UNLINK", "EXISTS", "RENAME": return Array(words.dropFirst())
        case "XINFO": return words.count > 2 ? [words[2]] : []
        default: return words.count > 1 ? [words[1]] : []
        }
    }

    static func upper(_ word: Bytes) -> String {
        String(decoding: word.map { (97...122).contains($0) ? $0 - 32 : $0 }, as: UTF8.self)
    }

    static func integer(_ word: Bytes) -> Int64? {
        guard let first = word.first, first != UInt8(ascii: "+") else { return nil }
        let text = String(decoding: word, as: UTF8.self)
        guard let number = Int64(text), String(number) == text else { return nil }
        return number
    }

    static func number(_ word: Bytes) -> Double? {
        let text = String(decoding: word, as: UTF8.self)
        switch text.lowercased() {
        case "inf", "+inf", "infinity", "+infinity": return .infinity
        case "-inf", "-infinity": return -.infinity
        case "nan", "": return nil
        default: return Double(text)
        }
    }

    /// Runs one command; its result depends only on `now` and the entries.
    package mutating func run(_ words: [Bytes], at now: Int64) -> Reply {
        self.now = now
        guard let first = words.first else { return .error("ERR unknown command ''") }
        let name = Self.upper(first)
        guard let traits = Self.traits(of: name) else {
            let rest = words.dropFirst().prefix(20).map { "'\(String(decoding: $0, as: UTF8.self))' " }.joined()
            return .error(
                "ERR unknown command '\(String(decoding: first, as: UTF8.self))', with args beginning with: \(rest)")
        }
        if traits.isWrite, refusesWrites { return .error("READONLY You can't write against a read only replica.") }
        if traits.needsMemory, isInScript ? scriptIsOutOfMemory && effects.isEmpty : isOutOfMemory {
            return .outOfMemory
        }
        let before = traits.isWrite ? effects.count : 0
        let reply = perform(name, words)
        if traits.isWrite, reply.isError { effects.removeSubrange(before...) }
        return reply
    }

    /// Runs a script's body; `run` calls this method, which calls `run` again for each command of the script.
    private mutating func evaluate(_ body: Bytes, keys: [Bytes], arguments: [Bytes]) -> Reply {
        (isInScript, scriptIsOutOfMemory) = (true, isOutOfMemory)
        defer { isInScript = false }
        let now = now
        return Interpreter.shared.run(body, keys: keys, arguments: arguments) { words in
            let name = words.first.map(Self.upper) ?? ""
            if name.hasPrefix("EVAL") || name == "SCRIPT" {
                return .error("ERR This Redis command is not allowed from script")
            }
            guard Self.traits(of: name) != nil else { return .error("ERR Unknown Redis command called from script") }
            return run(words, at: now)
        }
    }

    private mutating func perform(_ name: String, _ words: [Bytes]) -> Reply {
        func wrongCount() -> Reply {
            .error("ERR wrong number of arguments for '\(name.lowercased())' command")
        }
        let count = words.count
        switch name {
        case "PING": return count == 1 ? .simple("PONG") : .bulk(words[1])
        case "TIME":
            return .array([.text(String(now / 1000)), .text(String(now % 1000 * 1000))])
        case "DBSIZE": return .integer(Int64(entries.values.count { $0.expiresAt > now }))
        case "KEYS": return .array(liveKeys().map { .bulk($0) })
        case "SCAN": return .array([.text("0"), .array(liveKeys().map { .bulk($0) })])
        case "FLUSHALL":
            for key in Array(entries.keys) { remove(key) }
            effects.append(words)
            return .ok
        case "MEMORY": return .integer(64)
        case "SCRIPT": return script(words)
        case "EVAL", "EVAL_RO":
            guard count >= 3 else { return wrongCount() }
            guard let keyCount = Self.integer(words[2]) else { return .notInteger }
            guard keyCount >= 0 else { return .error("ERR Number of keys can't be negative") }
            guard keyCount <= count - 3 else {
                return .error("ERR Number of keys can't be greater than number of args")
            }
            let keys = Array(words[3..<3 + Int(keyCount)])
            let digest = Bytes(SHA1.hex(words[1]).utf8)
            scripts[digest] = words[1]
            return evaluate(words[1], keys: keys, arguments: Array(words[(3 + Int(keyCount))...]))
        case "EVALSHA", "EVALSHA_RO":
            guard count >= 3 else { return wrongCount() }
            guard let body = scripts[words[1].map { (65...90).contains($0) ? $0 + 32 : $0 }] else {
                return .error("NOSCRIPT No matching script. Please use EVAL.")
            }
            return perform("EVAL", [Bytes("EVAL".utf8), body] + words[2...])
        default: break
        }
        guard count >= 2 else { return wrongCount() }
        if let least = Self.leastCounts[name], count < least {
            return .error(
                "ERR wrong number of arguments for '\(name == "XINFO" ? "xinfo|stream" : name.lowercased())' command")
        }
        switch name.first {
        case "H": return performHash(name, words)
        case "Z": return performSorted(name, words)
        case "X": return performStream(name, words)
        default: return performPlain(name, words)
        }
    }

    /// The minimum number of words of each command, including its name.
    private static let leastCounts: [String: Int] = [
        "SET": 3, "INCRBY": 3, "RENAME": 3, "PEXPIRE": 3, "PEXPIREAT": 3, "EXPIRE": 3, "HSET": 4, "HSETNX": 4,
        "HINCRBY": 4,
        "HGET": 3,
        "HMGET": 3, "HDEL": 3, "HEXISTS": 3, "HSTRLEN": 3, "HSCAN": 3, "ZADD": 4, "ZREM": 3, "ZRANGE": 4,
        "ZRANGEBYLEX": 4, "ZRANGEBYSCORE": 4, "ZSCORE": 3, "ZMSCORE": 3, "ZCOUNT": 4, "ZLEXCOUNT": 4, "ZSCAN": 3,
        "ZREMRANGEBYLEX": 4, "ZREMRANGEBYSCORE": 4, "XADD": 5, "XRANGE": 4, "XREVRANGE": 4, "XTRIM": 4, "XDEL": 3,
        "XSETID": 3, "XINFO": 3,
    ]

    private mutating func script(_ words: [Bytes]) -> Reply {
        guard words.count > 1 else { return .error("ERR wrong number of arguments for 'script' command") }
        switch Self.upper(words[1]) {
        case "LOAD":
            guard words.count == 3 else { return .error("ERR wrong number of arguments for 'script|load' command") }
            if let message = Interpreter.shared.fault(in: words[2]) { return .error(message) }
            let digest = Bytes(SHA1.hex(words[2]).utf8)
            scripts[digest] = words[2]
            return .bulk(digest)
        case "EXISTS": return .array(words.dropFirst(2).map { .integer(scripts[$0] == nil ? 0 : 1) })
        case "FLUSH":
            scripts = [:]
            return .ok
        default:
            return .error("ERR unknown subcommand '\(String(decoding: words[1], as: UTF8.self))'. Try SCRIPT HELP.")
        }
    }

    /// Clears the script cache, as a server start does.
    mutating func forgetScripts() { scripts = [:] }

    private func liveKeys() -> [Bytes] {
        entries.filter { $0.value.expiresAt > now }.keys.sorted { $0.lexicographicallyPrecedes($1) }
    }

    // MARK: Entries

    var keys: [Bytes] { Array(entries.keys) }

    func find(_ key: Bytes) -> Entry? {
        guard let entry = entries[key], entry.expiresAt > now else { return nil }
        return entry
    }

    func has(_ key: Bytes) -> Bool { find(key) != nil }

    mutating func store(_ key: Bytes, _ value: Value, expiresAt: Int64? = nil) {
        let kept = find(key)?.expiresAt ?? .max
        entries[key] = Entry(value: value, expiresAt: expiresAt ?? kept)
    }

    mutating func remove(_ key: Bytes) { entries[key] = nil }

    /// Removes an entry while a command changes its value in place, which avoids a copy of each value.
    ///
    /// - Returns: when the entry expires.
    mutating func lend(_ key: Bytes) -> Int64 {
        let expiresAt = find(key)?.expiresAt ?? .max
        entries[key] = nil
        return expiresAt
    }

    mutating func changed(_ words: [Bytes]) { effects.append(words) }

    /// MIGRATE uses `lift` at the source and `put` at the target.
    mutating func lift(_ key: Bytes) -> Entry? { entries.removeValue(forKey: key) }
    mutating func put(_ key: Bytes, _ entry: Entry) { entries[key] = entry }

    // MARK: Plain commands

    private mutating func performPlain(_ name: String, _ words: [Bytes]) -> Reply {
        let key = words[1]
        switch name {
        case "SET": return set(words)
        case "GET":
            switch find(key)?.value {
            case nil: return .null
            case .string(let bytes)?: return .bulk(bytes)
            default: return .wrongType
            }
        case "STRLEN":
            switch find(key)?.value {
            case nil: return .integer(0)
            case .string(let bytes)?: return .integer(Int64(bytes.count))
            default: return .wrongType
            }
        case "INCR", "INCRBY":
            var old: Int64 = 0
            switch find(key)?.value {
            case nil: break
            case .string(let bytes)?:
                guard let number = Self.integer(bytes) else { return .notInteger }
                old = number
            default: return .wrongType
            }
            guard let step = name == "INCR" ? 1 : Self.integer(words[2]) else { return .notInteger }
            let (sum, isOver) = old.addingReportingOverflow(step)
            guard !isOver else { return .error("ERR increment or decrement would overflow") }
            store(key, .string(Bytes(String(sum).utf8)))
            changed(words)
            return .integer(sum)
        case "EXISTS": return .integer(Int64(words.dropFirst().count { has($0) }))
        case "DEL", "UNLINK":
            let found = words.dropFirst().filter { has($0) }
            var count: Int64 = 0
            for key in found where has(key) {
                remove(key)
                count += 1
            }
            if count > 0 { changed(words) }
            return .integer(count)
        case "RENAME":
            guard let entry = find(key) else { return .error("ERR no such key") }
            remove(key)
            entries[words[2]] = entry
            changed(words)
            return .ok
        case "TYPE":
            switch find(key)?.value {
            case nil: return .simple("none")
            case .string?: return .simple("string")
            case .hash?: return .simple("hash")
            case .sorted?: return .simple("zset")
            case .stream?: return .simple("stream")
            }
        case "PTTL", "PEXPIRETIME":
            guard let entry = find(key) else { return .integer(-2) }
            guard entry.expiresAt != .max else { return .integer(-1) }
            return .integer(name == "PTTL" ? entry.expiresAt - now : entry.expiresAt)
        case "PEXPIRE", "PEXPIREAT", "EXPIRE": return expire(name, words)
        case "PERSIST":
            guard let entry = find(key), entry.expiresAt != .max else { return .integer(0) }
            entries[key] = Entry(value: entry.value)
            changed(words)
            return .integer(1)
        default: return .error("ERR unknown command '\(name)'")
        }
    }

    private mutating func expire(_ name: String, _ words: [Bytes]) -> Reply {
        guard let number = Self.integer(words[2]) else { return .notInteger }
        guard let entry = find(words[1]) else { return .integer(0) }
        let time =
            switch name {
            case "PEXPIRE": now + number
            case "EXPIRE": now + number * 1000
            default: number
            }
        for option in words.dropFirst(3) {
            switch Self.upper(option) {
            case "NX": guard entry.expiresAt == .max else { return .integer(0) }
            case "XX": guard entry.expiresAt != .max else { return .integer(0) }
            case "GT": guard entry.expiresAt != .max, time > entry.expiresAt else { return .integer(0) }
            case "LT": guard time < entry.expiresAt else { return .integer(0) }
            default: return .error("ERR Unsupported option \(String(decoding: option, as: UTF8.self))")
            }
        }
        if time <= now {
            remove(words[1])
            changed([Bytes("DEL".utf8), words[1]])
        } else {
            entries[words[1]] = Entry(value: entry.value, expiresAt: time)
            changed([Bytes("PEXPIREAT".utf8), words[1], Bytes(String(time).utf8)])
        }
        return .integer(1)
    }

    private mutating func set(_ words: [Bytes]) -> Reply {
        let key = words[1]
        var index = 3
        var expiresAt: Int64? = .max
        var (mustBeNew, mustBeOld, givesOld) = (false, false, false)
        while index < words.count {
            let option = Self.upper(words[index])
            index += 1
            switch option {
            case "NX": mustBeNew = true
            case "XX": mustBeOld = true
            case "GET": givesOld = true
            case "KEEPTTL": expiresAt = nil
            case "PX", "EX", "PXAT", "EXAT":
                guard index < words.count else { return .syntax }
                guard let number = Self.integer(words[index]) else { return .notInteger }
                guard number > 0 else { return .error("ERR invalid expire time in 'set' command") }
                index += 1
                let milliseconds = option.hasPrefix("EX") ? number * 1000 : number
                expiresAt = option.hasSuffix("AT") ? milliseconds : now + milliseconds
            default: return .syntax
            }
        }
        if mustBeNew, mustBeOld { return .syntax }
        var old = Reply.null
        if givesOld {
            switch find(key)?.value {
            case nil: break
            case .string(let bytes)?: old = .bulk(bytes)
            default: return .wrongType
            }
        }
        let isThere = has(key)
        guard !(mustBeNew && isThere), !(mustBeOld && !isThere) else { return givesOld ? old : .null }
        store(key, .string(words[2]), expiresAt: expiresAt)
        var effect = [words[0], key, words[2]]
        if let time = find(key)?.expiresAt, time != .max { effect += [Bytes("PXAT".utf8), Bytes(String(time).utf8)] }
        changed(effect)
        return givesOld ? old : .ok
    }
}
