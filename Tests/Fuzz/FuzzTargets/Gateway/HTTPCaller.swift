internal import Delivery
internal import PushAPI

/// One request of the grammar.
struct FuzzRequest {
    /// As the route tables name it, `POST /v2/{appId}/auth`.
    var call: String
    var isAdmin: Bool
    var target: [UInt8]
    /// The header that says who asks, whole, or empty.
    var credential: String = ""
    var body: [UInt8] = []
    /// Its size or its shape may be refused before the API sees it; it gets a connection of its own.
    var isUncouth = false

    /// Asks each bucket of each loop.
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

/// An answer as it came off the connection.
struct FuzzAnswer {
    var status: Int
    var isText: Bool
    var body: ArraySlice<UInt8>
    var isLast: Bool
    var byteCount: Int

    /// Reads an answer from the front of `bytes`; `nil` when it is not all there.
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

    /// Behind the empty line.
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

/// A keep-alive connection to one of the HTTP doors, and the requests on it that wait for an answer.
struct HTTPCaller {
    var end: StreamEnd
    /// When a request was last written to it.
    var usedAt: GatewayTime = 0
    /// Requests that were written and not answered, oldest first.
    var waiting: [FuzzRequest] = []
    var isOverdue = false
}
