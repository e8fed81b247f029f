internal import Wire

/// A Publish frame with fixed-width fields for each message's request, cid and number.
struct PublishTemplate {
    private(set) var bytes: [UInt8] = []
    private let cidOffset: Int
    private let markOffset: Int
    private let isForVendor: Bool

    /// The first request number, so large that all numbers have the same encoded length.
    static let firstRequest: UInt64 = 1 << 40
    private static let requestByteCount = 6
    private static let requestOffset = FrameHeader.byteCount + 1

    /// With `isForVendor`, the frame has strategy 2 (vendor only) and an alert whose title ends in the number.
    init(payloadByteCount: Int, isForVendor: Bool) {
        let cid = DeviceID(high: 0xFFFE_FDFC_FBFA_F9F8, low: 0xF7F6_F5F4_F3F2_F1F0)
        var publish = Publish()
        (publish.request, publish.cid) = (Self.firstRequest, cid)
        // Printable text after the number, as in real payloads.
        let number = isForVendor ? UInt8(ascii: "0") : 0
        publish.payload = (0..<payloadByteCount).map { $0 < 8 ? number : UInt8(ascii: "a") + UInt8($0 % 26) }
        let hole = String(repeating: "m", count: 16)
        if isForVendor {
            publish.strategy = 2
            publish.alert = Alert(title: "\(Payload.alertPrefix)\(hole)", body: "A message for the vendor channel.")
        }
        publish.appendFrame(to: &bytes)
        let mark = isForVendor ? Array(hole.utf8) : publish.payload
        guard let cid = bytes.firstRange(of: cid.bytes), let mark = bytes.firstRange(of: mark) else {
            preconditionFailure("the template has lost a hole")
        }
        (cidOffset, markOffset, self.isForVendor) = (cid.lowerBound, mark.lowerBound, isForVendor)
    }

    /// Sets the fields; `number` is below `firstRequest`.
    @inline(__always)
    mutating func fill(number: UInt64, cid: DeviceID, mark: UInt64) {
        bytes.withUnsafeMutableBytes { bytes in
            let request = Self.firstRequest | number
            for index in 0..<Self.requestByteCount {
                let more: UInt8 = index < Self.requestByteCount - 1 ? 0x80 : 0
                bytes[Self.requestOffset + index] =
                    UInt8(truncatingIfNeeded: request >> UInt64(7 * index)) & 0x7F | more
            }
            bytes.storeBytes(of: cid.high.bigEndian, toByteOffset: cidOffset, as: UInt64.self)
            bytes.storeBytes(of: cid.low.bigEndian, toByteOffset: cidOffset + 8, as: UInt64.self)
            if isForVendor {
                Hex.write(mark, digits: 16, at: bytes.baseAddress! + markOffset)
            } else {
                bytes.storeBytes(of: mark.bigEndian, toByteOffset: markOffset, as: UInt64.self)
            }
        }
    }
}
