internal import JSON

/// One HTTP request as the APIs need it.
///
/// The pointers are valid during the call that takes it.
package struct APIRequest {
    package enum Method: Sendable { case get, head, post, put, patch, delete, other }

    package var method: Method
    /// Path and query as they came, nothing decoded.
    package var target: UnsafeRawBufferPointer
    /// The header `token`, if there is one.
    package var token: UnsafeRawBufferPointer?
    /// The header `Authorization`, if there is one.
    package var authorization: UnsafeRawBufferPointer?
    /// The header `X-Longwire-Proof`, if there is one.
    package var proof: UnsafeRawBufferPointer?
    package var body: UnsafeRawBufferPointer
    package var peerIsLoopback: Bool
    /// The peer's address as far as limits go: of IPv6 the network, see `SocketAddress.network`.
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

/// A target's path: its segments, percent-decoded, empty ones left out (Getui's SDKs send doubled and trailing slashes).
package struct RequestPath {
    private var bytes: [UInt8] = []
    private var ends: [Int] = []
    /// More segments than any route has.
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

    /// Whether these are its segments, all of them.
    package func isMade(of segments: StaticString...) -> Bool {
        count == segments.count
            && segments.indices.allSatisfy { index in
                self[index].elementsEqual(
                    UnsafeBufferPointer(start: segments[index].utf8Start, count: segments[index].utf8CodeUnitCount))
            }
    }

    package func text(_ index: Int) -> String { String(decoding: self[index], as: UTF8.self) }

    /// True when the segment is just `text[range]`.
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

/// One HTTP answer.
package struct APIResponse: Sendable, Equatable {
    package enum ContentType: Sendable {
        /// Getui's SDKs decode by the declared charset, so it is always declared.
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
    /// The methods a 405 names in its header `Allow`.
    package var allow: String?
    /// What the header `Retry-After` says.
    package var retryAfterSeconds: Int?
    /// True when `WWW-Authenticate: Bearer` belongs in the header.
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

    /// Getui's envelope of a call that was carried out; without members `longwire` is left out.
    static func success(_ data: (any JSONWritable)? = nil, longwire: JSONObject = [:]) -> APIResponse {
        .object(.envelope(.ok, "success") + ["data": data, "longwire": longwire.unlessEmpty])
    }
}
