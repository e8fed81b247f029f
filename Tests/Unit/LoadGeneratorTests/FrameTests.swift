import Testing
import Wire

@testable import LoadGenerator

@Suite("Frames")
struct FrameTests {
    @Test("a server's answer to a WebSocket request is recognized by its first bytes")
    func upgrade() {
        func count(_ text: String) -> Int? { Array(text.utf8).withUnsafeBytes { WebSocketFrames.answerByteCount($0) } }
        let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
        #expect(count(answer) == answer.utf8.count && count(answer + "more") == answer.utf8.count)
        for prefix in 0..<answer.utf8.count {
            #expect(count(String(decoding: answer.utf8.prefix(prefix), as: UTF8.self)) == nil)
        }
        #expect(count("HTTP/1.1 404 Not Found\r\n\r\n") == 0)
        #expect(count("\u{3}\0\0\u{5}") == 0)
    }

    @Test("frames are read one by one, and a partial one waits for the rest")
    func frames() throws {
        var bytes: [UInt8] = []
        var deliver = Deliver()
        (deliver.sequence, deliver.payload) = (300, [1, 2, 3, 4, 5, 6, 7, 8, 9])
        deliver.appendFrame(to: &bytes)
        let first = bytes.count
        Ping().appendFrame(to: &bytes)
        for count in 0...bytes.count {
            try Array(bytes[..<count]).withUnsafeBytes { part in
                var offset = 0
                let (header, body) = try Frames.next(in: part, from: &offset) ?? (nil, nil)
                #expect(header?.type == (count < first ? nil : .deliver) && offset == (count < first ? 0 : first))
                if let body {
                    let view = try DeliverView(decoding: body.bytes)
                    #expect(view.sequence == 300 && view.stream == 0)
                    #expect(view.payload.bytes(of: body).elementsEqual(deliver.payload))
                }
                let second = try Frames.next(in: part, from: &offset)
                #expect(second?.header.type == (count < bytes.count ? nil : .ping))
            }
        }
        for damaged: [UInt8] in [[0xEE, 0, 0, 0], [FrameType.deliver.rawValue, 0xFF, 0, 0]] {
            var offset = 0
            #expect(throws: FrameHeader.ParseError.self) {
                try damaged.withUnsafeBytes { _ = try Frames.next(in: $0, from: &offset) }
            }
        }
    }

    @Test("Wire decodes a Publish: request, device and number, in the alert's title for the vendor")
    func publishes() throws {
        let cid = DeviceID(high: 0x0123_4567_89AB_CDEF, low: 0xFEDC_BA98_7654_3210)
        for (payloadByteCount, isForVendor) in [(8, false), (256, false), (16_384, true)] {
            var template = PublishTemplate(payloadByteCount: payloadByteCount, isForVendor: isForVendor)
            for number: UInt64 in [0, 70_000, PublishTemplate.firstRequest - 1] {
                template.fill(number: number, cid: cid, mark: 0xDEAD_BEEF)
                let header = try FrameHeader(parsing: template.bytes.span.bytes)
                #expect(header?.type == .publish && header?.bodyByteCount == template.bytes.count - 4)
                let publish = try Publish(decoding: Array(template.bytes[4...]).span.bytes)
                #expect(publish.request == PublishTemplate.firstRequest + number && publish.cid == cid)
                #expect(publish.payload.count == payloadByteCount && publish.strategy == (isForVendor ? 2 : 0))
                #expect(publish.alert?.title == (isForVendor ? "longwire bench 00000000deadbeef" : nil))
                let mark = publish.payload.withUnsafeBytes { Payload.mark(of: $0) }
                #expect(mark == (isForVendor ? 0x3030_3030_3030_3030 : 0xDEAD_BEEF))
            }
        }
        #expect([1, 2, 3].withUnsafeBytes { Payload.mark(of: UnsafeRawBufferPointer(rebasing: $0[..<3])) } == nil)
    }

    @Test("the marks of runs, workers and messages differ")
    func marks() {
        let mark = Payload.mark(runTag: 0xBEEF, worker: 3, number: 12)
        #expect(mark >> 48 == 0xBEEF)
        #expect(mark >> 40 & 0xFF == 3)
        #expect(mark & 0xFF_FFFF_FFFF == 12)
    }
}
