internal import Cryptography
internal import JSON

/// vivo's push service.
///
/// Sources: https://dev.vivo.com.cn/documentCenter/doc/362 (fields), and copies of vivo's API document 2.9.2:
/// https://www.yimenapp.com/kb-yimen/12123/ (token of a day, 10070, callback lengths), http://www.qro.cn/post/302611.html
/// (lengths).
struct Vivo: VendorAPI {
    let vendor = Vendor.vivo
    let appID: Int64
    let appKey: String
    let appSecret: String
    let callbackURL: String?
    let base: ServiceAddress

    /// The categories of system messages; all others are operation messages, which vivo delivers only by day.
    private static let systemCategories: Set<String> = [
        "IM", "ACCOUNT", "TODO", "DEVICE_REMINDER", "ORDER", "SUBSCRIPTION",
    ]

    func tokenRequest(now: Int64) -> VendorRequest? {
        let timestamp = now * 1_000
        let sign = MD5.hex(Array("\(appID)\(appKey)\(timestamp)\(appSecret)".utf8))
        let body: JSONTree = [
            "appId": .integer(appID), "appKey": .string(appKey), "timestamp": .integer(timestamp),
            "sign": .string(sign),
        ]
        return VendorRequest(url: "\(base.text)/message/auth", headers: [.json], body: body.bytes)
    }

    func readToken(_ reply: VendorReply, now: Int64) -> Result<AccessToken, VendorFault> {
        // The documentation advises to renew every one or two hours; several tokens are valid at the same time.
        DailyToken.read(
            reply, vendor: vendor, renewsAfter: 2 * 3_600, now: now, token: { $0["authToken"]?.string },
            code: { $0["result"]?.lenientText }, outcome: { Self.outcome($0, now: now) },
            advice: "vivo refuses the app id, app key or app secret, or this machine's clock is wrong")
    }

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        let bearer = try checks.bearer(bearer)
        try checks.token(message.token)
        guard case .notification(let notice) = message.content.kind else {
            throw checks.refusal("NoPassthrough", "vivo delivers only notifications: send a notification")
        }
        var body = try rendered(notice, message, checks)
        try checks.apply(
            message.content.options, to: &body,
            protected: [["appId"], ["regId"], ["alias"], ["requestId"], ["extra", "callback.param"]])
        let bytes = body.bytes
        try checks.byteCount(bytes.count, of: "the request")
        return VendorRequest(
            url: "\(base.text)/message/send", headers: [.json, .init("authToken", bearer)], body: bytes)
    }

    private func rendered(
        _ notice: PushContent.Notice, _ message: VendorMessage, _ checks: MessageChecks
    ) throws(VendorRefusal) -> JSONTree {
        try checks.titles(notice)
        if let payload = notice.payload { try checks.byteCount(payload.utf8.count, of: "payload", limit: 1_024) }
        var skipType: Int64 = 1
        var skipContent: JSONTree?
        switch notice.click {
        case .startApp, .payload, .none: break
        case .url(let url):
            try checks.url(url, limit: 1_000)
            (skipType, skipContent) = (2, .string(url))
        case .intent(let text):
            try checks.length(text, field: "intent", limit: 1_024, reason: "IntentTooLong")
            (skipType, skipContent) = (4, .string(text))
        }
        let category = notice.category?.uppercased()
        let callback: JSONTree? = callbackURL.map {
            ["callback": .string($0), "callback.param": .string(message.messageID)]
        }
        return [
            "appId": .integer(appID), "regId": .string(message.token), "notifyType": 4,
            "title": .string(notice.title), "content": .string(notice.body),
            "timeToLive": .integer(checks.secondsToLive(message)), "skipType": .integer(skipType),
            "skipContent": skipContent, "networkType": -1,
            "classification": category.map { Self.systemCategories.contains($0) ? 1 : 0 },
            "category": category.map { .string($0) }, "clientCustomMap": message.appData(notice.payload),
            "extra": callback, "requestId": .string(message.messageID), "pushMode": 0,
            "notifyId": message.replacementID(notice).map { .integer($0) },
            // The shortest lifetime is a minute, so a message that must not be stored goes to online devices only.
            "sendOnline": message.isStored ? nil : true,
        ]
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        ReplyReading.outcome(reply, vendor: vendor, now: now) { value in
            guard let code = value["result"]?.lenientText else { return nil }
            if let status = value["invalidUser"]?["status"]?.lenientInteger {
                let reason = PeerText.reason(code, "invalidUser\(status)")
                switch status {
                case 1, 2: return .badToken(reason: reason)
                // The device is no test device, but the message is a test.
                case 4: return .rejected(reason: reason)
                default: break
                }
            }
            if code == "0" { return .accepted(vendorID: PeerText.bounded(value["taskId"]?.lenientText ?? "")) }
            return Self.outcome(code, now: now)
                ?? ReplyReading.outcomeOfUnknownCode(code, reply, vendor: vendor, now: now)
        }
    }

    private static func outcome(_ code: String, now: Int64) -> VendorOutcome? {
        let reason = PeerText.reason(code)
        switch code {
        case "10000": return .renewToken(reason: reason)
        // Vivo lowers the quota of apps that continue to send.
        case "10070", "10073": return .quotaUsedUp(until: Vendor.nextBeijingMidnight(after: now), reason: reason)
        // Operation messages are accepted from 7:00 to 23:00 of Beijing only.
        case "10071": return .postponed(until: Vendor.nextBeijingHour(7, after: now), reason: reason)
        case "10072", "10252": return .tooFast(afterSeconds: 5, reason: reason)
        case "10094":
            return .credentialRefused(reason: reason, advice: "the app id does not belong to the app key")
        case "10200", "10201", "10202", "10203", "10204", "10205", "10206", "10207":
            return .credentialRefused(
                reason: reason, advice: "copy app id, app key and app secret from vivo's console; check the clock")
        case "10043", "10045", "10096", "10097": return .rejected(reason: reason)
        case "10302": return .badToken(reason: reason)
        // From memory of vivo's document; not confirmed.
        case "10040", "10102": return .retry(afterSeconds: nil, reason: reason)
        case "10050", "10054", "10055", "10056", "10057", "10058", "10066", "10067", "10101", "10103", "10104":
            return .rejected(reason: reason)
        default: return nil
        }
    }
}
