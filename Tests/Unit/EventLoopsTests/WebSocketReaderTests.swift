import EventLoopsKit
import Testing

@testable import EventLoops

struct ClientFrame {
    var opcode: UInt8
    var payload: [UInt8] = []
    var isFinal = true
    var reserved: UInt8 = 0
    var mask: [UInt8]? = [0x37, 0xFA, 0x21, 0x3D]
    /// The number of extended length bytes: 0, 2 or 8; `nil` uses the minimum.
    var lengthByteCount: Int?

    var bytes: [UInt8] {
        let count = payload.count
        var bytes = [(isFinal ? 0x80 : 0) | reserved << 4 | opcode]
        let flag: UInt8 = mask == nil ? 0 : 0x80
        let wide = lengthByteCount ?? (count < 126 ? 0 : count < 65_536 ? 2 : 8)
        bytes.append(flag | (wide == 0 ? UInt8(count) : wide == 2 ? 126 : 127))
        for index in 0..<wide {
            bytes.append(UInt8(truncatingIfNeeded: UInt64(count) >> UInt64(8 * (wide - 1 - index))))
        }
        guard let mask else { return bytes + payload }
        return bytes + mask + payload.enumerated().map { $1 ^ mask[$0 % 4] }
    }

    static func binary(_ payload: [UInt8], isFinal: Bool = true) -> ClientFrame {
        ClientFrame(opcode: 2, payload: payload, isFinal: isFinal)
    }
    static func close(_ code: UInt16, _ reason: [UInt8] = []) -> ClientFrame {
        ClientFrame(opcode: 8, payload: [UInt8(code >> 8), UInt8(truncatingIfNeeded: code)] + reason)
    }
}

@Suite("WebSocket reader")
struct WebSocketReaderTests {
    static let ping = ClientFrame(opcode: 9, payload: Array("who?".utf8))

