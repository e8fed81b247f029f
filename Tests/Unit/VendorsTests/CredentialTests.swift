import Cryptography
import Testing
import TextForms

@testable import Vendors

@Suite("Credentials and access tokens") struct CredentialTests {
    @Test("every required setting is demanded by name", arguments: Vendor.allCases)
    func required(vendor: Vendor) throws {
        for field in VendorCredential.fields(of: vendor) where field.isRequired {
            for value: [UInt8]? in [nil, [], Array(" \n".utf8)] {
                var values = Samples.values(vendor)
                values[field.name] = value
                let failure = #expect(throws: CredentialFailure.self) {
                    try VendorCredential.makeAPI(vendor, values: values)
                }
                #expect(failure?.description.contains(field.name) ?? false)
                #expect(!(failure?.description.contains("\n") ?? true))
            }
        }
    }

    @Test("a bad value is refused in one line that never shows it", arguments: Vendor.allCases)
    func badValues(vendor: Vendor) throws {
        for field in VendorCredential.fields(of: vendor) {
            for bad in ["\u{7}\u{1B}[31mhostile", String(repeating: "a b", count: 9_000)] {
                var values = Samples.values(vendor)
                values[field.name] = Array(bad.utf8)
                let failure = #expect(throws: CredentialFailure.self, "\(vendor) \(field.name)") {
                    try VendorCredential.makeAPI(vendor, values: values)
                }
                #expect(!(failure?.description.contains("hostile") ?? true))
            }
        }
        var values = Samples.values(vendor)
        values["nonsense"] = []
        #expect(throws: CredentialFailure.self) { try VendorCredential.makeAPI(vendor, values: values) }
    }

    @Test("a value's last line end is ignored")
    func trimmed() throws {
        let values = Samples.texts(["appId": "100\n", "appSecret": "s3cret\r\n"])
        let request = try VendorCredential.makeAPI(.hms, values: values).tokenRequest(now: 0)
        let body = String(decoding: request?.body ?? [], as: UTF8.self)
        #expect(body == "grant_type=client_credentials&client_id=100&client_secret=s3cret")
    }

    @Test("an address may be replaced by https anywhere, or http to this machine")
    func addresses() throws {
        func url(_ base: String) throws -> String? {
            var values = Samples.values(.hms)
            values["baseURL"] = Array(base.utf8)
            let api = try VendorCredential.makeAPI(.hms, values: values)
            return try api.request(for: Samples.message(.hms), bearer: "b", now: 0).url
        }
        #expect(try url("https://push-api.cloud.huawei.eu/") == "https://push-api.cloud.huawei.eu/v1/100/messages:send")
        #expect(try url("http://127.0.0.1:8080") == "http://127.0.0.1:8080/v1/100/messages:send")
        #expect(try url("http://[::1]:8080") == "http://[::1]:8080/v1/100/messages:send")
        for bad in ["http://example.com", "ftp://x", "https://", "https://a@b", "https://a?b", "https://a#b", "x"] {
            #expect(throws: CredentialFailure.self) { try url(bad) }
        }
    }

    @Test("an EC key in place of an RSA key, and the reverse, are refused")
    func kinds() throws {
        let pem = String(decoding: Samples.vapidPEM, as: UTF8.self)
        let account: JSONTree = [
            "project_id": "p", "client_email": "e", "private_key_id": "k", "private_key": .string(pem),
        ]
        #expect(throws: CredentialFailure.self) {
            try VendorCredential.makeAPI(.fcm, values: ["serviceAccount": account.bytes])
        }
        var values = Samples.values(.webPush)
        values["privateKey"] = Samples.rsaPEM
        #expect(throws: CredentialFailure.self) { try VendorCredential.makeAPI(.webPush, values: values) }
    }

    private func parts(_ token: String) throws -> (header: JSONTree, claims: JSONTree, signed: [UInt8], code: [UInt8]) {
        let parts = token.split(separator: ".").map(String.init)
        try #require(parts.count == 3)
        let header = try Samples.tree(try #require(Base64.decode(parts[0].utf8, .url)))
        let claims = try Samples.tree(try #require(Base64.decode(parts[1].utf8, .url)))
        return (
            header, claims, Array((parts[0] + "." + parts[1]).utf8), try #require(Base64.decode(parts[2].utf8, .url))
        )
    }

    @Test("FCM's assertion is signed with RS256 and asks for the messaging scope")
    func assertion() throws {
        let request = try #require(try Samples.api(.fcm).tokenRequest(now: Samples.now))
        #expect(request.url == "https://oauth2.googleapis.com/token")
        let form = try #require(FormBody(parsing: request.body))
        #expect(form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer")
        let (header, claims, signed, code) = try parts(try #require(form["assertion"]))
        #expect(header == ["alg": "RS256", "typ": "JWT", "kid": "k1"])
        #expect(
            claims == [
                "iss": "s@demo-1.iam.gserviceaccount.com",
                "scope": "https://www.googleapis.com/auth/firebase.messaging",
                "aud": "https://oauth2.googleapis.com/token", "iat": .integer(Samples.now),
                "exp": .integer(Samples.now + 3_600),
            ])
        let key = try RSASigningKey(pem: Samples.rsaPEM, name: "key")
        #expect(key.isSignature(code, of: signed, .rs256) && !key.isSignature(code, of: signed, .ps256))
    }

    @Test("HarmonyOS's token is signed with PS256 and renewed before it ends")
    func harmony() throws {
        let api = try Samples.api(.harmony)
        #expect(api.tokenRequest(now: 0) == nil)
        let token = try #require(api.signToken(scope: "", now: Samples.now))
        #expect(token.renewsAt < token.expiresAt && token.expiresAt == Samples.now + 3_600)
        let (header, claims, signed, code) = try parts(token.text)
        #expect(header == ["kid": "k2", "typ": "JWT", "alg": "PS256"])
        #expect(claims.at("iss") == "108000" && claims.at("aud")?.string?.hasSuffix("/oauth2/v3/token") == true)
        let key = try RSASigningKey(pem: Samples.rsaPEM, name: "key")
        #expect(key.isSignature(code, of: signed, .ps256) && !key.isSignature(code, of: signed, .rs256))
    }

    @Test("a VAPID token names the endpoint's origin and is signed with ES256")
    func vapid() throws {
        let api = try Samples.api(.webPush)
        let scope = api.tokenScope(of: Samples.message(.webPush))
        #expect(scope == "https://updates.push.services.mozilla.com")
        let token = try #require(api.signToken(scope: scope, now: Samples.now))
        let (header, claims, signed, code) = try parts(token.text)
        #expect(header == ["typ": "JWT", "alg": "ES256"])
        #expect(
            claims == [
                "aud": .string(scope), "exp": .integer(Samples.now + 43_200), "sub": "mailto:ops@example.com",
            ])
        #expect(try SigningKey(pem: Samples.vapidPEM, name: "key").isSignature(code, of: signed))
        // Without a permitted endpoint the scope is empty; the message is then refused, and not its lane.
        #expect(api.signToken(scope: "", now: 0) != nil)
    }

    @Test("OPPO and vivo sign the token request as documented")
    func daily() throws {
        let oppo = try #require(try Samples.api(.oppo).tokenRequest(now: 1_000))
        let form = try #require(FormBody(parsing: oppo.body))
        #expect(oppo.url == "https://api.push.oppomobile.com/server/v1/auth" && form["timestamp"] == "1000000")
        #expect(form["sign"] == SHA256.digest(Array("key1000000s3cret".utf8)).hex)
        let vivo = try #require(try Samples.api(.vivo).tokenRequest(now: 1_000))
        let body = try Samples.tree(vivo.body)
        #expect(vivo.url == "https://api-push.vivo.com.cn/message/auth" && body.at("appId") == 300)
        #expect(body.at("sign")?.string == MD5.hex(Array("300key1000000s3cret".utf8)))
    }

    @Test("an OAuth token is renewed early; its escapes are resolved")
    func oauth() throws {
        for vendor in [Vendor.fcm, .hms, .honor] {
            let reply = Samples.reply("{\"access_token\":\"a\\/b\",\"expires_in\":3600,\"token_type\":\"Bearer\"}")
            let token = try Samples.api(vendor).readToken(reply, now: 100).get()
            #expect(token == AccessToken(text: "a/b", renewsAt: 100 + 3_300, expiresAt: 3_700))
        }
        let short = Samples.reply("{\"access_token\":\"a\",\"expires_in\":-9}")
        #expect(try Samples.api(.hms).readToken(short, now: 0).get().expiresAt == 60)
        let huge = Samples.reply("{\"access_token\":\"a\",\"expires_in\":9223372036854775807}")
        #expect(try Samples.api(.hms).readToken(huge, now: 0).get().expiresAt == 604_800)
    }

    @Test("tokens of OPPO and vivo last a day")
    func dailyTokens() throws {
        let oppo = Samples.reply("{\"code\":0,\"data\":{\"auth_token\":\"o\",\"create_time\":1}}")
        #expect(
            try Samples.api(.oppo).readToken(oppo, now: 0).get()
                == AccessToken(text: "o", renewsAt: 72_000, expiresAt: 86_400))
        let vivo = Samples.reply("{\"result\":0,\"desc\":\"\",\"authToken\":\"v\"}")
        #expect(
            try Samples.api(.vivo).readToken(vivo, now: 0).get()
                == AccessToken(text: "v", renewsAt: 7_200, expiresAt: 86_400))
    }

    static let failures: [(Vendor, VendorReply, isCredential: Bool)] = [
        (.fcm, Samples.reply("{\"error\":\"invalid_grant\",\"error_description\":\"x\"}", 400), true),
        (.hms, Samples.reply("{\"error\":1101,\"sub_error\":20001}", 400), true),
        (.hms, Samples.reply("{\"error\":1101}", 200), true),
        (.hms, Samples.reply("<html>", 200), false),
        (.hms, Samples.reply("", 503), false),
        (.hms, Samples.reply("{\"error\":\"slow\"}", 429), false),
        (.honor, Samples.reply("{\"error\":\"unauthorized_client\"}", 401), true),
        (.oppo, Samples.reply("{\"code\":16}"), true),
        (.oppo, Samples.reply("{\"code\":-1}"), false),
        (.oppo, Samples.reply("{\"code\":0,\"data\":{}}"), false),
        (.vivo, Samples.reply("{\"result\":10202}"), true),
        (.vivo, Samples.reply("{\"result\":10072}"), false),
        (.vivo, Samples.reply("{\"result\":424242}"), true),
        (.fcm, Samples.reply("{\"access_token\":\"a\\r\\nX: y\"}"), false),
        (.fcm, Samples.reply("{\"access_token\":\"\"}"), false),
    ]

    @Test("a refused token request rests the credential, any other failure is retried", arguments: failures)
    func refused(vendor: Vendor, reply: VendorReply, isCredential: Bool) throws {
        switch try Samples.api(vendor).readToken(reply, now: Samples.now) {
        case .success(let token): Issue.record("a token: \(token)")
        case .failure(.credentialRefused(_, let advice)): #expect(isCredential && !advice.isEmpty)
        case .failure(.retry): #expect(!isCredential)
        }
    }

    @Test("the doctor's request delivers nothing, and its answer proves or refutes the credential")
    func doctor() throws {
        for vendor in [Vendor.fcm, .hms, .harmony] {
            let request = try #require(try Samples.api(vendor).testRequest(bearer: "b", now: 0))
            #expect(request.header("Authorization") == "Bearer b")
        }
        let fcm = try Samples.api(.fcm)
        #expect(try Samples.tree(try #require(fcm.testRequest(bearer: "b", now: 0)).body).at("validate_only") == true)
        let hms = try Samples.api(.hms)
        #expect(hms.testFailure(Samples.reply("{\"code\":\"80300007\"}"), now: 0) == nil)
        #expect(hms.testFailure(Samples.reply("{\"code\":\"80200001\"}"), now: 0) != nil)
        for status in [413, 429, 503] {
            #expect(hms.testFailure(Samples.reply("", status), now: 0) != nil)
        }
        #expect(hms.testFailure(Samples.reply("", 500), now: 0) == .retry(afterSeconds: nil, reason: "HTTP500"))
        #expect(try Samples.api(.xiaomi).testRequest(bearer: nil, now: 0) == nil)
    }
}
