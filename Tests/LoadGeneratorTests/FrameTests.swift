import Testing
import Wire

@testable import LoadGenerator

/// The generator's own quick codec, held against module Wire's.
@Suite("Quick frames")
struct FrameTests {
    private func deliver() -> Deliver {
        var deliver = Deliver()
        deliver.sequence = 300
        deliver.messageID = MessageID(high: 1, low: 2)
        deliver.taskID = TaskID(high: 3, low: 4)
        deliver.payload = [1, 2, 3, 4, 5, 6, 7, 8, 9]
        deliver.offline = true
        deliver.acceptedAt = 1_795_000_000_000
        deliver.attempt = 1
        deliver.collapseKey = "key"
        deliver.alert = Alert(title: "title", body: "body")
        return deliver
    }

    @Test("a server's answer to a WebSocket's request is told from what is none by its first bytes")
    func upgrade() {
        func count(_ text: String) -> Int? { Array(text.utf8).withUnsafeBytes { WebSocketFrames.answerByteCount($0) } }
        let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
        #expect(count(answer) == answer.utf8.count && count(answer + "more") == answer.utf8.count)
        for prefix in 0..<answer.utf8.count {
            #expect(count(String(decoding: answer.utf8.prefix(prefix), as: UTF8.self)) == nil)
        }
        #expect(count("HTTP/1.1 404 Not Found\r\n\r\n") == 0)
        // A listener that takes frames answers with one, a Close.
        #expect(count("\u{3}\0\0\u{5}") == 0)
    }

    @Test("a Deliver of Wire's encoder is read")
    func readsDeliver() {
        var body: [UInt8] = []
        deliver().appendBody(to: &body)
        let scan = body.withUnsafeBytes { DeliverScan($0) }
        #expect(scan?.sequence == 300)
        #expect(scan?.stream == 0)
        #expect(scan?.mark == 0x0102_0304_0506_0708)
        #expect(scan?.isOffline == true)
    }

    @Test("a payload shorter than a mark has none")
    func shortPayload() {
        var message = deliver()
        message.payload = [1, 2, 3]
        var body: [UInt8] = []
        message.appendBody(to: &body)
        let scan = body.withUnsafeBytes { DeliverScan($0) }
        #expect(scan != nil)
        #expect(scan?.mark == nil)
    }

    @Test("a PublishResult of Wire's encoder is read")
    func readsResult() {
        var result = PublishResult()
        (result.request, result.code, result.reason) = (1 << 39 | 5, 20001, "no")
        result.messageID = MessageID(high: 1, low: 2)
        var body: [UInt8] = []
        result.appendBody(to: &body)
        let scan = body.withUnsafeBytes { ResultScan($0) }
        #expect(scan?.request == 1 << 39 | 5)
        #expect(scan?.code == 20001)
    }

    @Test("no prefix and no single changed byte makes a reader trap, and a cut field is refused")
    func damagedBytes() {
        var body: [UInt8] = []
        deliver().appendBody(to: &body)
        var refused = 0
        for count in 0..<body.count {
            let scan = Array(body[..<count]).withUnsafeBytes { DeliverScan($0) }
            if scan == nil { refused += 1 }
        }
        #expect(refused > body.count / 2)
        for index in body.indices {
            for byte in UInt8.min...UInt8.max {
                var damaged = body
                damaged[index] = byte
                damaged.withUnsafeBytes {
                    _ = DeliverScan($0)
                    _ = ResultScan($0)
                }
            }
        }
        let endless = [UInt8](repeating: 0xFF, count: 40)
        #expect(endless.withUnsafeBytes { DeliverScan($0) } == nil)
    }

    @Test("an Ack is the bytes that Wire writes", arguments: [1, 127, 128, 1 << 40, .max] as [UInt64])
    func writesAck(sequence: UInt64) {
        var ack = Ack()
        ack.positions = [StreamPosition(stream: 0, sequence: sequence)]
        var expected: [UInt8] = []
        ack.appendFrame(to: &expected)
        var written = [UInt8](repeating: 0, count: FrameWriter.largestAckByteCount)
        let count = written.withUnsafeMutableBytes {
            FrameWriter.ack(stream: 0, sequence: sequence, at: $0.baseAddress!)
        }
        #expect(Array(written[..<count]) == expected)
    }

    @Test("a Publish is read back by Wire, payload marked", arguments: [8, 256, 16_384])
    func writesPublish(payloadByteCount: Int) throws {
        let payload = Payload.bytes(payloadByteCount)
        let cid = DeviceID(high: 0x0123_4567_89AB_CDEF, low: 0xFEDC_BA98_7654_3210)
        var written = [UInt8](repeating: 0, count: payloadByteCount + FrameWriter.publishOverheadByteCount)
        let count = written.withUnsafeMutableBytes { buffer in
            payload.withUnsafeBytes {
                FrameWriter.publish(request: 70_000, cid: cid, mark: 0xAABB, payload: $0, at: buffer.baseAddress!)
            }
        }
        let header = try FrameHeader(parsing: written.span.bytes)
        #expect(header?.type == .publish)
        #expect(header?.bodyByteCount == count - 4)
        let publish = try Publish(decoding: Array(written[4..<count]).span.bytes)
        #expect(publish.request == 70_000)
        #expect(publish.cid == cid)
        #expect(publish.payload == [0, 0, 0, 0, 0, 0, 0xAA, 0xBB] + payload[8...])
    }

    @Test("the marks of runs, workers and messages differ")
    func marks() {
        let mark = Payload.mark(runTag: 0xBEEF, worker: 3, number: 12)
        #expect(mark >> 48 == 0xBEEF)
        #expect(mark >> 40 & 0xFF == 3)
        #expect(mark & 0xFF_FFFF_FFFF == 12)
    }
}
