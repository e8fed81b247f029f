internal import HTTP2

final class FakeConnection: HTTP2Connection {
    unowned let fake: FakeAPNs
    let number: Int
    /// Whether the sender connected to the address of channel management.
    let isManaged: Bool
    var requestCount = 0
    /// The highest stream id that is handled; a GOAWAY lowers it.
    private(set) var lastTaken = Int32.max
    private var refusal: [UInt8]?

    init(_ fake: FakeAPNs, number: Int, isManaged: Bool) {
        (self.fake, self.number, self.isManaged) = (fake, number, isManaged)
        super.init()
    }

    override func opened() -> HTTP2Stream? { FakeExchange(on: self) }

    override func ended(_ reason: String) { fake.ended(self) }

    /// Sends a GOAWAY with a reason in JSON, as Apple does.
    func sayGoodbye(lastStream: Int32?) {
        if let lastStream { lastTaken = min(lastTaken, lastStream) }
        session?.goAway(lastStream: lastStream, debug: Array("{\"reason\":\"Shutdown\"}".utf8))
    }

    /// Sends a GOAWAY instead of SETTINGS after the TLS handshake.
    func refuse(_ reason: String) {
        let debug = Array("{\"reason\":\"\(reason)\"}".utf8)
        let head: [UInt8] = [0, 0, UInt8(8 + debug.count), 7, 0, 0, 0, 0, 0]
        sendInPlaceOfSettings(head + [0, 0, 0, 0, 0, 0, 0, 0] + debug)
    }
}

final class FakeExchange: HTTP2Stream {
    /// The connection, or `nil` if the sender disconnected before a delayed answer.
    private(set) weak var connection: FakeConnection?
    private(set) var request = FakeRequest()
    private var isAnswered = false

    init(on connection: FakeConnection) {
        self.connection = connection
        super.init()
    }

    override func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        let (name, value) = (String(decoding: name, as: UTF8.self), String(decoding: value, as: UTF8.self))
        switch name {
        case ":method": request.method = value
        case ":path": request.path = value
        default:
            if request.fields[name] != nil, name.hasPrefix("apns-") { request.hasRepeatedField = true }
            request.fields[name] = value
        }
    }

    override func received(body bytes: UnsafeBufferPointer<UInt8>) {
        // A body of this size exceeds Apple's limits already, so further bytes are dropped.
        if request.body.count <= 16 << 10 { request.body += bytes }
    }

    override func receivedEnd() {
        guard let connection, id <= connection.lastTaken else { return }
        connection.fake.handle(self, connection)
    }

    func answer(_ verdict: FakeChannels.Verdict, requestID: String) {
        guard !isAnswered else { return }
        isAnswered = true
        var headers = HTTP2Headers()
        headers.add(":status", "\(verdict.status)")
        if let connection { headers.add("date", connection.fake.date) }
        headers.add("apns-request-id", requestID)
        if let id = verdict.channelID { headers.add("apns-channel-id", id) }
        if verdict.status == 200, request.method == "POST" { headers.add("apns-unique-id", requestID) }
        body = verdict.reason.isEmpty ? verdict.body : Array("{\"reason\":\"\(verdict.reason)\"}".utf8)
        if !body.isEmpty { headers.add("content-type", "application/json") }
        connection?.session?.respond(headers, self)
    }

    /// Answers as Apple does: with the request's id, and a reason in a JSON body.
    func answer(_ status: Int, reason: String = "", timestamp: Int64 = 0, retryAfter: Int64? = nil) {
        guard !isAnswered else { return }
        isAnswered = true
        var headers = HTTP2Headers()
        headers.add(":status", "\(status)")
        if let connection { headers.add("date", connection.fake.date) }
        if let id = request.fields["apns-id"] { headers.add("apns-id", id) }
        if let retryAfter { headers.add("retry-after", "\(retryAfter)") }
        if status != 200 {
            headers.add("content-type", "application/json")
            let time = timestamp > 0 ? ",\"timestamp\":\(timestamp)" : ""
            body = Array("{\"reason\":\"\(reason)\"\(time)}".utf8)
        }
        connection?.session?.respond(headers, self)
    }
}
