import Testing
import Wire

@Suite("Frame header")
struct FrameHeaderTests {
    @Test("every strict prefix requests more bytes", arguments: 0..<FrameHeader.byteCount)
    func strictPrefix(byteCount: Int) throws {
        let whole: [UInt8] = [6, 0, 1, 2]
        #expect(try FrameHeader(parsing: whole.span.bytes.extracting(first: byteCount)) == nil)
    }

    @Test("the length is big-endian, and bytes after the header are ignored")
    func length() throws {
        let bytes: [UInt8] = [6, 0x00, 0x12, 0x34, 0xFF, 0xFF]
        let header = try #require(try FrameHeader(parsing: bytes.span.bytes))
        #expect(header == FrameHeader(type: .deliver, bodyByteCount: 0x1234))
        let longest: [UInt8] = [6, 0xFF, 0xFF, 0xFF]
        let limit = Limits.largestFrameBodyByteCount
        #expect(try FrameHeader(parsing: longest.span.bytes, bodyLimit: limit)?.bodyByteCount == limit)
    }

    @Test("every type byte is either a frame type or an error that contains it", arguments: UInt8.min...UInt8.max)
    func typeByte(byte: UInt8) throws {
        let bytes: [UInt8] = [byte, 0, 0, 0]
        if (1...17).contains(byte) {
            #expect(try FrameHeader(parsing: bytes.span.bytes)?.type.rawValue == byte)
        } else {
            #expect(throws: FrameHeader.ParseError.unknownType(byte)) { try FrameHeader(parsing: bytes.span.bytes) }
        }
    }

    @Test("a body may be as large as the limit and no larger")
    func limit() throws {
        let (largest, larger): ([UInt8], [UInt8]) = ([7, 1, 0, 0], [7, 1, 0, 1])
        #expect(try FrameHeader(parsing: largest.span.bytes)?.bodyByteCount == 65_536)
        #expect(throws: FrameHeader.ParseError.bodyTooLarge(byteCount: 65_537, limit: 65_536)) {
            try FrameHeader(parsing: larger.span.bytes)
        }
    }

    @Test("a header's errors have the close code for the peer")
    func closeCodes() {
        #expect(FrameHeader.ParseError.unknownType(99).closeCode == .unexpectedFrame)
        #expect(FrameHeader.ParseError.bodyTooLarge(byteCount: 2, limit: 1).closeCode == .frameTooLarge)
    }

    @Test("a frame is its header and its body, appended to existing bytes")
    func frame() throws {
        for sample in Sample.all(randomCount: 3) {
            let header = try #require(try FrameHeader(parsing: sample.frame.span.bytes))
            #expect(header == FrameHeader(type: sample.frameType, bodyByteCount: sample.body.count))
            #expect(Array(sample.frame.dropFirst(FrameHeader.byteCount)) == sample.body)
        }
        var bytes: [UInt8] = [0xAA]
        Ping(nonce: 5).appendFrame(to: &bytes)
        Ping(nonce: 6).appendBody(to: &bytes)
        #expect(bytes == [0xAA, 4, 0, 0, 2, 8, 5, 8, 6])
    }
}
