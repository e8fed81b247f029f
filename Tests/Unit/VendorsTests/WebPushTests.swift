import Cryptography
import Testing
import TextForms

@testable import Vendors

@Suite("Web Push") struct WebPushTests {
    private func bytes(_ text: String) throws -> [UInt8] { try #require(Base64.decode(text.utf8, .url)) }

    @Test("the example of RFC 8291, section 5, is encrypted to its bytes")
    func vector() throws {
        let point = try bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8")
        let key = try #require(
            AgreementKey(scalar: bytes("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), publicPoint: point))
        let body = WebPushEncryption.body(
            Array("When I grow up, I want to be a watermelon".utf8),
            publicPoint: try bytes(
                "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
            secret: try bytes("BTBZMqHH6r4Tts7J_aSIgg"), salt: try bytes("DGv6ra1nlYgDCS1FRnbzlw"), key: key)
        let expected =
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK"
            + "6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
        #expect(Base64.encode(try #require(body), .url) == expected)
    }

    /// Decrypts a body as the browser does.
    private func opened(_ body: [UInt8]) throws -> [UInt8] {
        let browser = try #require(Samples.browserKey)
        try #require(body.count > 86 && Array(body[16..<21]) == [0, 0, 16, 0, 65])
        let (salt, point) = (Array(body[..<16]), Array(body[21..<86]))
        let shared = try #require(browser.sharedSecret(with: point))
        let info = Array("WebPush: info\0".utf8) + browser.publicPoint + point + [1]
        let material = HMACSHA256.code(
            key: HMACSHA256.code(key: Samples.browserSecret, message: shared), message: info)
        let root = HMACSHA256.code(key: salt, message: material)
        let key = HMACSHA256.code(key: root, message: Array("Content-Encoding: aes128gcm\0\u{1}".utf8)).prefix(16)
        let nonce = HMACSHA256.code(key: root, message: Array("Content-Encoding: nonce\0\u{1}".utf8)).prefix(12)
        let plain = try #require(AES128GCM.open(Array(body[86...]), key: Array(key), nonce: Array(nonce)))
        #expect(plain.last == 2)
        return plain.dropLast()
    }

    @Test("a request has its headers, and the browser can decrypt its body")
    func request() throws {
        let message = Samples.message(
            .webPush, .notification(Samples.notice(.url("https://a/b"))), collapseID: "news 1")
        let request = try Samples.request(message, .webPush)
        #expect(request.header("TTL") == "3600" && request.header("Urgency") == "high")
        #expect(request.header("Content-Encoding") == "aes128gcm")
        let topic = try #require(request.header("Topic"))
        #expect(topic == WebPush.topic("news 1") && topic.utf8.count == 32 && topic.isPlain(with: "-_"))
        let authorization = try #require(request.header("Authorization"))
        let point = try #require(try SigningKey(pem: Samples.vapidPEM, name: "key").publicPoint)
        #expect(authorization == "vapid t=bearer-1, k=" + Base64.encode(point, .url))
        let content = try Samples.tree(opened(request.body))
        #expect(
            content == [
                "_gmid_": .string(message.reportID),
                "notification": ["title": "Title", "body": "Body", "tag": "news 1", "url": "https://a/b"],
            ])
        #expect(try Samples.request(Samples.message(.webPush), .webPush).header("Topic") == nil)
        let again = try Samples.request(message, .webPush)
        #expect(again.body != request.body)
    }

    @Test("content at the limit makes a body of 4,096 bytes")
    func size() throws {
        let key = try #require(AgreementKey())
        let browser = try #require(Samples.browserKey)
        func count(_ length: Int) -> Int? {
            WebPushEncryption.body(
                [UInt8](repeating: 1, count: length), publicPoint: browser.publicPoint, secret: Samples.browserSecret,
                salt: [UInt8](repeating: 0, count: 16), key: key)?.count
        }
        #expect(count(3_993) == 4_096 && count(0) == 103 && count(3_994) == nil)
    }

    static let hostile: [(url: String, refusal: WebPushEndpoint.Refusal)] = [
        ("http://web.push.apple.com/x", .notHTTPS), ("ftp://web.push.apple.com/x", .notHTTPS), ("", .notHTTPS),
        ("https://user@web.push.apple.com/x", .hasUserInfo), ("https://web.push.apple.com@evil.com/", .hasUserInfo),
        ("https://a:b@web.push.apple.com/", .hasUserInfo), ("https://127.0.0.1/x", .isAddress),
        ("https://127.1/x", .isAddress), ("https://2130706433/x", .isAddress), ("https://0x7f000001/x", .isAddress),
        ("https://0x7f.0.0.1/x", .isAddress), ("https://0177.0.0.1/x", .isAddress), ("https://10.0.0.1./x", .isAddress),
        ("https://[::1]/x", .isAddress), ("https://[::ffff:127.0.0.1]/x", .isAddress),
        ("https://%31%32%37.0.0.1/", .isAddress), ("https://localhost/x", .malformed), ("https:///x", .malformed),
        ("https://web.push.apple.com:99999/x", .malformed), ("https://web.push.apple.com:443:1/x", .malformed),
        ("https://web.push.apple.com:/x", .malformed), ("https://web.push.apple.com\\@evil.com/", .malformed),
        ("https://web.push.apple.com/x#y", .malformed), ("https://web.push.apple.com/\r\nX:y", .malformed),
        ("https://web.push.apple.com/x y", .malformed), ("https://web..push.apple.com/", .malformed),
        ("https://web.push.apple.com./", .malformed), ("https://-a.push.apple.com/", .malformed),
        ("https://evil.com/x", .hostNotAllowed), ("https://web.push.apple.com.evil.com/", .hostNotAllowed),
        ("https://evilweb.push.apple.com.cn/", .hostNotAllowed), ("https://notify.windows.com/", .hostNotAllowed),
        ("https://web.push.apple.com:8443/x", .hostNotAllowed), ("https://xfcm.googleapis.com/", .hostNotAllowed),
    ]

    @Test("an endpoint that could reach another host is refused", arguments: hostile)
    func hostileEndpoints(url: String, refusal: WebPushEndpoint.Refusal) {
        let allowed = WebPushHost.standard.compactMap(WebPushHost.init)
        #expect(throws: refusal) { try WebPushEndpoint(url, allowed: allowed) }
    }

    @Test("permitted endpoints keep path and query; host names lose their case")
    func endpoints() throws {
        let allowed =
            ["*.example.org", "push.test:8443"].compactMap(WebPushHost.init) + [WebPushHost("fcm.googleapis.com")!]
        func endpoint(_ url: String) throws -> WebPushEndpoint { try WebPushEndpoint(url, allowed: allowed) }
        let first = try endpoint("https://FCM.googleapis.com/fcm/send/a:B?c=d@e")
        #expect(first.url == "https://fcm.googleapis.com/fcm/send/a:B?c=d@e")
        #expect(first.origin == "https://fcm.googleapis.com")
        #expect(try endpoint("HTTPS://a.b.example.org:443/x").url == "https://a.b.example.org/x")
        #expect(try endpoint("https://push.test:8443/x").origin == "https://push.test:8443")
        #expect(throws: WebPushEndpoint.Refusal.hostNotAllowed) { try endpoint("https://push.test/x") }
        for pattern in ["", "*", "*.", "com", "*.com", "a b.c", "1.2.3.4", "a.b:", "a.b:0", "a.b:+5", "a.*.b", "[::1]"]
        {
            #expect(WebPushHost(pattern) == nil, "\(pattern)")
        }
    }

    @Test("a token without valid keys is void; a host that is not allowed leaves the token alone")
    func tokens() throws {
        let good = Samples.token(.webPush)
        let keys = good.drop { $0 != "#" }
        func refusal(_ token: String) -> VendorRefusal? {
            var message = Samples.message(.webPush)
            message.token = token
            return #expect(throws: VendorRefusal.self) { try Samples.request(message, .webPush) }
        }
        for bad in [
            "https://web.push.apple.com/x", "https://web.push.apple.com/x#", "https://web.push.apple.com/x#a.b",
            good + "#", good + ".a", String(good.dropLast()), "https://127.0.0.1/x" + keys,
        ] {
            #expect(refusal(bad)?.isTokenFault == true, "\(bad)")
        }
        #expect(refusal("https://push.unknown.org/x" + keys)?.reason == "EndpointNotAllowed")
        #expect(refusal("https://push.unknown.org/x" + keys)?.isTokenFault == false)
        let offCurve = Base64.encode([4] + [UInt8](repeating: 1, count: 64), .url)
        let secret = Base64.encode(Samples.browserSecret, .url)
        #expect(refusal("https://web.push.apple.com/x#\(offCurve).\(secret)")?.isTokenFault == true)
    }

    @Test("a collapse id becomes a topic of 32 base64url characters")
    func topics() {
        #expect(WebPush.topic("news-1") == "news-1")
        #expect(WebPush.topic("a") != WebPush.topic("b c") && WebPush.topic("").utf8.count == 32)
        #expect(WebPush.topic(String(repeating: "x", count: 33)).utf8.count == 32)
    }
}
