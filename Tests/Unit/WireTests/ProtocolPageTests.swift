import Foundation
import Testing
import Wire

@Suite("The bytes in docs/use/Protocol.md")
struct ProtocolPageTests {
    /// Returns the frame in the block that opens with "```hex NAME": on each line hex pairs, then at least two spaces and text.
    private func frame(_ name: String) throws -> [UInt8] {
        let page = try String(
            contentsOf: Protoc.repository.appendingPathComponent("docs/use/Protocol.md"), encoding: .utf8)
        var lines = page.split(separator: "\n", omittingEmptySubsequences: false)[...]
        while let line = lines.popFirst(), line != "```hex \(name)" {}
        try #require(!lines.isEmpty, "no block for \(name)")
        return try lines.prefix { $0 != "```" }.flatMap { line in
            try line.components(separatedBy: "  ")[0].split(separator: " ").map { pair in
                try #require(UInt8(pair, radix: 16), "\(pair) is no byte")
            }
        }
    }

    private func body(of frame: [UInt8], type: FrameType) throws -> [UInt8] {
        let header = try #require(try FrameHeader(parsing: frame.span.bytes))
        #expect(header == FrameHeader(type: type, bodyByteCount: frame.count - FrameHeader.byteCount))
        return Array(frame.dropFirst(FrameHeader.byteCount))
    }

    @Test("the Hello matches the page, and its proof is right")
    func hello() throws {
        let body = try body(of: frame("Hello"), type: .hello)
        var expected = Hello()
        expected.appID = "demo"
        expected.cid = try #require(DeviceID("00112233445566778899aabbccddeeff"))
        expected.timestamp = 1_764_000_000_000
        expected.queueEpoch = 1
        expected.positions = [StreamPosition(sequence: 41, ranges: [SequenceRange(first: 43, last: 43)])]
        expected.heartbeatSeconds = 300
        expected.badge = 0
        expected.tokens = [VendorToken(environment: .sandbox, topic: "com.example.app", token: "a1b2c3d4")]
        expected.client = "example/1.0"

        let transcript = try HelloTranscript(body: body.span.bytes)
        let script = """
            import hashlib, hmac, sys
            sys.stdout.buffer.write(hmac.digest(bytes(range(32)), sys.stdin.buffer.read(), hashlib.sha256))
            """
        expected.proof = try Tool.run("python3", ["-c", script], input: transcript.bytes)
        #expect(try Hello(decoding: body.span.bytes) == expected)

        // Encoded in the page's order: all other fields, then the proof.
        var withoutProof: [UInt8] = []
        expected.proof = []
        expected.appendBody(to: &withoutProof)
        #expect(transcript.bytes == Array("longwire hello 1".utf8) + withoutProof)
        #expect(body == withoutProof + [0x32, 0x20] + transcript.proof)
    }

    @Test("the Deliver matches the page")
    func deliver() throws {
        var expected = Deliver()
        expected.sequence = 42
        expected.messageID = MessageID(
            bucket: Bucket(0xABC), acceptedAt: 1_763_999_990_000, digest: 0x7F3E_2D1C_0B5A_4968)
        expected.taskID = TaskID(
            kind: .single, month: 11, day: 24, random: (0xD2C3_B4A5, 0x9687_7869_5A4B_3C2D))
        expected.payload = Array(#"{"order":7}"#.utf8)
        expected.offline = true
        expected.acceptedAt = 1_763_999_990_000
        expected.alertedAt = 1_763_999_991_500
        expected.attempt = 1
        expected.alert = Alert(title: "您好")
        var bytes: [UInt8] = []
        expected.appendFrame(to: &bytes)
        #expect(try frame("Deliver") == bytes)
    }

    @Test("the traffic of each heartbeat matches the page")
    func heartbeats() throws {
        let page = try String(
            contentsOf: Protoc.repository.appendingPathComponent("docs/use/Protocol.md"), encoding: .utf8)
        let section = try #require(page.components(separatedBy: "### Battery and traffic\n").last)
        let rows = section.split(separator: "\n").filter { $0.hasPrefix("| ") }.map { row in
            row.split(separator: "|").map { $0.filter { $0 != " " && $0 != "," } }.compactMap { Int($0) }
        }.filter { !$0.isEmpty }
        #expect(rows.count == 7)
        var (ping, pong): ([UInt8], [UInt8]) = ([], [])
        Ping(nonce: 1).appendFrame(to: &ping)
        Pong(nonce: 1).appendFrame(to: &pong)
        let recordBytes = 22
        let bytes = [52, 72].map { headers in ping.count + pong.count + 2 * recordBytes + 3 * headers }
        for row in rows {
            try #require(row.count == 5)
            let exchanges = 86_400 / row[0]
            #expect(row[1] == exchanges && row[4] == exchanges * 10 / 60)
            for (index, bytes) in bytes.enumerated() {
                #expect(row[2 + index] == Int((Double(exchanges * bytes) / 1_000).rounded()))
            }
        }
    }

    @Test("the Ack matches the page")
    func ack() throws {
        var expected = Ack()
        expected.positions = [StreamPosition(sequence: 43)]
        var bytes: [UInt8] = []
        expected.appendFrame(to: &bytes)
        #expect(try frame("Ack") == bytes)
    }
}
