internal import Cryptography
internal import JSON
internal import TextForms

/// Web Push: RFC 8030 (requests), RFC 8291 (encryption) and RFC 8292 (VAPID).
struct WebPush: VendorAPI {
    let vendor = Vendor.webPush
    let key: SigningKey
    /// The public point of `key`.
    let publicPoint: [UInt8]
    /// `mailto:` or `https:`.
    let subject: String
    let allowed: [WebPushHost]

    /// The lifetime of a VAPID token in seconds.
    ///
    /// RFC 8292 permits 24 hours; 12 hours tolerate wrong clocks.
    private static let lifetime: Int64 = 12 * 3_600

    func tokenScope(of message: VendorMessage) -> String {
        // The scope needs only the endpoint, not the subscription's keys after `#`.
        let endpoint = message.token.utf8.prefix { $0 != UInt8(ascii: "#") }
        return (try? WebPushEndpoint(Substring(endpoint), allowed: allowed))?.origin ?? ""
    }

    /// Signs a VAPID token; the scope is the endpoint's origin.
    ///
    /// The scope is empty for messages to forbidden endpoints. Their lane also needs a token before it calls `request`, which
    /// then refuses each message with the reason.
    func signToken(scope: String, now: Int64) -> AccessToken? {
        let expiry = now + Self.lifetime
        let claims: JSONTree = ["aud": .string(scope), "exp": .integer(expiry), "sub": .string(subject)]
        let text = JSONWebToken.text(header: ["typ": "JWT", "alg": "ES256"], claims: claims) { key.sign($0) }
        return text.map { AccessToken(text: $0, renewsAt: expiry - 3_600, expiresAt: expiry) }
    }

    func request(for message: VendorMessage, bearer: String?, now: Int64) throws(VendorRefusal) -> VendorRequest {
        let checks = MessageChecks(vendor)
        let bearer = try checks.bearer(bearer)
        let subscription = try subscription(of: message, checks)
        var content = try rendered(message, checks)
        try checks.apply(message.content.options, to: &content, protected: [[VendorMessage.reportKey]])
        let plaintext = content.bytes
        try checks.byteCount(plaintext.count, of: "the content")
        guard let once = AgreementKey() else { throw checks.refusal("NoMemory", "no key could be created") }
        let body = WebPushEncryption.body(
            plaintext, publicPoint: subscription.publicPoint, secret: subscription.secret,
            salt: SecureRandom.bytes(16), key: once)
        guard let body else {
            throw VendorRefusal(
                vendor, "BadToken", "the subscription's key p256dh is no point of the curve P-256", isTokenFault: true)
        }
        var headers: [VendorRequest.Header] = [
            .init("TTL", String(checks.secondsToLive(message))), .init("Urgency", "high"),
            .init("Content-Encoding", "aes128gcm"), .init("Content-Type", "application/octet-stream"),
            .init("Authorization", "vapid t=\(bearer), k=\(Base64.encode(publicPoint, .url))"),
        ]
        if let collapse = message.publisherCollapseID { headers.append(.init("Topic", Self.topic(collapse))) }
        return VendorRequest(url: subscription.endpoint.url, headers: headers, body: body)
    }

    private func subscription(
        of message: VendorMessage, _ checks: MessageChecks
    ) throws(VendorRefusal) -> WebPushSubscription {
        do throws(WebPushSubscription.Refusal) {
            return try WebPushSubscription(token: message.token, allowed: allowed)
        } catch {
            switch error {
            case .keys:
                throw VendorRefusal(
                    vendor, "BadToken", "the token must be ENDPOINT#P256DH.AUTH with keys in base64url",
                    isTokenFault: true)
            // A missing pattern in the settings must not void the tokens of a whole push service.
            case .endpoint(.hostNotAllowed):
                throw checks.refusal("EndpointNotAllowed", "the endpoint's host is not in allowedHosts")
            case .endpoint(let reason):
                throw VendorRefusal(
                    vendor, "BadToken", "the endpoint must be an https URL with a host name (\(reason))",
                    isTokenFault: true)
            }
        }
    }

    private func rendered(_ message: VendorMessage, _ checks: MessageChecks) throws(VendorRefusal) -> JSONTree {
        switch message.content.kind {
        case .transmission(let text): return message.appData(text)
        case .notification(let notice):
            var shown: JSONTree = [
                "title": .string(notice.title), "body": .string(notice.bigText ?? notice.body),
                "image": notice.bigImage.map { .string($0) }, "tag": message.publisherCollapseID.map { .string($0) },
            ]
            switch notice.click {
            case .url(let url):
                try checks.url(url)
                shown.set("url", .string(url))
            case .intent(let text): shown.set("intent", .string(text))
            case .startApp, .payload, .none: break
            }
            var content = message.appData(notice.payload)
            content.set("notification", shown)
            return content
        case .custom: throw checks.refusal("BadContent", "custom messages exist only for harmony")
        }
    }

    /// Returns a collapse id as a topic, which has at most 32 characters of base64url (RFC 8030, section 5.4).
    static func topic(_ collapseID: String) -> String {
        if (1...32).contains(collapseID.utf8.count), collapseID.isPlain(with: "-_") { return collapseID }
        return Base64.encode(SHA256.digest(Array(collapseID.utf8)).bytes.prefix(24), .url)
    }

    /// Whether Mozilla refuses a subscription that was made with another VAPID key (errno 109 of autopush's documentation).
    private static func isForeignSubscription(_ reply: VendorReply) -> Bool {
        JSONTree.parsing(reply.body, byteLimit: VendorReply.bodyByteCount) { value in
            value["errno"]?.lenientInteger == 109
                || value["message"]?.string?.contains("VAPID public key mismatch") == true
        } ?? false
    }

    func outcome(of reply: VendorReply, token: String, now: Int64) -> VendorOutcome {
        let reason = "HTTP\(reply.status)"
        switch reply.status {
        case 200, 201, 202, 204:
            let id = reply.location.split(separator: "/").last.map(String.init) ?? ""
            return .accepted(vendorID: PeerText.bounded(id))
        case 404, 410: return .badToken(reason: reason)
        case 401:
            return Self.isForeignSubscription(reply)
                ? .rejected(reason: PeerText.reason(reason, "VapidKeyMismatch")) : .renewToken(reason: reason)
        case 400, 403:
            // Apple names the fault; see "Sending web push notifications in web apps and browsers".
            let word = ["BadJwtToken", "ExpiredJwtToken", "ExpiredProviderToken"].first { word in
                String(decoding: reply.body.prefix(4_096), as: UTF8.self).contains(word)
            }
            if let word {
                return .credentialRefused(
                    reason: PeerText.reason(reason, word),
                    advice: "check the VAPID subject (mailto: or https:) and this machine's clock")
            }
            // The subscription may belong to another VAPID key; a changed key must not void every token.
            return .rejected(reason: reason)
        case 413: return .rejected(reason: reason)
        default: return ReplyReading.outcomeOfStatus(reply, vendor: vendor, now: now)
        }
    }
}
