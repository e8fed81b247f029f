import Testing

@testable import Redis

@Suite("Replies of Redis")
struct ReplyParserTests {
    static let all: [(text: String, reply: RedisReply)] = [
        ("+OK\r\n", .status("OK")),
        (":-12\r\n", .integer(-12)),
        ("$5\r\nab\r\nc\r\n", .bytes(Array("ab\r\nc".utf8))),
        ("$0\r\n\r\n", .bytes([])),
        ("$-1\r\n", .none),
        ("*-1\r\n", .none),
        ("*0\r\n", .array([])),
        ("-MOVED 7 127.0.0.1:7001\r\n", .error(RedisFault("MOVED 7 127.0.0.1:7001"))),
        (
            "*3\r\n:1\r\n*2\r\n$1\r\na\r\n*1\r\n$-1\r\n*0\r\n",
            .array([.integer(1), .array([.bytes([97]), .array([.none])]), .array([])])
        ),
    ]

    private func feed(_ parser: inout ReplyParser, _ bytes: some Sequence<UInt8>) throws {
        try Array(bytes).withUnsafeBytes { try parser.feed($0) }
    }

    @Test("every kind of reply is parsed at every split", arguments: all.indices)
    func splits(index: Int) throws {
        let (text, expected) = Self.all[index]
        let bytes = Array(text.utf8)
        for first in 0...bytes.count {
            for second in first...bytes.count {
                var parser = ReplyParser()
                var replies: [RedisReply] = []
                for part in [bytes[..<first], bytes[first..<second], bytes[second...]] {
                    try feed(&parser, part)
                    while let reply = try parser.next() { replies.append(reply) }
                }
                #expect(replies == [expected])
            }
        }
    }

    @Test("a strict prefix is incomplete", arguments: all.indices)
    func prefixes(index: Int) throws {
        let bytes = Array(Self.all[index].text.utf8)
        for count in 0..<bytes.count {
            var parser = ReplyParser()
            try feed(&parser, bytes[..<count])
            let reply = try parser.next()
            #expect(reply == nil)
        }
    }

    @Test("consecutive replies are parsed one by one")
    func pipeline() throws {
        var parser = ReplyParser()
        try feed(&parser, Self.all.map(\.text).joined().utf8)
        for (_, expected) in Self.all {
            let reply = try parser.next()
            #expect(reply == expected)
        }
        let more = try parser.next()
        #expect(more == nil)
    }

    @Test(
        "invalid bytes are refused",
        arguments: [
            "hello\r\n", "$abc\r\n", "*x\r\n", ":\r\n1", ":12x\r\n", "*-2\r\n", "$-2\r\n", "*99999999999999999999\r\n",
            String(repeating: "*1\r\n", count: 9) + ":1\r\n", "*4294967296\r\n", "\u{0}\u{0}\r\n",
        ])
    func malformed(text: String) throws {
        var parser = ReplyParser()
        try feed(&parser, text.utf8)
        #expect(throws: MalformedReply.self) { _ = try parser.next() }
    }

    @Test("a count from a server reserves no memory, and its parts are bounded")
    func hugeCounts() throws {
        var parser = ReplyParser(byteLimit: 1 << 10, elementLimit: 100)
        try feed(&parser, "*2147483647\r\n".utf8)
        let reply = try parser.next()
        #expect(reply == nil)
        try feed(&parser, String(repeating: ":1\r\n", count: 120).utf8)
        #expect(throws: MalformedReply.self) { _ = try parser.next() }

        var large = ReplyParser(byteLimit: 1 << 10)
        try feed(&large, "$9223372036854775807\r\n".utf8)
        let more = try large.next()
        #expect(more == nil)
        try feed(&large, [UInt8](repeating: 65, count: 2 << 10))
        #expect(throws: MalformedReply(what: "a reply of more than 1024 bytes")) { _ = try large.next() }
    }

