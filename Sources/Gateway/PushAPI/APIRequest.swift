internal import JSON

/// An HTTP request as the APIs read it; its pointers are valid only during the call that receives it.
package struct APIRequest {
    package enum Method: Sendable { case get, head, post, put, patch, delete, other }

    package var method: Method
    /// The raw path and query, not decoded.
    package var target: UnsafeRawBufferPointer
    package var token: UnsafeRawBufferPointer?
    package var authorization: UnsafeRawBufferPointer?
    /// The header `X-Longwire-Proof`, if present.
    package var proof: UnsafeRawBufferPointer?
    package var body: UnsafeRawBufferPointer
    package var peerIsLoopback: Bool
    /// The peer's address for rate limits; for IPv6 its network, see `SocketAddress.network`.
    package var network: UInt64

    package init(
        method: Method, target: UnsafeRawBufferPointer, token: UnsafeRawBufferPointer? = nil,
        authorization: UnsafeRawBufferPointer? = nil, proof: UnsafeRawBufferPointer? = nil,
        body: UnsafeRawBufferPointer = UnsafeRawBufferPointer(start: nil, count: 0), peerIsLoopback: Bool = false,
        network: UInt64 = 0
    ) {
        (self.method, self.target, self.token, self.authorization) = (method, target, token, authorization)
        (self.proof, self.body, self.peerIsLoopback, self.network) = (proof, body, peerIsLoopback, network)
    }
}

/// The percent-decoded segments of a target's path; empty segments are dropped, because Getui's SDKs send doubled and trailing
/// slashes.
package struct RequestPath {
    private var bytes: [UInt8] = []
    private var ends: [Int] = []
    /// Whether the path has more segments than any route.
    package private(set) var isTooDeep = false

    package init(_ target: UnsafeRawBufferPointer) {
        let path = target[...]
        bytes.reserveCapacity(path.count)
        var place = path.startIndex
        var start = 0
        scan: while place < path.endIndex {
            let byte = path[place]
            switch byte {
            case UInt8(ascii: "?"), UInt8(ascii: "#"): break scan
            case UInt8(ascii: "/"): endSegment(&start)
            case UInt8(ascii: "%"):
                if place + 2 < path.endIndex, let high = hexValue(path[place + 1]), let low = hexValue(path[place + 2])
                {
                    bytes.append(high << 4 | low)
                    place += 2
                } else {
                    bytes.append(byte)
                }
            default: bytes.append(byte)
            }
            place += 1
        }
        endSegment(&start)
    }

    private mutating func endSegment(_ start: inout Int) {
        guard bytes.count > start else { return }
        if ends.count < Limits.pathSegmentCount { ends.append(bytes.count) } else { isTooDeep = true }
        start = bytes.count
    }

    package var count: Int { ends.count }

    package subscript(index: Int) -> ArraySlice<UInt8> { bytes[(index == 0 ? 0 : ends[index - 1])..<ends[index]] }

    /// Whether the path consists of exactly these segments.
    package func isMade(of segments: StaticString...) -> Bool {
        count == segments.count
            && segments.indices.allSatisfy { index in
                self[index].elementsEqual(
                    UnsafeBufferPointer(start: segments[index].utf8Start, count: segments[index].utf8CodeUnitCount))
            }
    }

    package func text(_ index: Int) -> String { String(decoding: self[index], as: UTF8.self) }

    func equals(_ index: Int, _ text: [UInt8], _ range: Range<Int>) -> Bool {
        let start = index == 0 ? 0 : ends[index - 1]
        guard ends[index] - start == range.count else { return false }
        for offset in 0..<range.count where bytes[start + offset] != text[range.lowerBound + offset] { return false }
        return true
    }
}

func hexValue(_ digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
    default: nil
    }
}

package struct APIResponse: Sendable, Equatable {
    package enum ContentType: Sendable {
        /// Getui's SDKs decode by the declared charset, so the charset is always declared.
        case json
        case text
        /// Prometheus's exposition format.
        case metrics

        package var headerValue: String {
            switch self {
            case .json: "application/json;charset=utf-8"
            case .text: "text/plain;charset=utf-8"
            case .metrics: "text/plain;version=0.0.4;charset=utf-8"
            }
        }
    }

    package var status: Int
    package var contentType: ContentType
    package var body: [UInt8]
    package var allow: String?
    /// The value of the header `Retry-After`.
    package var retryAfterSeconds: Int?
    /// Whether the header `WWW-Authenticate: Bearer` is sent.
    package var asksForBearer: Bool

    package init(
        status: Int, contentType: ContentType = .json, body: [UInt8] = [], allow: String? = nil,
        asksForBearer: Bool = false
    ) {
        (self.status, self.contentType, self.body) = (status, contentType, body)
        (self.allow, self.asksForBearer) = (allow, asksForBearer)
    }
}

extension APIResponse {
    static func object(status: Int = 200, _ members: JSONObject) -> APIResponse {
        APIResponse(status: status, body: members.bytes)
    }

    /// Returns Getui's envelope of a successful call; `longwire` is omitted if it is empty.
    static func success(_ data: (any JSONWritable)? = nil, longwire: JSONObject = [:]) -> APIResponse {
        .object(.envelope(.ok, "success") + ["data": data, "longwire": longwire.unlessEmpty])
    }
}
