internal import Cryptography
internal import JSON

/// Push Kit of HarmonyOS 5 and later, with a JWT of a service account.
///
/// Sources: https://developer.huawei.com/consumer/cn/doc/harmonyos-references/push-scenariozed-api-request-struct,
/// …/push-scenariozed-api-request-param, and https://developer.huawei.com/consumer/cn/doc/harmonyos-guides/push-jwt-token.
struct Harmony: VendorAPI {
    let vendor = Vendor.harmony
    let projectID: String
    let keyID: String
    let subAccount: String
    let key: RSASigningKey
    let base: ServiceAddress

    private static let audience = "https://oauth-login.cloud.huawei.com/oauth2/v3/token"
    /// Huawei refuses tokens that live longer than a day.
    private static let lifetime: Int64 = 3_600

    func signToken(scope: String, now: Int64) -> AccessToken? {
        let text = JSONWebToken.text(
            header: ["kid": .string(keyID), "typ": "JWT", "alg": "PS256"],
            claims: [
                "aud": .string(Self.audience), "iss": .string(subAccount), "iat": .integer(now),
                "exp": .integer(now + Self.lifetime),
            ], sign: { key.sign($0, .ps256) })
        return text.map {
            AccessToken(text: $0, renewsAt: now + Self.lifetime - 600, expiresAt: now + Self.lifetime)
        }
    }

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        let bearer = try checks.bearer(bearer)
        try checks.token(message.token)
        let (type, payload) = try rendered(message, checks)
        var body: JSONTree = [
            "payload": payload, "target": ["token": [.string(message.token)]],
            "pushOptions": [
                "ttl": .integer(checks.secondsToLive(message)), "biTag": .string(message.messageID),
            ],
        ]
        try checks.apply(
            message.content.options, to: &body,
            protected: [["target"], ["pushOptions", "biTag"], ["pushOptions", "receiptId"]])
        let bytes = body.bytes
        try checks.byteCount(bytes.count - message.token.utf8.count, of: "the request without the token")
        return send(bytes, bearer, type: type)
    }

    /// Returns the value of `push-type` and the payload.
    private func rendered(
        _ message: VendorMessage, _ checks: MessageChecks
    ) throws(VendorRefusal) -> (Int, JSONTree) {
        switch message.content.kind {
        case .notification(let notice): return (0, ["notification": try rendered(notice, message, checks)])
        // A background message; the app receives the text when it runs.
        case .transmission(let text): return (6, ["extraData": .string(message.appData(text).text)])
        case .custom(let type, let data):
            switch type {
            case "subscribe": return (0, data)
            case "form_update": return (1, data)
            case "background": return (6, data)
            case "live_view": return (7, data)
            case "voip_call": return (10, data)
            default:
                throw checks.refusal(
                    "BadContent", "custom.type must be subscribe, form_update, background, live_view or voip_call")
            }
        }
    }

    private func rendered(
        _ notice: PushContent.Notice, _ message: VendorMessage, _ checks: MessageChecks
    ) throws(VendorRefusal) -> JSONTree {
        var data = message.appData(notice.payload)
        var click: JSONTree = ["actionType": 0]
        switch notice.click {
        case .url(let url):
            try checks.url(url)
            click = ["actionType": 1, "uri": .string(url)]
        case .intent(let text):
            let want = JSONTree.parsing(Array(text.utf8), byteLimit: PushContent.textByteCount) { value in
                value.kind == .object ? JSONTree(value) : nil
            }
            if let want {
                click = ["actionType": 1, "action": want["action"], "uri": want["uri"]]
                if case .object(let members)? = want["parameters"] {
                    for member in members { data.set(member.name, member.value) }
                }
                // Set last, because the publisher's parameters must not replace the message id.
                data.set(VendorMessage.reportKey, .string(message.reportID))
            } else {
                click =
                    text.contains("://")
                    ? ["actionType": 1, "uri": .string(text)] : ["actionType": 1, "action": .string(text)]
            }
        case .startApp, .payload, .none: break
        }
        click.set("data", data)
        return [
            // The category is required; Huawei handles messages of apps without other rights as marketing anyway.
            "category": .string((notice.category ?? "MARKETING").uppercased()),
            "title": .string(notice.title), "body": .string(notice.body), "clickAction": click,
            "notifyId": message.replacementID(notice).map { .integer($0) },
            "slotType": notice.slotType.map { .integer($0) },
            "appMessageId": .string(message.messageID), "image": notice.bigImage.map { .string($0) },
            "badge": notice.badgeIncrement.map { ["addNum": .integer($0)] }, "foregroundShow": true,
        ]
    }

    private func send(_ body: [UInt8], _ bearer: String, type: Int) -> VendorRequest {
        VendorRequest(
            url: "\(base.text)/v3/\(projectID)/messages:send",
            headers: [.json, .bearer(bearer), .init("push-type", String(type))], body: body)
    }

    func testRequest(bearer: String?, now: Int64) -> VendorRequest? {
        let notice: JSONTree = [
            "category": "MARKETING", "title": "test", "body": "test", "clickAction": ["actionType": 0],
        ]
        let body: JSONTree = [
            "payload": ["notification": notice], "target": ["token": ["longwire-doctor"]],
            "pushOptions": ["testMessage": true],
        ]
        return bearer.map { send(body.bytes, $0, type: 0) }
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        HuaweiCodes.outcome(of: reply, vendor: vendor, token: token, now: now)
    }
}
