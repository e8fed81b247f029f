/// A `push/all` request with fixed-width fields for its request id and send time.
struct BroadcastRequest {
    private(set) var bytes: [UInt8]
    private let requestOffset: Int
    private let markOffset: Int

    /// `payloadByteCount` is the payload's size; the minimum is the size of the mark and its JSON.
    init(_ credentials: Credentials, token: String, payloadByteCount: Int) {
        let opening = "{\"request_id\":\""
        let hole = String(repeating: "0", count: 16)
        // The payload is {"id":"mark","text":"…"}. Its quotes are escaped inside the body's string.
        let frame = 34
        let filling = String(repeating: "x", count: max(0, payloadByteCount - frame))
        let middle = "\",\"audience\":\"all\",\"push_message\":{\"transmission\":\"{\\\"id\\\":\\\""
        let body = opening + hole + hole + middle + hole + "\\\",\\\"text\\\":\\\"" + filling + "\\\"}\"}}"
        let head =
            "POST /v2/\(credentials.appID)/push/all HTTP/1.1\r\nHost: \(credentials.http.text)\r\n"
            + "token: \(token)\r\nContent-Type: application/json;charset=utf-8\r\n"
            + "Content-Length: \(body.utf8.count)\r\n\r\n"
        bytes = Array((head + body).utf8)
        requestOffset = head.utf8.count + opening.utf8.count
        markOffset = requestOffset + 32 + middle.utf8.count
    }

    /// Sets the fields; `run` and `mark` together form the request id.
    mutating func fill(run: UInt64, mark: UInt64) {
        bytes.withUnsafeMutableBytes { bytes in
            Hex.write(run, digits: 16, at: bytes.baseAddress! + requestOffset)
            Hex.write(mark, digits: 16, at: bytes.baseAddress! + requestOffset + 16)
            Hex.write(mark, digits: 16, at: bytes.baseAddress! + markOffset)
        }
    }
}

/// The deliveries of one broadcast, to the devices of one worker or of all.
struct BroadcastRound: Equatable, Sendable {
    /// The send time on the monotonic clock, also the payload's mark.
    var sentAt: Int64
    var deliveries = 0
    var lastAt: Int64 = 0

    var nanoseconds: Int64 { max(1, lastAt - sentAt) }

    static func merge(_ rounds: inout [BroadcastRound], _ others: [BroadcastRound]) {
        for other in others {
            if let index = rounds.firstIndex(where: { $0.sentAt == other.sentAt }) {
                rounds[index].deliveries += other.deliveries
                rounds[index].lastAt = max(rounds[index].lastAt, other.lastAt)
            } else {
                rounds.append(other)
            }
        }
    }
}
