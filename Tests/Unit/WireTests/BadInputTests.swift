import Testing
import Wire

/// Handwritten bytes that no encoder of ours produces.
private enum Bytes {
    static func varint(_ value: UInt64) -> [UInt8] {
        var (rest, bytes): (UInt64, [UInt8]) = (value, [])
        while rest >= 0x80 {
            bytes.append(UInt8(rest & 0x7F) | 0x80)
            rest >>= 7
        }
        return bytes + [UInt8(rest)]
    }
    static func number(_ field: UInt64, _ value: UInt64) -> [UInt8] { varint(field << 3) + varint(value) }
    static func block(_ field: UInt64, _ value: [UInt8]) -> [UInt8] {
        varint(field << 3 | 2) + varint(UInt64(value.count)) + value
    }
    static func text(_ field: UInt64, _ value: String) -> [UInt8] { block(field, Array(value.utf8)) }
    static func range(_ first: UInt64, _ last: UInt64) -> [UInt8] { block(3, number(1, first) + number(2, last)) }
    static func `repeat`(_ count: Int, _ bytes: [UInt8]) -> [UInt8] { Array((0..<count).map { _ in bytes }.joined()) }
}

/// A body and the expected result of its decoding.
struct DecodingCase: Sendable, CustomTestStringConvertible {
    let testDescription: String
    /// `nil` if the bytes are valid.
    let error: WireError?
    let decode: @Sendable () throws -> Void

    init<Message: WireMessage>(_ name: String, _: Message.Type, _ bytes: [UInt8], _ error: WireError?) {
        testDescription = name
        self.error = error
        decode = { _ = try Message(decoding: bytes.span.bytes) }
    }
}

@Suite("Bytes that no correct peer sends")
struct BadInputTests {
    private typealias B = Bytes

