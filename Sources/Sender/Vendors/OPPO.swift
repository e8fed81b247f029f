internal import Cryptography
internal import JSON
internal import Wire

/// OPPO PUSH, also for realme and OnePlus.
///
/// Sources: https://open.oppomobile.com/new/developmentDoc/info?id=11234 (authentication), id=11236 (fields), the page of
/// addresses and codes (public copy; 33 is the daily limit and -2 flow control), and the page of receipts.
struct OPPO: VendorAPI {
    let vendor = Vendor.oppo
    let appKey: String
    let masterSecret: String
    let callbackURL: String?
    let base: ServiceAddress

    /// The length from which a text needs the style of long texts.
    private static let shortBodyLength = 50
    private static let parametersLength = 4_000

    func tokenRequest(now: Int64) -> VendorRequest? {
        let timestamp = String(now * 1_000)
        let sign = SHA256.digest(Array((appKey + timestamp + masterSecret).utf8)).hex
        let form = FormBody(["app_key": appKey, "timestamp": timestamp, "sign": sign])
        return VendorRequest(url: "\(base.text)/server/v1/auth", headers: [.form], body: form.bytes)
    }

    func readToken(_ reply: VendorReply, now: Int64) -> Result<AccessToken, VendorFault> {
        DailyToken.read(
            reply, vendor: vendor, renewsAfter: 20 * 3_600, now: now,
            token: { $0["data"]?["auth_token"]?.string }, code: { $0["code"]?.lenientText },
            outcome: { Self.outcome($0, now: now) },
            advice: "OPPO refuses the app key or master secret, or this machine's clock is wrong")
    }

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        let bearer = try checks.bearer(bearer)
        try checks.token(message.token)
        guard case .notification(let notice) = message.content.kind else {
            throw checks.refusal("NoPassthrough", "OPPO delivers only notifications: send a notification")
        }
        var body: JSONTree = [
            "target_type": 2, "target_value": .string(message.token),
            "notification": try rendered(notice, message, checks),
        ]
        // Getui's pointers begin at the notification: /channel_id, /category.
        let options = message.content.options.map { option in
            let isWhole = ["notification", "target_type", "target_value"].contains(option.pointer.tokens[0])
            return isWhole
                ? option : .init(pointer: option.pointer.prefixed("notification"), value: option.value)
        }
        let id = ["notification", "app_message_id"]
        try checks.apply(
            options, to: &body,
            protected: [
                ["target_type"], ["target_value"], id, ["notification", "call_back_url"],
                ["notification", "call_back_parameter"],
            ])
        try checks.byteCount(body.textByteCount, of: "message")
        let form = FormBody(["auth_token": bearer, "message": body.text])
        return VendorRequest(
            url: "\(base.text)/server/v1/message/notification/unicast", headers: [.form], body: form.bytes)
    }

    private func rendered(
        _ notice: PushContent.Notice, _ message: VendorMessage, _ checks: MessageChecks
    ) throws(VendorRefusal) -> JSONTree {
        let text = notice.bigText ?? notice.body
        try checks.length(notice.title, field: "title", limit: vendor.limits.titleLength, reason: "TitleTooLong")
        try checks.length(
            text, field: notice.bigText == nil ? "body" : "big_text", limit: vendor.limits.bodyLength,
            reason: "BodyTooLong")
        let parameters = message.appData(notice.payload).text
        guard parameters.utf16.count <= Self.parametersLength else {
            throw checks.refusal("MessageTooLarge", "payload is too long; the limit is 4,000 characters with the id")
        }
        var tree: JSONTree = [
            "app_message_id": .string(message.messageID), "title": .string(notice.title), "content": .string(text),
            "style": text.utf16.count > Self.shortBodyLength || notice.bigText != nil ? 2 : 1,
            "action_parameters": .string(parameters), "off_line": .bool(message.isStored),
            "off_line_ttl": message.isStored ? .integer(checks.secondsToLive(message)) : nil,
            "channel_id": notice.channelID.map { .string($0) }, "category": notice.category.map { .string($0) },
            "notify_id": message.replacementID(notice).map { .integer($0) },
            "call_back_url": callbackURL.map { .string($0) },
            "call_back_parameter": callbackURL.map { _ in .string(message.messageID) },
        ]
        let (type, field, target) = try click(notice.click, checks)
        tree.set("click_action_type", .integer(type))
        if let field, let target { tree.set(field, .string(target)) }
        return tree
    }

    private func click(
        _ click: PushContent.Click, _ checks: MessageChecks
    ) throws(VendorRefusal) -> (Int64, String?, String?) {
        switch click {
        case .startApp, .payload, .none: return (0, nil, nil)
        case .url(let url):
            try checks.url(url, limit: 2_000)
            return (2, "click_action_url", url)
        case .intent(let text):
            let intent = IntentText(text)
            if intent.isURI {
                try checks.byteCount(text.utf8.count, of: "intent", limit: 2_000)
                return (5, "click_action_url", text)
            }
            try checks.byteCount(text.utf8.count, of: "intent", limit: 500)
            return (intent.isActivity ? 4 : 1, "click_action_activity", text)
        }
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        ReplyReading.outcome(reply, vendor: vendor, now: now) { value in
            guard let code = value["code"]?.lenientText else { return nil }
            if code == "0" {
                let data = value["data"]
                let id = data?["messageId"]?.lenientText ?? data?["message_id"]?.lenientText
                return .accepted(vendorID: PeerText.bounded(id ?? ""))
            }
            return Self.outcome(code, now: now)
                ?? ReplyReading.outcomeOfUnknownCode(code, reply, vendor: vendor, now: now)
        }
    }

    private static func outcome(_ code: String, now: Int64) -> VendorOutcome? {
        let reason = PeerText.reason(code)
        switch code {
        case "-1": return .retry(afterSeconds: nil, reason: reason)
        case "-2": return .tooFast(afterSeconds: 5, reason: reason)
        case "11", "29": return .renewToken(reason: reason)
        case "13", "55": return .tooFast(afterSeconds: ReplyReading.rateLimitSeconds, reason: reason)
        case "33": return .quotaUsedUp(until: Vendor.nextBeijingMidnight(after: now), reason: reason)
        case "14", "15", "16", "17":
            return .credentialRefused(reason: reason, advice: "copy the app key and master secret from OPPO's console")
        case "18", "19": return .credentialRefused(reason: reason, advice: "set this machine's clock")
        case "26":
            return .credentialRefused(reason: reason, advice: "OPPO blocks this server's address: see its console")
        case "27", "28", "30":
            return .credentialRefused(reason: reason, advice: "the app may not push: see OPPO's console")
        case "12", "20", "21", "22", "23", "24", "25", "31", "32", "34", "40", "41", "51", "59", "67":
            return .rejected(reason: reason)
        case "10000": return .badToken(reason: reason)
        default: return nil
        }
    }
}

