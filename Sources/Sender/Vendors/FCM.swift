internal import Cryptography
internal import JSON

/// Firebase Cloud Messaging, HTTP v1.
///
/// Sources: https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages,
/// https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode,
/// https://firebase.google.com/docs/cloud-messaging/throttling-and-quotas (429 until the quota's next minute).
struct FCM: VendorAPI {
    let vendor = Vendor.fcm
    let projectID: String
    let clientEmail: String
    let keyID: String
    /// The audience of the assertion, `token_uri` of the service account.
    let tokenURI: String
    let key: RSASigningKey
    let base: ServiceAddress
    let tokenURL: ServiceAddress

    private static let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    private static let scope = "https://www.googleapis.com/auth/firebase.messaging"

    func tokenRequest(now: Int64) -> VendorRequest? {
        let header: JSONTree = ["alg": "RS256", "typ": "JWT", "kid": .string(keyID)]
        let claims: JSONTree = [
            "iss": .string(clientEmail), "scope": .string(Self.scope), "aud": .string(tokenURI), "iat": .integer(now),
            "exp": .integer(now + 3_600),
        ]
        let assertion = JSONWebToken.text(header: header, claims: claims) { key.sign($0, .rs256) }
        guard let assertion else { return nil }
        return VendorRequest(
            url: tokenURL.text, headers: [.form],
            body: FormBody(["grant_type": Self.grant, "assertion": assertion]).bytes)
    }

    func readToken(_ reply: VendorReply, now: Int64) -> Result<AccessToken, VendorFault> {
        OAuth.token(
            reply, now: now,
            advice: "Google refuses the service account: check that its key is not deleted, and this machine's clock")
    }

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        let bearer = try checks.bearer(bearer)
        try checks.token(message.token)
        try checks.packageName(message.packageName)
        var body: JSONTree = ["message": try rendered(message, checks)]
        try checks.apply(
            message.content.options, to: &body,
            protected: [["message", "token"], ["message", "topic"], ["message", "condition"], ["validate_only"]])
        try checkData(body["message"]?["data"], checks)
        let shown = (body["message"]?["notification"]?.textByteCount ?? 0)
        try checks.byteCount(shown + (body["message"]?["data"]?.textByteCount ?? 0), of: "notification and data")
        return send(body, bearer)
    }

    /// Checks the data: FCM refuses values other than texts, and reserves some names.
    private func checkData(_ data: JSONTree?, _ checks: MessageChecks) throws(VendorRefusal) {
        guard case .object(let members)? = data else {
            throw checks.refusal("BadData", "message.data must be an object")
        }
        for member in members {
            guard case .string = member.value, !["from", "gcm", "message_type"].contains(member.name),
                !member.name.hasPrefix("google.")
            else {
                throw checks.refusal(
                    "BadData", "message.data.\(PeerText.bounded(member.name)) must be a text, and its name not reserved"
                )
            }
        }
    }

    private func rendered(_ message: VendorMessage, _ checks: MessageChecks) throws(VendorRefusal) -> JSONTree {
        var android: JSONTree = [
            "priority": "HIGH", "ttl": "\(checks.secondsToLive(message))s",
            "collapse_key": message.publisherCollapseID.map { .string($0) },
            "restricted_package_name": message.packageName.isEmpty ? nil : .string(message.packageName),
        ]
        switch message.content.kind {
        case .transmission(let text):
            return ["token": .string(message.token), "data": message.appData(text), "android": android]
        case .notification(let notice):
            var data = message.appData(notice.payload)
            var action: JSONTree?
            switch notice.click {
            case .url(let url):
                // FCM cannot open an address itself, so the app receives it.
                try checks.url(url)
                data.set("url", .string(url))
            case .intent(let intent):
                data.set("intent", .string(intent))
                action = IntentText(intent).action.map { .string($0) }
            case .startApp, .none, .payload: break
            }
            android.set(
                "notification",
                [
                    "channel_id": notice.channelID.map { .string($0) },
                    "tag": (message.publisherCollapseID ?? notice.notifyID.map(String.init)).map { .string($0) },
                    "click_action": action, "notification_count": notice.badgeIncrement.map { .integer($0) },
                ])
            let shown: JSONTree = [
                "title": .string(notice.title), "body": .string(notice.body),
                "image": notice.bigImage.map { .string($0) },
            ]
            return ["token": .string(message.token), "notification": shown, "data": data, "android": android]
        case .custom: throw checks.refusal("BadContent", "custom messages exist only for harmony")
        }
    }

    private func send(_ body: JSONTree, _ bearer: String) -> VendorRequest {
        VendorRequest(
            url: "\(base.text)/v1/projects/\(projectID)/messages:send", headers: [.json, .bearer(bearer)],
            body: body.bytes)
    }

    func testRequest(bearer: String?, now: Int64) -> VendorRequest? {
        // A topic needs no device token, and `validate_only` delivers nothing.
        let notice: JSONTree = ["title": "test", "body": "test"]
        let body: JSONTree = [
            "validate_only": true, "message": ["topic": "longwire-doctor", "notification": notice],
        ]
        return bearer.map { send(body, $0) }
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        ReplyReading.outcome(reply, vendor: vendor, now: now) { value in
            if reply.status == 200, let name = value["name"]?.string {
                return .accepted(vendorID: PeerText.bounded(String(name.split(separator: "/").last ?? "")))
            }
            guard let error = value["error"] else { return nil }
            return outcome(ofError: error, reply, now: now)
        }
    }

    private func outcome(ofError error: JSONValue, _ reply: VendorReply, now: Int64) -> VendorOutcome {
        var code = error["status"]?.string ?? ""
        var violations: [String]?
        for detail in error["details"].map({ Array($0.elements) }) ?? [] {
            if let found = detail["errorCode"]?.string { code = found }
            guard let list = detail["fieldViolations"] else { continue }
            violations = list.elements.compactMap { $0["field"]?.string }
        }
        let reason = PeerText.reason(code)
        let delay = ReplyReading.retryAfter(reply, now: now)
        switch code {
        case "UNREGISTERED", "SENDER_ID_MISMATCH": return .badToken(reason: reason)
        case "INVALID_ARGUMENT":
            // The same code means a malformed token or a malformed request. Only an explicit mention of the token voids it.
            let isToken =
                violations.map { $0.contains("message.token") }
                ?? (error["message"]?.string?.lowercased().contains("registration token") ?? false)
            return isToken ? .badToken(reason: reason) : .rejected(reason: reason)
        case "QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED":
            return .tooFast(afterSeconds: delay ?? ReplyReading.rateLimitSeconds, reason: reason)
        case "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED":
            return .retry(afterSeconds: delay, reason: reason)
        case "UNAUTHENTICATED": return .renewToken(reason: reason)
        // The project's APNs certificate or web push key is missing or invalid. Tokens of Android need neither.
        case "THIRD_PARTY_AUTH_ERROR": return .rejected(reason: reason)
        case "PERMISSION_DENIED":
            return .credentialRefused(
                reason: reason,
                advice: "enable the Firebase Cloud Messaging API and give the service account a role that may send")
        default: return ReplyReading.outcomeOfUnknownCode(code, reply, vendor: vendor, now: now)
        }
    }
}

extension VendorRequest.Header {
    static var json: Self { Self("Content-Type", "application/json; charset=UTF-8") }
    static var form: Self { Self("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8") }
    static func bearer(_ token: String) -> Self { Self("Authorization", "Bearer " + token) }
}