    static let malformed: [DecodingCase] = [
        DecodingCase("a tag without its value", Ping.self, [8], .truncated),
        DecodingCase("a varint that does not end", Ping.self, [8, 0x80], .truncated),
        DecodingCase(
            "an eleven-byte varint", Ping.self, [8] + [UInt8](repeating: 0x80, count: 10) + [0], .varintTooLong),
        DecodingCase("a varint of 65 bits", Ping.self, [8] + [UInt8](repeating: 0xFF, count: 9) + [2], .varintTooLong),
        DecodingCase(
            "a varint that is ten bytes of continuation", Ping.self, [8] + .init(repeating: 0xFF, count: 10),
            .varintTooLong),
        DecodingCase("a length past the end", Upstream.self, [0x12, 2, 0], .truncated),
        DecodingCase("a length of 2⁶⁴ − 1", Upstream.self, [0x12] + B.varint(.max), .truncated),
        DecodingCase("a length of 2⁶³", Upstream.self, [0x12] + B.varint(1 << 63), .truncated),
        DecodingCase("field number 0", Ping.self, [0, 1], .badTag),
        DecodingCase("a tag of more than 32 bits", Ping.self, B.varint(1 << 32 | 8) + [1], .badTag),
        DecodingCase("a group", Ping.self, [0x9B, 0x06, 0x9C, 0x06], .badTag),
        DecodingCase("the end of a group", Ping.self, [0x9C, 0x06], .badTag),
        DecodingCase("wire type 6", Ping.self, [0x9E, 0x06, 0], .badTag),
        DecodingCase("wire type 7", Ping.self, [0x9F, 0x06, 0], .badTag),
        DecodingCase("an unknown fixed64 cut short", Ping.self, [0x99, 0x06, 1, 2, 3, 4, 5, 6, 7], .truncated),
        DecodingCase("an unknown fixed32 cut short", Ping.self, [0x9D, 0x06, 1, 2, 3], .truncated),
        DecodingCase("an unknown block cut short", Ping.self, [0x9A, 0x06, 2, 1], .truncated),
        DecodingCase("a known number as a block", Ping.self, B.text(1, "x"), .wrongWireType(field: 1)),
        DecodingCase("a known number as fixed64", Ping.self, [9, 0, 0, 0, 0, 0, 0, 0, 0], .wrongWireType(field: 1)),
        DecodingCase("a known block as a number", Upstream.self, B.number(2, 1), .wrongWireType(field: 2)),
        DecodingCase(
            "an id of 15 bytes", Feedback.self, B.block(2, .init(repeating: 1, count: 15)), .badIdentifier(field: 2)),
        DecodingCase(
            "an id of 17 bytes", Feedback.self, B.block(2, .init(repeating: 1, count: 17)), .badIdentifier(field: 2)),
        DecodingCase(
            "an id as text", Hello.self, B.text(3, .init(repeating: "a", count: 32)), .badIdentifier(field: 3)),
        DecodingCase("an embedded message cut short", Deliver.self, B.block(11, [0x0A, 5, 65]), .truncated),
        DecodingCase(
            "an embedded length that ends in the next field", Deliver.self, B.block(11, [0x0A, 2, 65]) + [8, 1],
            .truncated),
        DecodingCase("an unknown role", Hello.self, B.number(2, 2), .unknownValue(field: 2)),
        DecodingCase("a role that is 0 in its low byte", Hello.self, B.number(2, 256), .unknownValue(field: 2)),
        DecodingCase("a negative role", Hello.self, B.number(2, .max), .unknownValue(field: 2)),
        DecodingCase("an unknown token kind", DeviceUpdate.self, B.block(5, B.number(1, 4)), .unknownValue(field: 1)),
        DecodingCase("an unknown environment", DeviceUpdate.self, B.block(5, B.number(2, 2)), .unknownValue(field: 2)),
        DecodingCase(
            "a channel as text", DeviceUpdate.self, B.block(5, B.text(5, "apns")), .wrongWireType(field: 5)),
        DecodingCase(
            "a token of an unknown channel cut short", DeviceUpdate.self, B.block(5, B.number(5, 10) + [0x22, 5, 65]),
            .truncated),
        DecodingCase("an unknown feedback", Feedback.self, B.number(1, 3), .unknownValue(field: 1)),
        DecodingCase("a second proof", Hello.self, B.block(6, [1]) + B.block(6, [1]), .repeated(field: 6)),
        DecodingCase("an empty range", Ack.self, B.block(1, B.range(5, 4)), .badRange(field: 3)),
        DecodingCase("range 0", Ack.self, B.block(1, B.range(0, 4)), .badRange(field: 3)),
        DecodingCase(
            "a range below its position", Ack.self, B.block(1, B.number(2, 9) + B.range(9, 12)), .badRange(field: 3)),
        DecodingCase(
            "ranges before a position they touch", Ack.self, B.block(1, B.range(9, 12) + B.number(2, 9)),
            .badRange(field: 3)),
        DecodingCase("ranges out of order", Ack.self, B.block(1, B.range(5, 6) + B.range(2, 3)), .badRange(field: 3)),
        DecodingCase("ranges that overlap", Ack.self, B.block(1, B.range(5, 7) + B.range(7, 8)), .badRange(field: 3)),
        DecodingCase(
            "a range of everything after a range", Ack.self, B.block(1, B.range(5, .max) + B.range(6, .max)),
            .badRange(field: 3)),
    ]

    @Test("each fault has its error", arguments: malformed)
    func decodingFails(_ fault: DecodingCase) throws {
        let error = try #require(fault.error)
        #expect(throws: error) { try fault.decode() }
    }

