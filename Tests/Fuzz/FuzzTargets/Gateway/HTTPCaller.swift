internal import Delivery
internal import PushAPI

struct FuzzRequest {
    /// The call's name in the route tables, such as `POST /v2/{appId}/auth`.
    var call: String
    var isAdmin: Bool
    var target: [UInt8]
    /// The whole header line with the credential, or empty.
    var credential: String = ""
    var body: [UInt8] = []
    /// Whether the server may refuse its size or syntax before the API sees it; such a request gets its own connection.
    var isUncouth = false

    /// Whether the request reads every bucket of every loop.
    var isWide: Bool {
        ["GET /v2/{appId}/report/push/", "DELETE /v2/{appId}/task/{", "PUT /v2/{appId}/user/custom_tag/batch/"]
            .contains { call.hasPrefix($0) }
            || ["/user/count", "/push/tag", "/push/all", "/push/fast_custom_tag"].contains { call.hasSuffix($0) }
    }

    var method: Substring { call.prefix { $0 != " " } }

    func append(to bytes: inout [UInt8]) {
        bytes += method.utf8
        bytes.append(UInt8(ascii: " "))
        bytes += target
        bytes += " HTTP/1.1\r\nHost: f\r\n".utf8
        if !credential.isEmpty { bytes += "\(credential)\r\n".utf8 }
        if !body.isEmpty || method == "POST" || method == "PUT" { bytes += "Content-Length: \(body.count)\r\n".utf8 }
        bytes += "\r\n".utf8
        bytes += body
    }
}

struct FuzzAnswer {
    var status: Int
    var isText: Bool
    var body: ArraySlice<UInt8>
    var isLast: Bool
    var byteCount: Int

    /// Parses an answer at the start of `bytes`; `nil` if it is incomplete.
    init?(_ bytes: ArraySlice<UInt8>, isHead: Bool) throws {
        guard bytes.count >= 16 else { return nil }
        let limit = min(bytes.count, 4_096)
        let window = bytes.prefix(limit)
        guard let end = Self.headEnd(window) else {
            try require(bytes.count < 4_096, "a head without an end")
            return nil
        }
        let head = String(decoding: window[..<end], as: UTF8.self)
        let lines = head.split(separator: "\r\n")
        guard let first = lines.first, first.hasPrefix("HTTP/1.1 "), let status = Int(first.dropFirst(9).prefix(3))
        else { throw FuzzFailure(description: "no status line: \(head.prefix(80))") }
        self.status = status
        (isText, isLast) = (false, false)
        var length = 0
        for line in lines.dropFirst() {
            let name = line.prefix { $0 != ":" }.lowercased()
            let value = line.drop { $0 != ":" }.dropFirst().drop { $0 == " " }
            switch name {
            case "content-length": length = Int(value) ?? -1
            case "content-type": isText = value.hasPrefix("text/plain")
            case "connection": isLast = value.lowercased() == "close"
            default: break
            }
        }
        try require(length >= 0, "no length: \(head)")
        let shown = isHead ? 0 : length
        guard bytes.endIndex - end >= shown else { return nil }
        body = bytes[end..<end + shown]
        byteCount = end + shown - bytes.startIndex
    }

    /// Returns the index after the empty line.
    private static func headEnd(_ bytes: ArraySlice<UInt8>) -> Int? {
        var run = 0
        for place in bytes.indices {
            switch bytes[place] {
            case 10: if run == 1 { return place + 1 } else { run = 1 }
            case 13: break
            default: run = 0
            }
        }
        return nil
    }
}

/// A keep-alive connection to one of the HTTP listeners, with its pending requests.
struct HTTPCaller {
    var end: StreamEnd
    /// The time of the last request on this connection.
    var usedAt: GatewayTime = 0
    /// Requests without an answer, oldest first.
    var waiting: [FuzzRequest] = []
    var isOverdue = false
}