/// Reads the tokens of OPPO and vivo, which are valid for a day and whose answers have a business code.
enum DailyToken {
    static func read(
        _ reply: VendorReply, vendor: Vendor, renewsAfter seconds: Int64, now: Int64,
        token: (JSONValue) -> String?, code: (JSONValue) -> String?, outcome: (String) -> VendorOutcome?,
        advice: String
    ) -> Result<AccessToken, VendorFault> {
        let found: Result<AccessToken, VendorFault>? = JSONTree.parsing(
            reply.body, byteLimit: VendorReply.bodyByteCount
        ) { value in
            guard let code = code(value) else { return nil }
            if code == "0", let text = token(value) {
                return OAuth.accessToken(text, lifetime: 86_400, now: now).map {
                    AccessToken(text: $0.text, renewsAt: now + seconds, expiresAt: $0.expiresAt)
                }
            }
            let reason = PeerText.reason(code)
            switch outcome(code) {
            case .retry(let seconds, _): return .failure(.retry(afterSeconds: seconds, reason: reason))
            case .tooFast(let seconds, _): return .failure(.retry(afterSeconds: seconds, reason: reason))
            case .quotaUsedUp(let time, _): return .failure(.retry(afterSeconds: time - now, reason: reason))
            case .credentialRefused(_, let advice):
                return .failure(.credentialRefused(reason: reason, advice: advice))
            default:
                return code == "0" ? nil : .failure(.credentialRefused(reason: reason, advice: advice))
            }
        }
        return found ?? .failure(OAuth.fault(reply, now: now, advice: advice))
    }
}
