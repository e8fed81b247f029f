internal import JSON
internal import TextForms

/// The fake's broadcast channels.
///
/// Its rules are independent of the sender's, like those of `FakeValidator`.
struct FakeChannels {
    struct Verdict {
        var status: Int
        var reason = ""
        var channelID: String?
        var body: [UInt8] = []
    }

    private struct Channel {
        var id: String
        var topic: String
        var keepsLast: Bool
        var broadcastCount = 0
        /// The newest broadcast, for the page.
        var last: [UInt8] = []
    }

    /// Apple allows 10,000 per app; the fake allows fewer.
    private static let channelLimit = 1_000

    private var channels: [Channel] = []
    private var madeCount = 0

    /// Handles a channel request whose provider token is valid.
    mutating func handle(_ request: FakeRequest, topic: String, isManaged: Bool, parser: JSONParser) -> Verdict {
        if let id = request.fields["apns-request-id"], !id.isUUID {
            return Verdict(status: 400, reason: "BadMessageId")
        }
        if topic.hasSuffix(".voip") || topic.hasSuffix(".push-type.liveactivity") || topic.isEmpty {
            return Verdict(status: 400, reason: "TopicDisallowed")
        }
        guard isManaged else { return broadcast(request, topic, parser) }
        if request.path.hasSuffix("/all-channels") {
            guard request.method == "GET" else { return Verdict(status: 405, reason: "MethodNotAllowed") }
            return Verdict(status: 200, body: list(topic))
        }
        if request.method == "POST" { return make(request, topic, parser) }
        guard request.method == "GET" || request.method == "DELETE" else {
            return Verdict(status: 405, reason: "MethodNotAllowed")
        }
        let place: Int
        switch find(request, topic) {
        case .success(let found): place = found
        case .failure(let refusal): return refusal.verdict
        }
        guard request.method == "GET" else {
            channels.remove(at: place)
            return Verdict(status: 204)
        }
        let policy = channels[place].keepsLast ? 1 : 0
        return Verdict(
            status: 200, body: Array("{\"message-storage-policy\":\(policy),\"push-type\":\"LiveActivity\"}".utf8))
    }

    private struct Refusal: Error {
        var verdict: Verdict
        init(_ reason: String) { verdict = Verdict(status: 400, reason: reason) }
    }

    private func find(_ request: FakeRequest, _ topic: String) -> Result<Int, Refusal> {
        guard let id = request.fields["apns-channel-id"] else { return .failure(Refusal("MissingChannelId")) }
        guard !id.isEmpty, Base64.decode(id.utf8, .standard) != nil else { return .failure(Refusal("BadChannelId")) }
        guard let place = channels.firstIndex(where: { $0.id == id && $0.topic == topic }) else {
            return .failure(Refusal("ChannelNotRegistered"))
        }
        return .success(place)
    }

    private mutating func make(_ request: FakeRequest, _ topic: String, _ parser: JSONParser) -> Verdict {
        var wanted: (policy: Int64?, type: String?) = (nil, nil)
        var reason = ""
        request.body.withUnsafeBytes { bytes in
            guard let value = try? parser.parse(bytes), value.kind == .object else {
                reason = "BadRequestPayload"
                return
            }
            for (key, member) in value.members {
                switch key.string ?? "" {
                case "message-storage-policy": wanted.policy = member.integer
                case "push-type": wanted.type = member.string
                default: reason = "BadRequestParams"
                }
            }
        }
        if !reason.isEmpty { return Verdict(status: 400, reason: reason) }
        guard let type = wanted.type else { return Verdict(status: 400, reason: "MissingPushType") }
        guard type == "LiveActivity" else { return Verdict(status: 400, reason: "InvalidPushType") }
        guard let policy = wanted.policy, policy == 0 || policy == 1 else {
            return Verdict(status: 400, reason: "BadRequestParams")
        }
        guard channels.count(where: { $0.topic == topic }) < Self.channelLimit else {
            return Verdict(status: 400, reason: "CannotCreateChannelConfig")
        }
        madeCount += 1
        // The id contains base64 characters that must be escaped in a query.
        let id = Base64.encode([0xFB, 0xEF, 0xFF] + Array("\(topic) \(madeCount)".utf8), .standard)
        channels.append(Channel(id: id, topic: topic, keepsLast: policy == 1))
        return Verdict(status: 201, channelID: id)
    }

    private func list(_ topic: String) -> [UInt8] {
        (["channels": channels.filter { $0.topic == topic }.map(\.id)] as JSONObject).bytes
    }

    private mutating func broadcast(_ request: FakeRequest, _ topic: String, _ parser: JSONParser) -> Verdict {
        guard request.method == "POST" else { return Verdict(status: 405, reason: "MethodNotAllowed") }
        let place: Int
        switch find(request, topic) {
        case .success(let found): place = found
        case .failure(let refusal): return refusal.verdict
        }
        guard let type = request.fields["apns-push-type"] else {
            return Verdict(status: 400, reason: "MissingPushType")
        }
        guard type.lowercased() == "liveactivity" else { return Verdict(status: 400, reason: "InvalidPushType") }
        guard let expiration = request.fields["apns-expiration"].flatMap({ Int64($0) }), expiration >= 0,
            expiration == 0 || channels[place].keepsLast
        else { return Verdict(status: 400, reason: "BadExpirationDate") }
        guard ["1", "5", "10"].contains(request.fields["apns-priority"] ?? "") else {
            return Verdict(status: 400, reason: "BadPriority")
        }
        if request.body.isEmpty { return Verdict(status: 400, reason: "PayloadEmpty") }
        if request.body.count > 5_120 { return Verdict(status: 413, reason: "PayloadTooLarge") }
        let isObject = request.body.withUnsafeBytes { (try? parser.parse($0))?.kind == .object }
        guard isObject else { return Verdict(status: 400, reason: "BadRequestPayload") }
        channels[place].broadcastCount += 1
        channels[place].last = request.body
        return Verdict(status: 200)
    }

    func page() -> [UInt8] {
        let all = channels.reversed().map { channel -> JSONObject in
            [
                "id": channel.id, "topic": channel.topic, "storage": channel.keepsLast ? "last" : "none",
                "broadcasts": channel.broadcastCount,
                "last": channel.last.isEmpty ? nil : JSONText(channel.last),
            ]
        }
        return (["channels": all] as JSONObject).bytes
    }
}