    @Test("a stream of frames has the same meaning wherever it is split")
    func everySplit() {
        let long = (0..<70_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let frames: [ClientFrame] = [
            .binary([1, 2, 3, 4, 5], isFinal: false), Self.ping,
            ClientFrame(opcode: 0, payload: [6, 7], isFinal: false),
            ClientFrame(opcode: 0, payload: [], isFinal: true), .binary([]), .binary(Array(long[..<126])),
            ClientFrame(opcode: 10), .binary(Array(long[..<300])), .close(1000, Array("bye".utf8)),
        ]
        let stream = frames.flatMap(\.bytes)
        let whole = WebSocketTranscript(stream)
        #expect(whole.tookAll)
        #expect(whole.payload == [1, 2, 3, 4, 5, 6, 7] + long[..<126] + long[..<300])
        #expect(
            whole.steps == [
                .frameEnd(endsMessage: false, isEmpty: false), .ping(Array("who?".utf8)),
                .frameEnd(endsMessage: false, isEmpty: false), .frameEnd(endsMessage: true, isEmpty: true),
                .frameEnd(endsMessage: true, isEmpty: true), .frameEnd(endsMessage: true, isEmpty: false), .pong,
                .frameEnd(endsMessage: true, isEmpty: false), .close(.normal),
            ])
        for cut in 0...stream.count { #expect(WebSocketTranscript(stream, pieces: [cut]) == whole) }
        for size in 1...17 {
            #expect(WebSocketTranscript(stream, pieces: Array(repeating: size, count: stream.count / size)) == whole)
        }
        let large = ClientFrame.binary(long).bytes
        for size in [1, 7, 4_096, 65_535] {
            let read = WebSocketTranscript(large, pieces: Array(repeating: size, count: large.count / size))
            #expect(read.payload == long && read.steps == [.frameEnd(endsMessage: true, isEmpty: false)])
        }
    }

    static let broken: [(frames: [ClientFrame], code: UInt16)] = [
        // Reserved bits, alone and together.
        ([ClientFrame(opcode: 2, reserved: 1)], 1002), ([ClientFrame(opcode: 2, reserved: 2)], 1002),
        ([ClientFrame(opcode: 2, reserved: 4)], 1002), ([ClientFrame(opcode: 9, reserved: 7)], 1002),
        // Not masked.
        ([ClientFrame(opcode: 2, payload: [1], mask: nil)], 1002), ([ClientFrame(opcode: 9, mask: nil)], 1002),
        // Control frames that are fragmented or too long.
        ([ClientFrame(opcode: 9, isFinal: false)], 1002), ([ClientFrame(opcode: 8, isFinal: false)], 1002),
        ([ClientFrame(opcode: 10, payload: [UInt8](repeating: 0, count: 126))], 1002),
        // Lengths that are not encoded in the minimum number of bytes.
        ([ClientFrame(opcode: 2, payload: [1], lengthByteCount: 2)], 1002),
        ([ClientFrame(opcode: 2, payload: [1], lengthByteCount: 8)], 1002),
        ([ClientFrame(opcode: 2, payload: [UInt8](repeating: 0, count: 65_535), lengthByteCount: 8)], 1002),
        // Messages within messages, and continuations without a message.
        ([.binary([1], isFinal: false), .binary([2])], 1002), ([ClientFrame(opcode: 0, payload: [1])], 1002),
        ([.binary([1]), ClientFrame(opcode: 0, payload: [1])], 1002),
        // Text, also empty and in fragments.
        ([ClientFrame(opcode: 1, payload: [0x61])], 1003), ([ClientFrame(opcode: 1)], 1003),
        ([ClientFrame(opcode: 1, isFinal: false)], 1003),
        // Closes.
        ([ClientFrame(opcode: 8, payload: [3])], 1002), ([.close(1000, [0xC3, 0x28])], 1007),
        ([.close(1000, [0xED, 0xA0, 0x80])], 1007),
    ]

    @Test("a violation ends the stream with its code, wherever it is split", arguments: broken)
    func violations(frames: [ClientFrame], code: UInt16) {
        let stream = frames.flatMap(\.bytes)
        let whole = WebSocketTranscript(stream)
        #expect(whole.fault?.code.rawValue == code)
        for cut in 0...min(stream.count, 200) { #expect(WebSocketTranscript(stream, pieces: [cut]) == whole) }
    }

    @Test(
        "every undefined opcode is refused by its first two bytes", arguments: [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
    func reservedOpcodes(opcode: UInt8) {
        #expect(WebSocketTranscript([0x80 | opcode, 0x80]).fault?.code == .protocolError)
    }

    @Test("a length with its highest bit set is refused")
    func impossibleLength() {
        let head: [UInt8] = [0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]
        #expect(WebSocketTranscript(head).fault?.code == .protocolError)
        #expect(
            WebSocketTranscript([0x82, 0xFF, 0x7F] + [UInt8](repeating: 0xFF, count: 7) + [1, 2, 3, 4, 9]).payload == [
                8
            ])
    }

    @Test("close codes that may be sent are accepted, others are refused", arguments: 0...5_100)
    func closeCodes(code: Int) {
        let mayTravel =
            [1000, 1001, 1002, 1003].contains(code) || 1007...1014 ~= code || 3000...4999 ~= code
        let read = WebSocketTranscript(ClientFrame.close(UInt16(code)).bytes)
        #expect(read.steps == (mayTravel ? [.close(WebSocketCode(rawValue: UInt16(code)))] : []))
        #expect((read.fault?.code == .protocolError) == !mayTravel)
    }

    @Test("a close without a code is valid, and later bytes are not read")
    func plainClose() {
        let read = WebSocketTranscript(ClientFrame(opcode: 8).bytes + ClientFrame.binary([1]).bytes)
        #expect(read.steps == [.close(nil)] && read.payload.isEmpty)
        // Also within a fragmented message.
        #expect(
            WebSocketTranscript(ClientFrame.binary([1], isFinal: false).bytes + ClientFrame(opcode: 8).bytes).fault
                == nil)
    }

    // MARK: Greeting

    static let request = """
        GET /v1/device HTTP/1.1\r\nHost: 127.0.0.1:7000\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n
        """

    private func answer(
        _ text: String, _ judge: (WebSocketGreeting.Request) -> WebSocketGreeting.Verdict = { _ in .accept }
    ) -> WebSocketGreeting.Answer {
        Array(text.utf8).withUnsafeBytes { WebSocketGreeting.answer($0, judging: judge) }
    }

    private func status(_ text: String) -> Int? {
        switch answer(text) {
        case .incomplete: nil
        case .accepted: 101
        case .refused(let status, _): status
        }
    }

    @Test("the RFC's own key has the RFC's own proof, and every prefix is incomplete")
    func greeting() throws {
        guard case .accepted(let bytes) = answer(Self.request) else { throw FailedGreeting() }
        let text = String(decoding: bytes, as: UTF8.self)
        #expect(text.hasPrefix("HTTP/1.1 101 ") && text.hasSuffix("\r\n\r\n"))
        #expect(text.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"))
        #expect(!text.contains("Sec-WebSocket-Protocol") && !text.contains("Extensions"))
        for count in 0..<Self.request.utf8.count {
            #expect(status(String(decoding: Self.request.utf8.prefix(count), as: UTF8.self)) == nil)
        }
        #expect(status(Self.request + "x") == 400)
    }

    struct FailedGreeting: Error {}

    static let changes: [(from: String, to: String, status: Int)] = [
        ("GET", "POST", 405), ("HTTP/1.1\r\nH", "HTTP/1.0\r\nH", 400), ("Host: 127.0.0.1:7000\r\n", "", 400),
        ("Upgrade: websocket\r\n", "", 426), ("Upgrade: websocket", "Upgrade: h2c", 426),
        ("Upgrade: websocket", "Upgrade: h2c, WebSocket", 101), ("keep-alive, Upgrade", "keep-alive", 426),
        ("keep-alive, Upgrade", "UPGRADE", 101), ("Version: 13", "Version: 8", 426),
        ("Version: 13", "Version: 13, 8", 426),
        ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=", 400), ("dGhlIHNhbXBsZSBub25jZQ==", "!", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 400), ("13\r\n", "13\r\nContent-Length: 3\r\n", 413),
        ("Upgrade: websocket", "Upgrade: h2c\r\nUpgrade: websocket", 101),
        ("keep-alive, Upgrade", "keep-alive\r\nConnection: upgrade", 101),
        ("13\r\n", "13\r\nSec-WebSocket-Version: 8\r\n", 426),
        ("13\r\n", "13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", 400),
        ("13\r\n", "13\r\nOrigin: http://a\r\nOrigin: http://b\r\n", 400), ("13\r\n", "13\r\nHost: b\r\n", 400),
        ("13\r\n", "13\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n", 400),
        ("13\r\n", "13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n", 101), ("Host:", "Host :", 400),
    ]

    @Test("a request with a missing part is refused with a status", arguments: changes)
    func requests(from: String, to: String, status wanted: Int) {
        let parts = Self.request.components(around: from)
        #expect(status(parts.before + to + parts.after) == wanted)
    }

    @Test("an offered subprotocol is named, and an extension never")
    func subprotocols() throws {
        let offered = Self.request.components(around: "13\r\n")
        for (list, isNamed) in [
            ("longwire.v1", true), ("other, longwire.v1", true), ("longwire.v2", false), ("LONGWIRE.V1", false),
            ("other\r\nSec-WebSocket-Protocol: longwire.v1", true),
            ("longwire.v1\r\nSec-WebSocket-Protocol: other", true),
        ] {
            let text = "\(offered.before)13\r\nSec-WebSocket-Protocol: \(list)\r\n\(offered.after)"
            guard case .accepted(let bytes) = answer(text) else { throw FailedGreeting() }
            #expect(String(decoding: bytes, as: UTF8.self).contains("Protocol: longwire.v1\r\n") == isNamed)
        }
    }

    @Test("a page of the same origin is distinguished from others")
    func origins() {
        for (origin, isSame) in [
            ("http://127.0.0.1:7000", true), ("https://127.0.0.1:7000", true), ("http://127.0.0.1:7001", false),
            ("http://evil.example", false), ("null", false), ("127.0.0.1:7000", false),
            ("http://127.0.0.1:7000.evil", false), ("HTTP://127.0.0.1:7000", true), ("http://127.0.0.1", false),
        ] {
            let parts = Self.request.components(around: "13\r\n")
            var seen: Bool?
            _ = answer("\(parts.before)13\r\nOrigin: \(origin)\r\n\(parts.after)") {
                seen = $0.isSameOrigin
                return .refuse(status: 403, "")
            }
            #expect(seen == isSame)
        }
        for (host, origin, isSame) in [
            ("example.com", "https://example.com", true), ("example.com:443", "https://example.com", true),
            ("Example.com", "https://example.com:443", true), ("example.com:", "https://example.com", true),
            ("example.com:80", "https://example.com", false), ("example.com:443", "http://example.com", false),
            ("example.com:80", "http://example.com", true), ("example.com", "http://example.com:80", true),
            ("[::1]:80", "http://[::1]", true), ("[::1]", "http://[::1]:7081", false),
            ("example.com", "https://evil.example", false), ("example.com", "https://example.com/", false),
            ("example.com", "https://a@example.com", false), ("example.com:8443", "https://example.com:08443", true),
        ] {
            let isServed = Array(host.utf8).withUnsafeBytes { WebOrigin(origin)?.isServed(at: $0) ?? false }
            #expect(isServed == isSame, "\(host) \(origin)")
        }
        var seen: Bool?
        _ = answer(Self.request) {
            seen = $0.isSameOrigin
            return .accept
        }
        #expect(seen == false)
    }
}

extension String {
    /// Returns the text before and after the first `text`.
    fileprivate func components(around text: String) -> (before: String, after: String) {
        var start = startIndex
        while start < endIndex, !self[start...].hasPrefix(text) { start = index(after: start) }
        return (String(self[..<start]), String(self[start...].dropFirst(text.count)))
    }
}
