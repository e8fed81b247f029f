internal import JSON

/// Honor's push service.
///
/// Sources: https://developer.honor.com/cn/docs/11002/reference/downlink-message (address and fields, as public clients use
/// them).
struct Honor: VendorAPI {
    let vendor = Vendor.honor
    let appID: String
    let clientID: String
    let clientSecret: String
    let base: ServiceAddress
    let tokenURL: ServiceAddress

    func tokenRequest(now: Int64) -> VendorRequest? {
        OAuth.request(tokenURL, clientID: clientID, clientSecret: clientSecret)
    }

    func readToken(_ reply: VendorReply, now: Int64) -> Result<AccessToken, VendorFault> {
        OAuth.token(
            reply, now: now, advice: "Honor refuses the client id or client secret: copy both from its console")
    }

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        let bearer = try checks.bearer(bearer)
        try checks.token(message.token)
        var body = try rendered(message, checks)
        try checks.apply(message.content.options, to: &body, protected: [["token"], ["android", "biTag"]])
        let bytes = body.bytes
        try checks.byteCount(bytes.count - message.token.utf8.count, of: "the request without the token")
        return VendorRequest(
            url: "\(base.text)/api/v1/\(appID)/sendMessage",
            headers: [.json, .bearer(bearer), .init("timestamp", String(now * 1_000))], body: bytes)
    }

    private func rendered(_ message: VendorMessage, _ checks: MessageChecks) throws(VendorRefusal) -> JSONTree {
        var android: JSONTree = [
            "ttl": "\(checks.secondsToLive(message))s", "biTag": .string(message.messageID),
        ]
        let data: String
        switch message.content.kind {
        case .transmission(let text): data = message.appData(text).text
        case .notification(let notice):
            data = message.appData(notice.payload).text
            android.set("notification", try rendered(notice, message, checks))
        case .custom: throw checks.refusal("BadContent", "custom messages exist only for harmony")
        }
        return ["token": [.string(message.token)], "data": .string(data), "android": android]
    }

    private func rendered(
        _ notice: PushContent.Notice, _ message: VendorMessage, _ checks: MessageChecks
    ) throws(VendorRefusal) -> JSONTree {
        [
            "title": .string(notice.title), "body": .string(notice.body),
            "clickAction": try HuaweiClick.rendered(notice.click, checks),
            "channelId": notice.channelID.map { .string($0) }, "notifyId": notice.notifyID.map { .integer($0) },
            "tag": message.publisherCollapseID.map { .string($0) }, "image": notice.bigImage.map { .string($0) },
            "style": notice.bigText == nil ? nil : 1,
            "bigTitle": notice.bigText == nil ? nil : .string(notice.title),
            "bigBody": notice.bigText.map { .string($0) },
            "badge": notice.badgeIncrement.map { ["addNum": .integer($0)] },
        ]
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        if reply.status == 503 { return HuaweiCodes.flowControl(reply, now: now) }
        return ReplyReading.outcome(reply, vendor: vendor, now: now) { value in
            guard let code = value["code"]?.lenientText else { return nil }
            let data = value["data"]
            func names(_ list: StaticString) -> Bool {
                data?[list]?.elements.contains { $0.string == token } ?? false
            }
            switch code {
            case "200", "80000000":
                if names("expireTokens") { return .badToken(reason: "ExpiredToken") }
                if names("failTokens") { return .rejected(reason: "FailedToken") }
                guard data?["sendResult"]?.lenientBool ?? true else { return .unknown(reason: "SendResultFalse") }
                return .accepted(vendorID: PeerText.bounded(data?["requestId"]?.lenientText ?? ""))
            case "401": return .renewToken(reason: "401")
            case "403":
                return .credentialRefused(reason: "403", advice: "enable push for this app id in Honor's console")
            case "429": return .tooFast(afterSeconds: ReplyReading.rateLimitSeconds, reason: "429")
            default:
                let message = value["message"]?.string ?? ""
                return HuaweiCodes.outcome(code, message: message, token: token)
                    ?? ReplyReading.outcomeOfUnknownCode(code, reply, vendor: vendor, now: now)
            }
        }
    }
}
