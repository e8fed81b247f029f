/// Huawei Push Kit for EMUI and HarmonyOS up to version 4, with OAuth 2.
///
/// Sources: https://developer.huawei.com/consumer/cn/doc/HMSCore-References/https-send-api-0000001050986197 and
/// https://developer.huawei.com/consumer/cn/doc/HMSCore-Guides/oauth2-0000001212610981.
struct HMS: VendorAPI {
    let vendor = Vendor.hms
    let appID: String
    let appSecret: String
    /// The id of a receipt address in AppGallery Connect, if the app has several.
    let receiptID: String?
    let base: ServiceAddress
    let tokenURL: ServiceAddress

    func tokenRequest(now: Int64) -> VendorRequest? {
        OAuth.request(tokenURL, clientID: appID, clientSecret: appSecret)
    }

    func readToken(_ reply: VendorReply, now: Int64) -> Result<AccessToken, VendorFault> {
        OAuth.token(
            reply, now: now, advice: "Huawei refuses the app id or app secret: copy both from AppGallery Connect")
    }

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        let bearer = try checks.bearer(bearer)
        try checks.token(message.token)
        var body: JSONTree = ["validate_only": false, "message": try rendered(message, checks)]
        try checks.apply(
            message.content.options, to: &body,
            protected: [
                ["message", "token"], ["message", "topic"], ["message", "condition"], ["validate_only"],
                // Receipts are attributed by these members, so options must not change them.
                ["message", "android", "bi_tag"], ["message", "android", "receipt_id"],
            ])
        let bytes = body.bytes
        try checks.byteCount(bytes.count - message.token.utf8.count, of: "the request without the token")
        return send(bytes, bearer)
    }

    private func rendered(_ message: VendorMessage, _ checks: MessageChecks) throws(VendorRefusal) -> JSONTree {
        var android: JSONTree = [
            "urgency": "HIGH", "ttl": "\(checks.secondsToLive(message))s", "bi_tag": .string(message.messageID),
            "receipt_id": receiptID.map { .string($0) },
        ]
        let data: String
        switch message.content.kind {
        case .transmission(let text):
            data = message.appData(text).text
            // A data message with HIGH needs a special permission of Huawei.
            android.set("urgency", "NORMAL")
        case .notification(let notice):
            data = message.appData(notice.payload).text
            if let category = notice.category { android.set("category", .string(category.uppercased())) }
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
            "click_action": try HuaweiClick.rendered(notice.click, checks),
            "channel_id": notice.channelID.map { .string($0) }, "notify_id": notice.notifyID.map { .integer($0) },
            "tag": message.publisherCollapseID.map { .string($0) }, "image": notice.bigImage.map { .string($0) },
            "style": notice.bigText == nil ? nil : 1,
            "big_title": notice.bigText == nil ? nil : .string(notice.title),
            "big_body": notice.bigText.map { .string($0) },
            "badge": notice.badgeIncrement.map { ["add_num": .integer($0)] }, "foreground_show": true,
        ]
    }

    private func send(_ body: [UInt8], _ bearer: String) -> VendorRequest {
        VendorRequest(
            url: "\(base.text)/v1/\(appID)/messages:send", headers: [.json, .bearer(bearer)], body: body)
    }

    func testRequest(bearer: String?, now: Int64) -> VendorRequest? {
        let body: JSONTree = ["validate_only": true, "message": ["token": ["longwire-doctor"], "data": "test"]]
        return bearer.map { send(body.bytes, $0) }
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        HuaweiCodes.outcome(of: reply, vendor: vendor, token: token, now: now)
    }
}