    @Test("a token of an unknown channel is skipped, and the others stay")
    func unknownChannel() throws {
        let known = B.block(13, B.text(4, "aa"))
        for channel in [UInt64(10), 13, 14, 15, 255, 256, .max] {
            // Its kind and environment are unknown here, too.
            let foreign = B.number(1, 9) + B.number(2, 9) + B.text(4, "bb") + B.number(5, channel)
            let bytes = known + B.block(13, foreign) + B.block(13, B.text(4, "cc"))
            #expect(
                try Hello(decoding: bytes.span.bytes).tokens == [VendorToken(token: "aa"), VendorToken(token: "cc")])
        }
        // As for any scalar, the last of two values counts.
        let twice = B.block(13, B.number(5, 9) + B.text(4, "dd") + B.number(5, 0))
        #expect(try Hello(decoding: twice.span.bytes).tokens == [VendorToken(token: "dd")])
    }

    @Test(
        "a token that is too long or not UTF-8 is refused alone",
        arguments: [
            (3, [UInt8](repeating: 65, count: Limits.topicByteCount + 1), TokenFault.tooLong),
            (4, [UInt8](repeating: 65, count: Limits.tokenByteCount + 1), .tooLong),
            (6, [UInt8](repeating: 65, count: Limits.activityByteCount + 1), .tooLong), (4, [0xFF], .badText),
        ] as [(UInt64, [UInt8], TokenFault)])
    func tokenRefused(field: UInt64, text: [UInt8], fault: TokenFault) throws {
        let faulty = B.text(4, "aa") + B.block(field, text)
        let good = B.text(4, "bb")
        let hello = try Hello(
            decoding: (B.text(1, "app") + B.block(13, faulty) + B.block(13, good) + B.text(16, "client")).span.bytes)
        #expect(hello.appID == "app" && hello.client == "client" && hello.tokens == [VendorToken(token: "bb")])
        #expect(hello.refusedTokens.count == 1 && hello.refusedTokens.fault == fault)
        let update = try DeviceUpdate(decoding: (B.block(5, faulty) + B.block(5, good)).span.bytes)
        #expect(update.tokens == [VendorToken(token: "bb")] && update.refusedTokens.fault == fault)
    }

    @Test("tokens above a device's sixteen are refused, and the first ones stay")
    func tooManyTokens() throws {
        let names = (0..<20).map { "t\($0)" }
        let bytes = names.flatMap { B.block(13, B.text(4, $0)) }
        let hello = try Hello(decoding: bytes.span.bytes)
        #expect(hello.tokens.map(\.token) == Array(names.prefix(Limits.tokenCount)))
        #expect(hello.refusedTokens.count == 4 && hello.refusedTokens.fault == .tooMany)
    }

    @Test(
        "a token is normalized as vendors accept it, or has a fault",
        arguments: [
            ("abdd1122 abdd1122", "abdd1122abdd1122"), ("<abdd1122 abdd1122>", "abdd1122abdd1122"),
            ("ab\r\ncd", "abcd"), ("\tab\u{A0}cd ", "abcd"), ("(null)", "(null)"), ("", ""), ("AbCd", "AbCd"),
            (" ", nil), ("<>", nil), ("é", nil), ("ab\u{0}", nil), ("ab\u{7F}", nil), ("令牌", nil),
        ] as [(String, String?)])
    func cleaned(text: String, expected: String?) {
        let token = try? VendorToken(topic: " com.example.app ", token: text).cleaned()
        #expect(token?.token == expected)
        if expected != nil { #expect(token?.topic == "com.example.app") }
    }

    static let atTheLimit: [DecodingCase] = {
        var cases: [DecodingCase] = []
        cases += atLimit("app id", 1, Limits.appIDByteCount)
        cases += atLimit("client", 16, Limits.clientByteCount)
        cases += atLimit("proof", 6, Limits.proofByteCount)
        cases += many("positions", Hello.self, 8, [], Limits.positionCount)
        cases += many("opened", Hello.self, 14, [UInt8](repeating: 7, count: 16), Limits.openedCount)
        cases += many("positions", Ack.self, 1, [], Limits.positionCount)
        cases += many("rejected", Ack.self, 2, [], Limits.rejectedCount)
        cases += many("dropped", Welcome.self, 7, [], Limits.droppedCount)
        for count in [Limits.rangeCount, Limits.rangeCount + 1] {
            let ranges = (0..<UInt64(count)).flatMap { B.range($0 * 2 + 1, $0 * 2 + 1) }
            let error: WireError? = count > Limits.rangeCount ? .tooMany(field: 3) : nil
            cases.append(DecodingCase("\(count) ranges", Ack.self, B.block(1, ranges), error))
        }
        for count in [Limits.reasonByteCount, Limits.reasonByteCount + 1] {
            let reason = B.block(3, [UInt8](repeating: UInt8(ascii: "x"), count: count))
            let error: WireError? = count > Limits.reasonByteCount ? .tooLong(field: 3) : nil
            cases.append(DecodingCase("a reason of \(count)", Ack.self, B.block(2, reason), error))
        }
        return cases
    }()

    /// Texts at exactly the limit, and one byte longer.
    private static func atLimit(_ name: String, _ field: UInt32, _ limit: Int) -> [DecodingCase] {
        [limit, limit + 1].map { count in
            let bytes = B.block(UInt64(field), .init(repeating: UInt8(ascii: "x"), count: count))
            return DecodingCase("\(name) of \(count)", Hello.self, bytes, count > limit ? .tooLong(field: field) : nil)
        }
    }

    private static func many<Message: WireMessage>(
        _ name: String, _ type: Message.Type, _ field: UInt32, _ element: [UInt8], _ limit: Int
    ) -> [DecodingCase] {
        [limit, limit + 1].map { count in
            DecodingCase(
                "\(count) \(name) of \(type)", type, B.repeat(count, B.block(UInt64(field), element)),
                count > limit ? .tooMany(field: field) : nil)
        }
    }

    @Test("limits are exact", arguments: atTheLimit)
    func limitHolds(_ limit: DecodingCase) throws {
        if let error = limit.error {
            #expect(throws: error) { try limit.decode() }
        } else {
            try limit.decode()
        }
    }

    @Test(
        "texts must be UTF-8 in its shortest form and without surrogates",
        arguments: [
            [0x80], [0xC0, 0x80], [0xC1, 0xBF], [0xC3], [0xC3, 0x28], [0xE0, 0x9F, 0xBF], [0xE4, 0xB8],
            [0xE4, 0x28, 0xAD],
            [0xED, 0xA0, 0x80], [0xED, 0xBF, 0xBF], [0xF0, 0x8F, 0xBF, 0xBF], [0xF4, 0x90, 0x80, 0x80],
            [0xF5, 0x80, 0x80, 0x80], [0xF0, 0x9F, 0x98], [0xF0, 0x9F, 0x98, 0xC0], [0xFE], [0xFF],
            [0x61, 0xE4, 0xB8, 0x41],
        ] as [[UInt8]])
    func badText(bytes: [UInt8]) {
        let hello = Bytes.block(1, bytes)
        #expect(throws: WireError.badText(field: 1)) { try Hello(decoding: hello.span.bytes) }
        let publish = Bytes.block(7, bytes)
        #expect(throws: WireError.badText(field: 7)) { try PublishView(decoding: publish.span.bytes) }
        let alert = Bytes.block(9, Bytes.block(2, bytes))
        #expect(throws: WireError.badText(field: 2)) { try PublishView(decoding: alert.span.bytes) }
    }

    @Test("our UTF-8 check and the standard library's agree on random bytes")
    func textAgreement() throws {
        var random = Generator("utf8")
        for _ in 0..<4_000 {
            // Few distinct bytes, so that valid sequences are common.
            let parts: [[UInt8]] = random.list(upTo: 4) { random in
                random.below(3) == 0
                    ? [UInt8(truncatingIfNeeded: random.next())]
                    : Array(random.text(upTo: 2).utf8).dropLast(random.below(4) == 0 ? 1 : 0)
            }
            let bytes = Array(parts.joined())
            let body = Bytes.block(1, bytes)
            let ours = try? Hello(decoding: body.span.bytes).appID
            #expect(ours == String(validating: bytes, as: UTF8.self), "seed \(Generator.seed)")
        }
    }
}

