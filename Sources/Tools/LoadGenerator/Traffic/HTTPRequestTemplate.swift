/// A `push/single/cid` or `push/single/batch/cid` request of realistic size, with fixed-width fields for each message's cid,
/// request id and number.
struct HTTPRequestTemplate {
    private(set) var bytes: [UInt8]
    let bodyByteCount: Int
    let messageCount: Int
    private let firstMessage: Int
    private let messageStride: Int
    private let cidOffset: Int
    private let requestIDOffset: Int
    private let markOffset: Int
    private static let cidHole = String(repeating: "c", count: 32)
    private static let requestHole = String(repeating: "r", count: 24)
    private static let markHole = String(repeating: "m", count: 16)
    /// The beginning of each payload, before its number in 16 hex digits.
    static let payloadPrefix: StaticString = "{\"id\":\""

    init(_ credentials: Credentials, token: String, batch: Int) {
        let message = Self.message
        let isBatch = batch > 1
        let opening = "{\"is_async\":false,\"msg_list\":["
        let body =
            isBatch
            ? opening + [String](repeating: message, count: batch).joined(separator: ",") + "]}"
            : message
        let head =
            "POST /v2/\(credentials.appID)/push/single/\(isBatch ? "batch/" : "")cid HTTP/1.1\r\n"
            + "Host: \(credentials.http.text)\r\n"
            + "token: \(token)\r\nContent-Type: application/json;charset=utf-8\r\n"
            + "Content-Length: \(body.utf8.count)\r\n\r\n"
        bytes = Array((head + body).utf8)
        bodyByteCount = body.utf8.count
        messageCount = batch
        messageStride = message.utf8.count + 1
        // The offsets are searched in a message only, because the app id and token could contain the patterns.
        firstMessage = head.utf8.count + (isBatch ? opening.utf8.count : 0)
        cidOffset = Self.offset(of: Self.cidHole, in: message)
        requestIDOffset = Self.offset(of: Self.requestHole, in: message)
        markOffset = Self.offset(of: Self.markHole, in: message)
    }

    /// Sets the fields of one message of the next request.
    ///
    /// `run` and `mark` together form its request id, which must be unique for a day.
    mutating func fill(_ index: Int, cidHigh: UInt64, cidLow: UInt64, run: UInt64, mark: UInt64) {
        let start = firstMessage + index * messageStride
        bytes.withUnsafeMutableBytes { bytes in
            Hex.write(cidHigh, digits: 16, at: bytes.baseAddress! + start + cidOffset)
            Hex.write(cidLow, digits: 16, at: bytes.baseAddress! + start + cidOffset + 16)
            Hex.write(run, digits: 8, at: bytes.baseAddress! + start + requestIDOffset)
            Hex.write(mark, digits: 16, at: bytes.baseAddress! + start + requestIDOffset + 8)
            Hex.write(mark, digits: 16, at: bytes.baseAddress! + start + markOffset)
        }
    }

    private static func offset(of hole: String, in body: String) -> Int {
        let bytes = Array(body.utf8)
        let pattern = Array(hole.utf8)
        let places = 0...(bytes.count - pattern.count)
        let found = places.first { bytes[$0..<($0 + pattern.count)].elementsEqual(pattern) }
        guard let found else { preconditionFailure("the template has lost a hole") }
        return found
    }

    private static var message: String {
        #"{"request_id":"\#(requestHole)","settings":{"ttl":7200000,"strategy":{"default":1}},"#
            + #""audience":{"cid":["\#(cidHole)"]},"push_message":{"transmission":"{\"id\":\"\#(markHole)\","#
            + #"\"type\":\"order.shipped\",\"orderId\":\"SO-20261121-004217\",\"eta\":\"2026-11-24T18:00:00Z\","#
            + #"\"items\":[{\"sku\":\"A-1031\",\"quantity\":2},{\"sku\":\"B-0207\",\"quantity\":1}]}"},"#
            + #""push_channel":{"ios":{"type":"notify","aps":{"alert":{"title":"Your order is on its way","#
            + #""body":"It arrives on Tuesday between 16:00 and 18:00."},"content-available":0,"#
            + #""sound":"default"},"auto_badge":"+1","payload":"{\"orderId\":\"SO-20261121-004217\"}"}}}"#
    }
}

enum Hex {
    @inline(__always)
    static func write(_ value: UInt64, digits: Int, at start: UnsafeMutableRawPointer) {
        for index in 0..<digits {
            let nibble = UInt8(truncatingIfNeeded: value >> UInt64((digits - 1 - index) * 4)) & 15
            start.storeBytes(of: nibble < 10 ? 48 + nibble : 87 + nibble, toByteOffset: index, as: UInt8.self)
        }
    }

    /// - Returns: `nil` if one of the 16 bytes is not a lower-case hex digit.
    @inline(__always)
    static func read(_ start: UnsafeRawPointer) -> UInt64? {
        var value: UInt64 = 0
        for index in 0..<16 {
            let digit = start.load(fromByteOffset: index, as: UInt8.self)
            switch digit {
            case 48...57: value = value << 4 | UInt64(digit - 48)
            case 97...102: value = value << 4 | UInt64(digit - 87)
            default: return nil
            }
        }
        return value
    }
}
