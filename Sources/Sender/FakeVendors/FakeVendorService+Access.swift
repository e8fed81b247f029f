internal import Configuration
internal import Cryptography
internal import JSON
internal import TextForms

// The credentials of senders: requests of access tokens, and the proofs that each message carries.
extension FakeVendorService {
    private static let audience = "https://oauth-login.cloud.huawei.com/oauth2/v3/token"
    private static let scope = "https://www.googleapis.com/auth/firebase.messaging"

    mutating func accessToken(_ vendor: FakeVendor, _ call: FakeCall, now: Int64) throws(Refusal) -> [UInt8] {
        guard let fields = vendor == .vivo ? JSON5Node.strict(call.body) : JSON5Node.form(call.body) else {
            throw Refusal(status: 400, code: "invalid_request", reason: "unreadable body")
        }
        func field(_ name: String) -> String { fields.at(name)?.scalar ?? "" }
        /// Checks that a signature's time, in milliseconds, is within ten minutes.
        func isRecent(_ time: String) -> Bool {
            time.utf8.count == 13 && (Int64(time).map { abs($0 / 1_000 - now) <= 600 } ?? false)
        }
        func need(_ isGiven: Bool, _ code: String, _ reason: String, _ status: Int = 200) throws(Refusal) {
            guard isGiven else { throw Refusal(status: status, code: code, reason: reason) }
        }
        let (app, client, secret) = (FakeAccounts.appID, FakeAccounts.clientID, FakeAccounts.secret)
        switch vendor {
        case .fcm:
            try need(
                field("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer", "unsupported_grant_type",
                "grant_type", 400)
            let token = FakeJWT(field("assertion"))
            try need(
                token?.claims.at("iss")?.text == FakeAccounts.account, "invalid_grant", "account not found", 400)
            try need(
                token.map {
                    $0.header.at("alg")?.text == "RS256" && $0.header.at("kid")?.text == FakeAccounts.keyID
                        && accounts.service.isSignature($0.signature, of: $0.signed, .rs256)
                } ?? false, "invalid_grant", "Invalid JWT Signature.", 400)
            try need(token?.claims.at("aud")?.text == accounts.base + "/token", "invalid_grant", "audience", 400)
            try need(
                token.map { $0.isTimely(3_600, now: now) && ($0.number("exp") ?? 0) > now } ?? false, "invalid_grant",
                "iat and exp", 400)
            try need(
                token?.claims.at("scope")?.text?.split(separator: " ").contains { $0 == Self.scope } ?? false,
                "invalid_scope", "scope", 400)
        case .hms, .honor:
            try need(field("grant_type") == "client_credentials", "unsupported_grant_type", "grant_type", 400)
            try need(field("client_id") == (vendor == .hms ? app : client), "invalid_client", "client_id", 401)
            try need(field("client_secret") == secret, "invalid_client", "client_secret", 401)
        case .oppo:
            try need(field("app_key") == client, "14", "app_key")
            try need(isRecent(field("timestamp")), "19", "timestamp")
            let sign = SHA256.digest(Array((client + field("timestamp") + secret).utf8)).hex
            try need(field("sign") == sign, "16", "sign")
        case .vivo:
            try need(field("appId") == app, "10205", "appId")
            try need(field("appKey") == client, "10202", "appKey")
            try need(isRecent(field("timestamp")), "10207", "timestamp")
            try need(
                field("sign") == MD5.hex(Array((app + client + field("timestamp") + secret).utf8)), "10206", "sign")
        case .harmony, .xiaomi, .meizu, .webPush: throw Refusal(status: 404, code: "", reason: "no access tokens")
        }
        let (text, seconds) = issue(vendor, now: now)
        let body: JSONObject =
            switch vendor {
            case .oppo:
                [
                    "code": 0, "message": "Success",
                    "data": ["auth_token": text, "create_time": now * 1_000] as JSONObject,
                ]
            case .vivo: ["result": 0, "desc": "请求成功", "authToken": text]
            default: ["access_token": text, "expires_in": seconds, "token_type": "Bearer"]
            }
        return body.bytes
    }

    /// Checks the credential of a message's sender; `form` is the decoded body of vendors that use forms.
    func authorize(
        _ call: FakeCall, _ vendor: FakeVendor, _ name: String, _ form: JSON5Node, now: Int64
    ) throws(Refusal) {
        func need(_ isGiven: Bool, _ fault: Fault, _ reason: String) throws(Refusal) {
            guard isGiven else { throw Self.refusal(vendor, fault, reason) }
        }
        let authorization = call.headers["authorization"] ?? ""
        let bearer = authorization.hasPrefix("Bearer ") ? String(authorization.dropFirst(7)) : nil
        switch vendor {
        case .fcm:
            try checkAccess(vendor, bearer, now: now)
            try need(name == FakeAccounts.project, .app, "the project in the path")
        case .hms, .honor:
            try checkAccess(vendor, bearer, now: now)
            try need(name == FakeAccounts.appID, .app, "the app in the path")
            let isStamped = call.headers["timestamp"].map { $0.utf8.count == 13 && Int64($0) != nil } ?? false
            try need(vendor == .hms || isStamped, .field, "the header timestamp")
        case .harmony:
            guard let token = FakeJWT(bearer ?? "") else { throw Self.refusal(vendor, .access, "no JWT") }
            try need(
                token.header.at("alg")?.text == "PS256" && token.header.at("kid")?.text == FakeAccounts.keyID
                    && accounts.service.isSignature(token.signature, of: token.signed, .ps256), .access,
                "the JWT's signature")
            try need(token.claims.at("iss")?.text == FakeAccounts.clientID, .access, "iss")
            try need(token.claims.at("aud")?.text == Self.audience, .access, "aud")
            try need(token.isTimely(3_600, now: now), .access, "iat and exp")
            try need((token.number("exp") ?? 0) > now, .expired, "exp")
            try need(name == FakeAccounts.project, .app, "the project in the path")
            try need(["0", "1", "2", "6", "7", "10"].contains(call.headers["push-type"]), .field, "push-type")
        case .xiaomi:
            try need(authorization == "key=" + FakeAccounts.secret, .access, "Authorization")
            // Any package is accepted, so that a trial can use its own app. The prefix `wrong.` stands for another app's package.
            let package = form.at("restricted_package_name")?.text ?? ""
            try need(!package.hasPrefix("wrong."), .app, "restricted_package_name")
        case .oppo: try checkAccess(vendor, form.at("auth_token")?.text ?? call.headers["auth_token"], now: now)
        case .vivo:
            try checkAccess(vendor, call.headers["authtoken"], now: now)
            let app = JSON5Node.strict(call.body)?.at("appId")?.scalar
            try need(app ?? FakeAccounts.appID == FakeAccounts.appID, .app, "appId")
        case .meizu:
            for one in ["appId", "pushIds", "messageJson", "sign"] where form.at(one)?.text?.isEmpty ?? true {
                throw Refusal(status: 200, code: "110004", reason: one)
            }
            try need(form.at("appId")?.text == FakeAccounts.appID, .app, "appId")
            let signed = (form.members ?? []).filter { $0.key != "sign" }.sorted { $0.key < $1.key }
                .map { $0.key + "=" + ($0.node.text ?? "") }.joined()
            try need(
                form.at("sign")?.text == MD5.hex(Array((signed + FakeAccounts.secret).utf8)), .access, "sign")
        case .webPush: break
        }
    }

    // MARK: Web Push

    /// Checks and decrypts a message to the endpoint `id` (RFC 8030, 8188, 8291 and 8292).
    func readPush(_ call: FakeCall, id: String, now: Int64) throws(Refusal) -> Message {
        func need(_ isGiven: Bool, _ fault: Fault, _ reason: String) throws(Refusal) {
            guard isGiven else { throw Self.refusal(.webPush, fault, reason) }
        }
        let authorization = call.headers["authorization"] ?? ""
        var fields: [Substring: Substring] = [:]
        for part in authorization.dropFirst(6).split(whereSeparator: { $0 == "," || $0 == " " }) {
            let pair = part.split(separator: "=", maxSplits: 1)
            if pair.count == 2 { fields[pair[0]] = pair[1] }
        }
        guard authorization.lowercased().hasPrefix("vapid "), let token = FakeJWT(fields["t"] ?? "") else {
            throw Self.refusal(.webPush, .access, "no VAPID token")
        }
        // A subscription belongs to the VAPID key that it was made with.
        let key = fields["k"].flatMap { Base64.decode($0.utf8, .url) }
        try need(key == accounts.vapidPoint, .app, "another VAPID key")
        try need(
            token.header.at("alg")?.text == "ES256"
                && accounts.vapid.isSignature(token.signature, of: token.signed), .access, "the VAPID signature")
        try need(token.claims.at("aud")?.text == accounts.pushOrigin, .access, "aud")
        let end = token.number("exp") ?? 0
        try need(end > now && end <= now + 86_400, .expired, "exp")
        let subject = token.claims.at("sub")?.text ?? ""
        try need(subject.hasPrefix("mailto:") || subject.hasPrefix("https:"), .access, "sub")
        try need(call.headers["ttl"].flatMap { UInt32($0) } != nil, .field, "TTL")
        let urgencies = ["very-low", "low", "normal", "high"]
        try need(call.headers["urgency"].map(urgencies.contains) ?? true, .field, "Urgency")
        let isTopic = call.headers["topic"].map { (1...32).contains($0.utf8.count) && $0.isPlain(with: "-_") } ?? true
        try need(isTopic, .field, "Topic")
        try need(call.headers["content-encoding"] == "aes128gcm", .field, "Content-Encoding")
        try need(call.body.count <= 4_096, .tooLarge, "\(call.body.count) bytes")
        // A real service accepts an undecryptable body, and the browser drops the message.
        guard let text = FakeBrowser.open(call.body, key: accounts.browser, secret: accounts.browserSecret) else {
            throw Self.refusal(.webPush, .field, "undecryptable body")
        }
        let content = JSON5Node.strict(text) ?? JSON5Node(.string(String(decoding: text, as: UTF8.self)))
        return Message(content: content, tokens: [id])
    }
}
