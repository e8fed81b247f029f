internal import HTTP2

/// One connection of a sender to the fake.
final class FakeConnection: HTTP2Connection {
    unowned let fake: FakeAPNs
    let number: Int
    /// It came to the address where channels are managed.
    let isManaged: Bool
    var requestCount = 0
    /// Requests above it were refused by a goodbye: nothing is done for them.
    private(set) var lastTaken = Int32.max
    private var refusal: [UInt8]?

    init(_ fake: FakeAPNs, number: Int, isManaged: Bool) {
        (self.fake, self.number, self.isManaged) = (fake, number, isManaged)
        super.init()
    }

    override func opened() -> HTTP2Stream? { FakeExchange(on: self) }

    override func ended(_ reason: String) { fake.ended(self) }

    /// Apple's goodbye: frames with a reason in JSON.
    func sayGoodbye(lastStream: Int32?) {
        if let lastStream { lastTaken = min(lastTaken, lastStream) }
        session?.goAway(lastStream: lastStream, debug: Array("{\"reason\":\"Shutdown\"}".utf8))
    }

    /// Says goodbye in place of the settings, as soon as TLS is there.
    func refuse(_ reason: String) {
        let debug = Array("{\"reason\":\"\(reason)\"}".utf8)
        let head: [UInt8] = [0, 0, UInt8(8 + debug.count), 7, 0, 0, 0, 0, 0]
        sendInPlaceOfSettings(head + [0, 0, 0, 0, 0, 0, 0, 0] + debug)
    }
}

/// One request to the fake.
final class FakeExchange: HTTP2Stream {
    /// Gone when the sender left before a delayed answer.
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
        // A little over Apple's own bound, so that the answer can say what is too large.
        if request.body.count <= 16 << 10 { request.body += bytes }
    }

    override func receivedEnd() {
        guard let connection, id <= connection.lastTaken else { return }
        connection.fake.handle(self, connection)
    }

    /// Answers a request about channels.
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

    /// Answers as Apple does: the request's id, and the reason in a JSON body.
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
