/// A `push/single/cid` request of a realistic size, with holes of fixed width for the cid and the request id.
struct HTTPRequestTemplate {
    /// Header and body.
    private(set) var bytes: [UInt8]
    let bodyByteCount: Int
    private let cidOffset: Int
    private let requestIDOffset: Int
    private static let digits = Array("0123456789abcdef".utf8)
    private static let cidHole = String(repeating: "c", count: 32)
    private static let requestHole = String(repeating: "r", count: 24)

    init(_ credentials: Credentials, token: String) {
        let body = Self.body
        let head =
            "POST /v2/\(credentials.appID)/push/single/cid HTTP/1.1\r\nHost: \(credentials.http.text)\r\n"
            + "token: \(token)\r\nContent-Type: application/json;charset=utf-8\r\n"
            + "Content-Length: \(body.utf8.count)\r\n\r\n"
        bytes = Array((head + body).utf8)
        bodyByteCount = body.utf8.count
        // Looked for in the body only: the app id and the token are somebody else's text.
        let start = head.utf8.count
        cidOffset = start + Self.offset(of: Self.cidHole, in: body)
        requestIDOffset = start + Self.offset(of: Self.requestHole, in: body)
    }

    /// Fills the holes for the next request.
    mutating func fill(cidHigh: UInt64, cidLow: UInt64, run: UInt64, number: UInt64) {
        bytes.withUnsafeMutableBufferPointer { bytes in
            for index in 0..<16 {
                bytes[cidOffset + index] = Self.digits[Int(cidHigh >> UInt64(60 - index * 4) & 15)]
                bytes[cidOffset + 16 + index] = Self.digits[Int(cidLow >> UInt64(60 - index * 4) & 15)]
                bytes[requestIDOffset + 8 + index] = Self.digits[Int(number >> UInt64(60 - index * 4) & 15)]
            }
            for index in 0..<8 {
                bytes[requestIDOffset + index] = Self.digits[Int(run >> UInt64(28 - index * 4) & 15)]
            }
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

    private static var body: String {
        #"{"request_id":"\#(requestHole)","settings":{"ttl":7200000,"strategy":{"default":1}},"#
            + #""audience":{"cid":["\#(cidHole)"]},"push_message":{"transmission":"{\"type\":\"order.shipped\","#
            + #"\"orderId\":\"SO-20261121-004217\",\"carrier\":\"express\",\"eta\":\"2026-11-24T18:00:00Z\","#
            + #"\"items\":[{\"sku\":\"A-1031\",\"quantity\":2},{\"sku\":\"B-0207\",\"quantity\":1}]}"},"#
            + #""push_channel":{"ios":{"type":"notify","aps":{"alert":{"title":"Your order is on its way","#
            + #""body":"It arrives on Tuesday between 16:00 and 18:00."},"content-available":0,"#
            + #""sound":"default"},"auto_badge":"+1","payload":"{\"orderId\":\"SO-20261121-004217\"}"}}}"#
    }
}