@Suite("Bytes of newer and unusual peers")
struct LenienceTests {
    @Test("every strict prefix of an encoding is an error or a shorter message, never a trap")
    func prefixes() throws {
        for sample in Sample.all(randomCount: 12) {
            for count in 0..<sample.body.count {
                let prefix = Array(sample.body.prefix(count))
                // Fields are in order, so a prefix that decodes is the encoding of its result.
                if let again = try? sample.recode(prefix) { #expect(again == prefix) }
            }
        }
    }

    @Test("random damage is an error or another message, never a trap; the views agree with the messages")
    func damage() throws {
        var random = Generator("damage")
        for sample in Sample.all(randomCount: 40) where !sample.body.isEmpty {
            for _ in 0..<40 {
                var bytes = sample.body
                for _ in 0...random.below(3) {
                    bytes[random.below(bytes.count)] = UInt8(truncatingIfNeeded: random.number(UInt64.self))
                }
                _ = try? sample.recode(bytes)
                _ = try? HelloTranscript(body: bytes.span.bytes)
                let (ack, view) = (try? Ack(decoding: bytes.span.bytes), try? AckView(decoding: bytes.span.bytes))
                // Only the view refuses a stream named twice.
                if view != nil { #expect(ack != nil) }
                let publish = try? Publish(decoding: bytes.span.bytes)
                #expect((publish == nil) == ((try? PublishView(decoding: bytes.span.bytes)) == nil))
            }
        }
    }

    @Test("unknown fields of every wire type are skipped at any position")
    func unknownFields() throws {
        // Numbers 2000 (all types) and 2²⁹ − 1 (the highest).
        let unknown: [[UInt8]] = [
            [0x80, 0x7D, 0xFF, 0x01], [0x81, 0x7D, 1, 2, 3, 4, 5, 6, 7, 8], [0x82, 0x7D, 3, 9, 9, 9], [0x82, 0x7D, 0],
            [0x85, 0x7D, 1, 2, 3, 4], [0xF8, 0xFF, 0xFF, 0xFF, 0x0F, 1],
        ]
        for sample in Sample.all(randomCount: 4) {
            for extra in unknown {
                #expect(try sample.isEncoded(extra + sample.body))
                #expect(try sample.isEncoded(sample.body + extra))
            }
        }
        let inside = Bytes.block(11, unknown.joined() + Bytes.text(1, "t"))
        #expect(try Deliver(decoding: inside.span.bytes).alert == Alert(title: "t"))
    }

    @Test("the last of two scalars counts, and embedded messages are merged")
    func repeats() throws {
        let close = Bytes.number(1, 100) + Bytes.text(2, "a") + Bytes.text(2, "b") + Bytes.number(1, 200)
        let decoded = try Close(decoding: close.span.bytes)
        #expect((decoded.code, decoded.reason) == (200, "b"))

        let parts = [Bytes.text(1, "t") + Bytes.text(2, "x"), Bytes.text(2, "y"), []].map { Bytes.block(9, $0) }
        let publish = Array(parts.joined())
        #expect(try Publish(decoding: publish.span.bytes).alert == Alert(title: "t", body: "y"))
        let view = try PublishView(decoding: publish.span.bytes)
        #expect(view.hasAlert)
        publish.withUnsafeBytes {
            #expect(view.alertTitle.bytes(of: $0).elementsEqual("t".utf8))
            #expect(view.alertBody.bytes(of: $0).elementsEqual("y".utf8))
        }
    }

    @Test("fields may be in any order, and non-minimal numbers are valid")
    func order() throws {
        let backwards = Bytes.number(4, 7) + Bytes.number(1, 3)
        let welcome = try Welcome(decoding: backwards.span.bytes)
        #expect((welcome.generation, welcome.window) == (3, 7))
        let long: [UInt8] = [0x88, 0x80, 0x00, 0x85, 0x80, 0x80, 0x00]
        #expect(try Ping(decoding: long.span.bytes) == Ping(nonce: 5))
    }

    @Test("32-bit fields keep the low half of a longer number; any number but 0 is true")
    func truncation() throws {
        let bytes = Bytes.number(1, 1 << 32 | 9) + Bytes.number(3, 1 << 40) + Bytes.number(4, 1 << 32 | 3)
        let update = try DeviceUpdate(decoding: bytes.span.bytes)
        #expect((update.request, update.keepsRunning, update.badge) == (9, true, -2))
    }

    @Test("an application state of a later version counts as background")
    func unknownState() throws {
        let (hello, update) = (Bytes.number(9, 17), Bytes.number(2, .max))
        #expect(try Hello(decoding: hello.span.bytes).applicationState == .background)
        #expect(try DeviceUpdate(decoding: update.span.bytes).applicationState == .background)
    }

    @Test("an explicit default is the same message; an optional one is present")
    func spelledDefaults() throws {
        let zero = Bytes.number(1, 0) + Bytes.number(4, 0) + Bytes.number(6, 0)
        let update = try DeviceUpdate(decoding: zero.span.bytes)
        #expect(update.badge == 0 && update.pushModeOff == false && update.applicationState == nil)
        let empty = Bytes.block(2, []) + Bytes.block(2, [UInt8](repeating: 0, count: 16))
        #expect(try Feedback(decoding: empty.span.bytes) == Feedback())
    }
}