    @Test("random bytes lead to replies, an incomplete state or an error")
    func noise() throws {
        var random = SystemRandomNumberGenerator()
        let alphabet = Array("+-:$*0123456789\r\nab".utf8)
        for _ in 0..<3_000 {
            let bytes = (0..<40).map { _ in alphabet.randomElement(using: &random) ?? 0 }
            var parser = ReplyParser(byteLimit: 1 << 10, elementLimit: 1 << 10)
            do {
                try feed(&parser, bytes)
                while try parser.next() != nil {}
            } catch is MalformedReply {}
        }
    }
}

@Suite("Commands and slots of Redis")
struct RedisCommandTests {
    @Test("a command returns its arguments")
    func arguments() {
        var command = RedisCommand("XADD", "key")
        command.append(-5)
        command.append([0, 13, 10, 255])
        let pieces: [[UInt8]] = [[1, 2], [], [3]]
        pieces[0].withUnsafeBytes { first in
            pieces[2].withUnsafeBytes { last in command.append(byteCount: 3, gathering: [first, last]) }
        }
        #expect(
            command.arguments == [
                Array("XADD".utf8), Array("key".utf8), Array("-5".utf8), [0, 13, 10, 255], [1, 2, 3],
            ])
        var bytes: [UInt8] = []
        RedisCommand("GET", "ab").encode(into: &bytes)
        #expect(String(decoding: bytes, as: UTF8.self) == "*2\r\n$3\r\nGET\r\n$2\r\nab\r\n")
    }

    @Test("a script is named by its digest, and sent as a whole on request")
    func scripts() {
        let script = RedisScript("return 1")
        #expect(script.digest == "e0e1f9fabfc9d4800c877a703b823ac0578ff8db")
        var command = RedisCommand(script, keys: [[97]])
        command.append("x")
        #expect(command.name == "EVALSHA")
        #expect(
            command.withSource.arguments == ["EVAL", "return 1", "1", "a", "x"].map { Array($0.utf8) })
    }

    @Test("slots are those of the cluster specification")
    func slots() {
        #expect(RedisSlot.of("123456789") == 0x31C3)
        #expect(RedisSlot.of("{user1000}.following") == RedisSlot.of("{user1000}.followers"))
        #expect(RedisSlot.of("foo{}{bar}") == RedisSlot.of(Array("foo{}{bar}".utf8)))
        #expect(RedisSlot.of("foo{{bar}}zap") == RedisSlot.of("{bar"))
        #expect(RedisSlot.of("foo") == 12_182)
    }

    @Test("addresses of configurations and redirects are parsed")
    func addresses() {
        #expect(RedisAddress("10.0.0.1:6379") == RedisAddress(host: "10.0.0.1", port: 6379))
        #expect(RedisAddress("::1:6379") == RedisAddress(host: "::1", port: 6379))
        #expect(RedisAddress("[::1]:6379")?.description == "[::1]:6379")
        #expect(RedisAddress(":7000") == RedisAddress(host: "", port: 7000))
        #expect(RedisAddress("host") == nil)
        #expect(RedisAddress("host:0") == nil)
        #expect(RedisAddress("host:70000") == nil)
    }

    @Test("errors are recognized by their first word")
    func faults() {
        #expect(
            RedisFault("MOVED 3999 h:6381").kind == .moved(slot: 3999, to: RedisAddress(host: "h", port: 6381)))
        #expect(RedisFault("ASK 1 ?:6381").kind == .ask(slot: 1, of: nil))
        #expect(RedisFault("MOVED 99999 h:1").kind == .other)
        #expect(RedisFault("MOVED").kind == .other)
        #expect(RedisFault("OOM command not allowed").kind == .outOfMemory)
        for text in ["ERR max number of clients reached", "ERR max number of clients + cluster connections reached"] {
            #expect(RedisFault(text).kind == .tooManyClients && RedisFault(text).isPassing)
        }
        for text in [
            "WRONGPASS x", "NOAUTH x", "DENIED Redis is running in protected mode",
            "ERR AUTH <password> called without any password configured for the default user",
        ] {
            #expect(RedisFault(text).kind == .notAdmitted && !RedisFault(text).isPassing)
        }
        #expect(RedisFault("ERR x").kind == .other && !RedisFault("ERR x").isPassing)
    }
}
