internal import Cryptography
internal import JSON

/// Meizu's push service.
///
/// Sources: https://github.com/MEIZUPUSH/PushAPI and https://github.com/MEIZUPUSH/node-sdk (fields, signature, codes).
struct Meizu: VendorAPI {
    let vendor = Vendor.meizu
    let appID: String
    let appSecret: String
    let base: ServiceAddress

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        try checks.token(message.token)
        guard case .notification(let notice) = message.content.kind else {
            throw checks.refusal("NoPassthrough", "Meizu delivers only notifications: send a notification")
        }
        try checks.titles(notice)
        // Meizu counts a lifetime in whole hours, rounded up here.
        let hours = min(72, max(1, (checks.secondsToLive(message) + 3_599) / 3_600))
        var content: JSONTree = [
            "noticeBarInfo": ["title": .string(notice.title), "content": .string(notice.body)],
            "clickTypeInfo": try click(notice, message, checks),
            "pushTimeInfo": ["offLine": message.isStored ? 1 : 0, "validTime": .integer(hours)],
        ]
        if let text = notice.bigText {
            content.set("noticeExpandInfo", ["noticeExpandType": 1, "noticeExpandContent": .string(text)])
        }
        try checks.apply(
            message.content.options, to: &content,
            protected: [["appId"], ["pushIds"], ["sign"], ["messageJson"]])
        let text = content.text
        try checks.byteCount(text.utf8.count, of: "messageJson")
        var form = FormBody(["appId": appID, "pushIds": message.token, "messageJson": text])
        form.set("sign", signature(form))
        return VendorRequest(
            url: "\(base.text)/garcia/api/server/push/varnished/pushByPushId", headers: [.form], body: form.bytes)
    }

    private func click(
        _ notice: PushContent.Notice, _ message: VendorMessage, _ checks: MessageChecks
    ) throws(VendorRefusal) -> JSONTree {
        var click: JSONTree = ["clickType": 0]
        switch notice.click {
        case .startApp, .payload, .none: break
        case .url(let url):
            try checks.url(url, limit: 1_000)
            click = ["clickType": 2, "url": .string(url)]
        case .intent(let text):
            try checks.byteCount(text.utf8.count, of: "intent", limit: 1_000)
            let activity = IntentText(text).activity
            click =
                activity.map { ["clickType": 1, "activity": .string($0)] } ?? ["clickType": 2, "url": .string(text)]
        }
        click.set("parameters", message.appData(notice.payload))
        return click
    }

    /// The MD5 of all fields as `name=value`, sorted by name, followed by the secret.
    private func signature(_ form: FormBody) -> String {
        let pairs = form.fields.sorted { $0.name < $1.name }.map { $0.name + "=" + $0.value }
        return MD5.hex(Array((pairs.joined() + appSecret).utf8))
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        ReplyReading.outcome(reply, vendor: vendor, now: now) { value in
            guard let code = value["code"]?.lenientText else { return nil }
            guard code == "200" else {
                return Self.outcome(code)
                    ?? ReplyReading.outcomeOfUnknownCode(code, reply, vendor: vendor, now: now)
            }
            // `value` lists only refused tokens: codes with their tokens, or tokens with their codes.
            guard let list = value["value"] else { return .accepted(vendorID: "") }
            for (key, refused) in list.members {
                let name = key.string ?? ""
                if name == token, let code = refused.lenientText {
                    return Self.outcome(code) ?? .unknown(reason: PeerText.reason(code))
                }
                if refused.elements.contains(where: { $0.string == token }) {
                    return Self.outcome(name) ?? .unknown(reason: PeerText.reason(name))
                }
            }
            return .accepted(vendorID: PeerText.bounded(value["msgId"]?.lenientText ?? ""))
        }
    }

    private static func outcome(_ code: String) -> VendorOutcome? {
        let reason = PeerText.reason(code)
        switch code {
        case "500", "501", "513", "519", "1001", "1003": return .retry(afterSeconds: nil, reason: reason)
        case "518", "110010": return .tooFast(afterSeconds: 5, reason: reason)
        // One device got more messages in a minute than Meizu permits.
        case "520": return .retry(afterSeconds: 60, reason: reason)
        case "1005", "110004": return .rejected(reason: reason)
        case "201", "110009":
            return .credentialRefused(reason: reason, advice: "Meizu forbids this app to push: see its console")
        case "1006", "110000", "110001":
            return .credentialRefused(reason: reason, advice: "copy the app id and app secret from Meizu's console")
        case "110002", "110003": return .badToken(reason: reason)
        default: return nil
        }
    }
}
