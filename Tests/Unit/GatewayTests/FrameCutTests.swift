import Foundation
import Testing
import Wire

@testable import Gateway

@Suite("Frames cut from bytes")
struct FrameCutTests {
    private static let most = Wire.Limits.clientBodyByteCount

    private static func ranges() -> [SequenceRange] {
        (0..<Wire.Limits.rangeCount).map { _ in SequenceRange(first: .max - 1, last: .max) }
    }

    private static var positions: [StreamPosition] {
        (0..<Wire.Limits.positionCount).map { _ in StreamPosition(stream: .max, sequence: .max, ranges: ranges()) }
    }

    @Test("the largest Hello and the largest Ack fit the bound of a client's frames")
    func largest() {
        var hello = Hello()
        hello.appID = String(repeating: "a", count: Wire.Limits.appIDByteCount)
        hello.cid = DeviceID(high: .max, low: .max)
        hello.proof = Array(repeating: 255, count: Wire.Limits.proofByteCount)
        hello.nonce = Array(repeating: 255, count: Wire.Limits.nonceByteCount)
        hello.client = String(repeating: "c", count: Wire.Limits.clientByteCount)
        (hello.timestamp, hello.window, hello.registration) = (.max, .max, true)
        hello.positions = Self.positions
        hello.opened = (0..<Wire.Limits.openedCount).map { _ in MessageID(high: .max, low: .max) }
        hello.tokens = (0..<Wire.Limits.tokenCount).map { _ in
            VendorToken(
                environment: .production, topic: String(repeating: "t", count: Wire.Limits.topicByteCount),
                token: String(repeating: "f", count: Wire.Limits.tokenByteCount))
        }
        var ack = Ack()
        ack.positions = Self.positions
        let reason = String(repeating: "r", count: Wire.Limits.reasonByteCount)
        ack.rejected = (0..<Wire.Limits.rejectedCount).map { _ in Rejected(sequence: .max, reason: reason) }
        #expect(hello.bodyByteCount <= Self.most && hello.bodyByteCount > Self.most / 2)
        #expect(ack.bodyByteCount <= Self.most && ack.bodyByteCount > Self.most / 2)
    }

    @Test("a Hello with a larger announced size is refused at its header; later frames have the configured bound")
    func announced() {
        func header(_ byteCount: Int) -> [UInt8] {
            [FrameType.hello.rawValue, UInt8(byteCount >> 16), UInt8(byteCount >> 8 & 255), UInt8(byteCount & 255)]
        }
        func cut(_ byteCount: Int, mustBeHello: Bool) -> String {
            header(byteCount).withUnsafeBytes { bytes in
                switch FrameCut(bytes, from: 0, bodyLimit: 65_536, mustBeHello: mustBeHello) {
                case .incomplete: "incomplete"
                case .frame: "frame"
                case .refused(let code, _): "\(code)"
                }
            }
        }
        #expect(cut(Self.most, mustBeHello: true) == "incomplete")
        #expect(cut(Self.most + 1, mustBeHello: true) == "frameTooLarge")
        #expect(cut(Self.most + 1, mustBeHello: false) == "incomplete")
        #expect(cut(65_537, mustBeHello: false) == "frameTooLarge")
    }
}
