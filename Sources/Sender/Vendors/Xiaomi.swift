internal import JSON

/// Xiaomi's MiPush, version 3 of the API.
///
/// Sources: https://dev.mi.com/xiaomihyperos/documentation/detail?pId=1559 (addresses, fields) and
/// https://dev.mi.com/xiaomihyperos/documentation/detail?pId=1560 (codes).
struct Xiaomi: VendorAPI {
    let vendor = Vendor.xiaomi
    let appSecret: String
    let packageName: String
    /// The notification channel of messages that name none.
    let channelID: String?
    let callbackURL: String?
    let base: ServiceAddress

    private static let protected: Set<String> = [
        "registration_id", "restricted_package_name", "alias", "user_account", "topic", "extra.callback",
        "extra.callback.param", "extra.callback.type",
    ]
    /// Xiaomi's documented extras, which do not count against the limit of the publisher's own extras.
    private static let ownExtras: Set<String> = [
        "extra.channel_id", "extra.notify_effect", "extra.intent_uri", "extra.web_uri", "extra.notify_foreground",
        "extra.callback", "extra.callback.param", "extra.callback.type", "extra.jobkey", "extra.only_send_once",
        "extra.sound_uri", "extra.ticker", "extra.flow_control", "extra.notification_style_type",
        "extra.notification_bigPic_uri", "extra.notification_large_icon_uri",
    ]

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        try checks.token(message.token)
        try checks.packageName(message.packageName)
        // For another package, Xiaomi would refuse the app secret.
        guard message.packageName.isEmpty || message.packageName == packageName else {
            throw checks.refusal("BadPackageName", "the token's topic is not the credential's packageName")
        }
        var form = FormBody([
            "registration_id": message.token,
            "restricted_package_name": packageName,
            "time_to_live": String(checks.secondsToLive(message) * 1_000),
            // 1 sends the message to online devices only.
            "extra.only_send_once": message.isStored ? nil : "1", "extra.callback": callbackURL,
            "extra.callback.param": callbackURL.map { _ in message.messageID },
            // 1 delivered, 2 clicked, 16 invalid target.
            "extra.callback.type": callbackURL.map { _ in "19" },
        ])
        let payload: String
        switch message.content.kind {
        case .transmission(let text):
            payload = message.appData(text).text
            form.set("pass_through", "1")
        case .notification(let notice):
            payload = message.appData(notice.payload).text
            form.set("pass_through", "0")
            try set(notice, message, in: &form, checks)
        case .custom: throw checks.refusal("BadContent", "custom messages exist only for harmony")
        }
        try checks.byteCount(payload.utf8.count, of: "payload")
        // The documentation demands a payload that is URL-encoded once more than the form.
        form.set("payload", FormBody.encoded(payload))
        try checks.apply(message.content.options, to: &form, protected: Self.protected)
        try checkExtras(form, checks)
        return VendorRequest(
            url: "\(base.text)/v3/message/regid", headers: [.form, .init("Authorization", "key=" + appSecret)],
            body: form.bytes)
    }

    private func set(
        _ notice: PushContent.Notice, _ message: VendorMessage, in form: inout FormBody, _ checks: MessageChecks
    ) throws(VendorRefusal) {
        try checks.titles(notice)
        form.set("title", notice.title)
        form.set("description", notice.body)
        form.set("notify_type", "-1")
        // Notifications with equal ids replace each other, and the default id is the same for all.
        form.set("notify_id", String(notice.notifyID ?? message.notificationNumber))
        if let channel = notice.channelID ?? channelID { form.set("extra.channel_id", channel) }
        if let image = notice.bigImage {
            form.set("extra.notification_style_type", "2")
            form.set("extra.notification_bigPic_uri", image)
        } else if notice.bigText != nil {
            form.set("extra.notification_style_type", "1")
        }
        switch notice.click {
        case .startApp: form.set("extra.notify_effect", "1")
        case .intent(let intent):
            try checks.byteCount(intent.utf8.count, of: "intent", limit: 1_024)
            form.set("extra.notify_effect", "2")
            form.set("extra.intent_uri", intent)
        case .url(let url):
            try checks.url(url, limit: 1_024)
            form.set("extra.notify_effect", "3")
            form.set("extra.web_uri", url)
        // Without an effect, the app's receiver gets the tap and the payload.
        case .payload, .none: break
        }
    }

    private func checkExtras(_ form: FormBody, _ checks: MessageChecks) throws(VendorRefusal) {
        let extras = form.fields.filter { $0.name.hasPrefix("extra.") && !Self.ownExtras.contains($0.name) }
        let length = extras.reduce(0) { $0 + $1.name.utf16.count + $1.value.utf16.count }
        guard extras.count <= 10, length <= 1_024 else {
            throw checks.refusal("TooManyExtras", "options set more than 10 extras or 1,024 characters of them")
        }
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        ReplyReading.outcome(reply, vendor: vendor, now: now) { value in
            guard let code = value["code"]?.lenientText else { return nil }
            let data = value["data"]
            if code == "0" {
                guard value["result"].map({ $0.equals("ok") }) ?? true else { return .unknown(reason: "ResultNotOK") }
                if Self.names(token, in: data?["bad_regids"]) { return .badToken(reason: "bad_regids") }
                return .accepted(vendorID: PeerText.bounded(data?["id"]?.lenientText ?? ""))
            }
            let words = ["reason", "description", "info"].compactMap { name in
                value.members.first { $0.key.string == name }?.value.string?.lowercased()
            }
            let namesToken =
                Self.names(token, in: data?["bad_regids"])
                || words.contains { $0.contains("regid") || $0.contains("registration") }
            return Self.outcome(code, namesToken: namesToken, now: now)
                ?? ReplyReading.outcomeOfUnknownCode(code, reply, vendor: vendor, now: now)
        }
    }

    private static func names(_ token: String, in list: JSONValue?) -> Bool {
        guard let list, !token.isEmpty else { return false }
        if let text = list.string { return text.split(separator: ",").contains { $0 == token } }
        return list.elements.contains { $0.string == token }
    }

    private static func outcome(_ code: String, namesToken: Bool, now: Int64) -> VendorOutcome? {
        let reason = PeerText.reason(code)
        switch code {
        case "1", "10001", "10002", "10003", "26003", "65029": return .retry(afterSeconds: nil, reason: reason)
        case "10008", "10012", "10016", "10017", "27001", "65009", "65014", "65015": return .rejected(reason: reason)
        case "10027": return .tooFast(afterSeconds: ReplyReading.rateLimitSeconds, reason: reason)
        // These codes are also given for reasons that do not concern the device.
        case "10029", "20301", "65003": return namesToken ? .badToken(reason: reason) : .rejected(reason: reason)
        case "10034": return .quotaUsedUp(until: Vendor.nextBeijingMidnight(after: now), reason: reason)
        case "10031", "10036":
            return .credentialRefused(reason: reason, advice: "Xiaomi forbids this app to push: see its console")
        case "21301", "21302", "21303":
            return .credentialRefused(reason: reason, advice: "copy the app secret from Xiaomi's console")
        case "22000", "22006", "22007", "22022":
            return .credentialRefused(
                reason: reason, advice: "the package name does not belong to the app secret, or the app is disabled")
        default: return nil
        }
    }
}
