import Testing

@testable import Vendors

@Suite("Answers of vendors") struct OutcomeTests {
    enum Expected: Equatable {
        case accepted, retry, rejected, badToken, renew, credential, quota, postponed, tooFast, unknown
    }

    static func kind(_ outcome: VendorOutcome) -> Expected {
        switch outcome {
        case .accepted: .accepted
        case .retry: .retry
        case .rejected: .rejected
        case .badToken: .badToken
        case .renewToken: .renew
        case .credentialRefused: .credential
        case .quotaUsedUp: .quota
        case .postponed: .postponed
        case .tooFast: .tooFast
        case .unknown: .unknown
        }
    }

    private func check(_ vendor: Vendor, _ codes: [Expected: [String]], _ body: (String) -> String) throws {
        let api = try Samples.api(vendor)
        for (expected, list) in codes {
            for code in list {
                let outcome = api.outcome(of: Samples.reply(body(code)), token: "token-1", now: Samples.now)
                #expect(Self.kind(outcome) == expected, "\(vendor) \(code): \(outcome)")
                #expect(expected == .accepted || outcome.reason == code || outcome.reason.hasPrefix(code + ":"))
            }
        }
    }

    private static let huaweiCodes: [Expected: [String]] = [
        .accepted: ["80000000"],
        .badToken: ["80300007"],
        .rejected: [
            "80100001", "80100002", "80100003", "80100004", "80100013", "80100016", "80100018", "80100022",
            "80300008", "80300010", "80300011", "80300013", "80300030",
        ],
        .retry: ["80100017", "80600003", "81000001"],
        .renew: ["80200001", "80200003", "80200005"],
        .credential: ["80300002", "80300036", "80300037"],
        .tooFast: ["80300029"],
        .unknown: ["80999999"],
    ]

    @Test("each code of Huawei, HarmonyOS and Honor has its outcome", arguments: [Vendor.hms, .harmony, .honor])
    func huawei(vendor: Vendor) throws {
        try check(vendor, Self.huaweiCodes) { "{\"code\":\"\($0)\",\"msg\":\"m\",\"requestId\":\"r\"}" }
    }

    @Test("Huawei's words about a refused token decide between the token, the message and the app")
    func huaweiWords() throws {
        let api = try Samples.api(.harmony)
        func kind(_ code: String, _ message: String) -> Expected {
            let body: JSONTree = ["code": .string(code), "msg": .string(message), "requestId": "r"]
            return Self.kind(api.outcome(of: Samples.reply(body.text), token: "token-1", now: Samples.now))
        }
        #expect(kind("80300007", "All the tokens are invalid: tokenFormatError") == .badToken)
        #expect(kind("80300007", "tokenPlatformNotSupport") == .badToken)
        #expect(kind("80300007", "noRight") == .rejected)
        #expect(kind("80300007", "noPushTypeRight") == .rejected)
        #expect(kind("80300007", "appinfoError") == .credential)
        #expect(kind("80300007", "disableSendHuaweiMsgBecauseOfPenalty") == .credential)
        #expect(kind("80100000", "{\"success\":0,\"failure\":1,\"illegal_tokens\":[\"token-1\"]}") == .badToken)
        #expect(kind("80100000", "{\"success\":0,\"failure\":1}") == .badToken)
        #expect(kind("80100000", "{\"success\":1,\"failure\":0}") == .accepted)
        #expect(kind("80100000", "something else") == .unknown)
    }

    @Test("HTTP 503 of Huawei is flow control with any body", arguments: [Vendor.hms, .harmony, .honor])
    func flowControl(vendor: Vendor) throws {
        for body in ["{\"code\":\"1\",\"msg\":\"\"}", "{\"code\":\"80000000\"}", "<html>", ""] {
            let reply = Samples.reply(body, 503, retryAfter: "9")
            let outcome = try Samples.api(vendor).outcome(of: reply, token: "t", now: Samples.now)
            #expect(outcome == .tooFast(afterSeconds: 9, reason: "HTTP503"))
        }
    }

    @Test("Honor lists expired and failed tokens in an answer with HTTP 200")
    func honor() throws {
        let api = try Samples.api(.honor)
        func outcome(_ data: String) -> VendorOutcome {
            api.outcome(of: Samples.reply("{\"code\":200,\"data\":\(data)}"), token: "token-1", now: Samples.now)
        }
        #expect(outcome("{\"sendResult\":true,\"requestId\":\"r1\"}") == .accepted(vendorID: "r1"))
        #expect(outcome("{\"sendResult\":true,\"expireTokens\":[\"token-1\"]}") == .badToken(reason: "ExpiredToken"))
        #expect(outcome("{\"sendResult\":true,\"failTokens\":[\"token-1\"]}") == .rejected(reason: "FailedToken"))
        #expect(outcome("{\"sendResult\":true,\"failTokens\":[\"other\"]}") == .accepted(vendorID: ""))
        #expect(outcome("{\"sendResult\":false}") == .unknown(reason: "SendResultFalse"))
    }

    @Test("each code of Xiaomi has its outcome")
    func xiaomi() throws {
        let codes: [Expected: [String]] = [
            .retry: ["1", "10001", "10002", "10003", "26003", "65029"],
            .rejected: [
                "10008", "10012", "10016", "10017", "27001", "65009", "65014", "65015", "10029", "20301", "65003",
            ],
            .tooFast: ["10027"], .quota: ["10034"],
            .credential: ["10031", "10036", "21301", "21302", "21303", "22000", "22006", "22007", "22022"],
            .unknown: ["99999"],
        ]
        try check(.xiaomi, codes) { "{\"result\":\"error\",\"code\":\($0),\"reason\":\"other\"}" }
        try check(.xiaomi, [.badToken: ["10029", "20301", "65003"]]) {
            "{\"result\":\"error\",\"code\":\($0),\"reason\":\"No valid regid\"}"
        }
        let api = try Samples.api(.xiaomi)
        func outcome(_ body: String) -> VendorOutcome {
            api.outcome(of: Samples.reply(body), token: "token-1", now: Samples.now)
        }
        #expect(outcome("{\"result\":\"ok\",\"code\":0,\"data\":{\"id\":\"x1\"}}") == .accepted(vendorID: "x1"))
        let bad = "{\"result\":\"ok\",\"code\":0,\"data\":{\"id\":\"x1\",\"bad_regids\":\"a,token-1\"}}"
        #expect(outcome(bad) == .badToken(reason: "bad_regids"))
        #expect(Self.kind(outcome("{\"result\":\"error\",\"code\":0}")) == .unknown)
    }

    @Test("each code of OPPO has its outcome")
    func oppo() throws {
        let codes: [Expected: [String]] = [
            .accepted: ["0"], .retry: ["-1"], .tooFast: ["-2", "13", "55"], .renew: ["11", "29"], .quota: ["33"],
            .credential: ["14", "15", "16", "17", "18", "19", "26", "27", "28", "30"],
            .rejected: [
                "12", "20", "21", "22", "23", "24", "25", "31", "32", "34", "40", "41", "51", "59", "67",
            ],
            .badToken: ["10000"], .unknown: ["10999"],
        ]
        try check(.oppo, codes) { "{\"code\":\($0),\"message\":\"m\",\"data\":{\"messageId\":\"o1\"}}" }
    }

    @Test("each code of vivo has its outcome")
    func vivo() throws {
        let codes: [Expected: [String]] = [
            .accepted: ["0"], .renew: ["10000"], .quota: ["10070", "10073"], .postponed: ["10071"],
            .retry: ["10040", "10102"],
            .tooFast: ["10072", "10252"],
            .credential: [
                "10094", "10200", "10201", "10202", "10203", "10204", "10205", "10206", "10207",
            ],
            .rejected: [
                "10043", "10045", "10096", "10097", "10050", "10054", "10055", "10056", "10057", "10058", "10066",
                "10067", "10101", "10103", "10104",
            ],
            .badToken: ["10302"], .unknown: ["10998"],
        ]
        try check(.vivo, codes) { "{\"result\":\($0),\"desc\":\"d\",\"taskId\":\"v1\"}" }
        for (status, expected) in [(1, Expected.badToken), (2, .badToken), (4, .rejected), (9, .accepted)] {
            let body = "{\"result\":0,\"taskId\":\"v1\",\"invalidUser\":{\"status\":\(status),\"userid\":\"u\"}}"
            let outcome = try Samples.api(.vivo).outcome(of: Samples.reply(body), token: "t", now: Samples.now)
            #expect(Self.kind(outcome) == expected)
        }
    }

    @Test("each code of Meizu has its outcome, also as the code of one token")
    func meizu() throws {
        let codes: [Expected: [String]] = [
            .retry: ["500", "501", "513", "519", "520", "1001", "1003"], .tooFast: ["518", "110010"],
            .rejected: ["1005", "110004"], .credential: ["201", "1006", "110000", "110001", "110009"],
            .badToken: ["110002", "110003"], .unknown: ["777"],
        ]
        try check(.meizu, codes) { "{\"code\":\"\($0)\",\"message\":\"\",\"value\":\"\"}" }
        try check(.meizu, codes) { "{\"code\":\"200\",\"value\":{\"\($0)\":[\"x\",\"token-1\"]}}" }
        try check(.meizu, codes) { "{\"code\":\"200\",\"value\":{\"token-1\":\"\($0)\"}}" }
        let body = "{\"code\":\"200\",\"value\":{\"110002\":[\"other\"]}}"
        let outcome = try Samples.api(.meizu).outcome(of: Samples.reply(body), token: "token-1", now: Samples.now)
        #expect(Self.kind(outcome) == .accepted)
    }

    @Test("each error of FCM has its outcome")
    func fcm() throws {
        let codes: [(String, Int, Expected)] = [
            ("UNREGISTERED", 404, .badToken), ("SENDER_ID_MISMATCH", 403, .badToken),
            ("QUOTA_EXCEEDED", 429, .tooFast), ("UNAVAILABLE", 503, .retry), ("INTERNAL", 500, .retry),
            ("THIRD_PARTY_AUTH_ERROR", 401, .rejected), ("INVALID_ARGUMENT", 400, .rejected),
            ("UNSPECIFIED_ERROR", 400, .unknown),
        ]
        let api = try Samples.api(.fcm)
        for (code, status, expected) in codes {
            let body =
                "{\"error\":{\"code\":\(status),\"status\":\"X\",\"message\":\"m\",\"details\":[{\"@type\":\"t\","
                + "\"errorCode\":\"\(code)\"}]}}"
            let outcome = api.outcome(of: Samples.reply(body, status), token: "t", now: Samples.now)
            #expect(Self.kind(outcome) == expected && outcome.reason == code)
        }
        for (code, status, expected) in [
            ("UNAUTHENTICATED", 401, Expected.renew), ("PERMISSION_DENIED", 403, .credential),
            ("RESOURCE_EXHAUSTED", 429, .tooFast), ("DEADLINE_EXCEEDED", 504, .retry),
        ] {
            let body = "{\"error\":{\"code\":\(status),\"status\":\"\(code)\"}}"
            #expect(Self.kind(api.outcome(of: Samples.reply(body, status), token: "t", now: Samples.now)) == expected)
        }
        let name = "{\"name\":\"projects/demo-1/messages/0:17%31\"}"
        #expect(api.outcome(of: Samples.reply(name), token: "t", now: 0) == .accepted(vendorID: "0:17%31"))
    }

    @Test("INVALID_ARGUMENT of FCM voids a token only if it names the token")
    func invalidArgument() throws {
        let api = try Samples.api(.fcm)
        func kind(_ message: String, _ details: String) -> Expected {
            let body =
                "{\"error\":{\"status\":\"INVALID_ARGUMENT\",\"message\":\"\(message)\",\"details\":[\(details)]}}"
            return Self.kind(api.outcome(of: Samples.reply(body, 400), token: "t", now: Samples.now))
        }
        let fcm = "{\"errorCode\":\"INVALID_ARGUMENT\"}"
        #expect(kind("The registration token is not a valid FCM registration token", fcm) == .badToken)
        #expect(kind("Message too big", fcm) == .rejected)
        let token = "{\"fieldViolations\":[{\"field\":\"message.token\"}]}"
        #expect(kind("Invalid registration", fcm + "," + token) == .badToken)
        let body = "{\"fieldViolations\":[{\"field\":\"message.data[0].value\"}]}"
        #expect(kind("a registration token", fcm + "," + body) == .rejected)
    }

    @Test("each status of a Web Push service has its outcome")
    func webPush() throws {
        let api = try Samples.api(.webPush)
        let statuses: [(Int, Expected)] = [
            (200, .accepted), (201, .accepted), (202, .accepted), (204, .accepted), (400, .rejected), (401, .renew),
            (403, .rejected), (404, .badToken), (410, .badToken), (413, .rejected), (429, .tooFast), (500, .retry),
            (502, .retry), (503, .retry), (301, .unknown), (418, .unknown),
        ]
        for (status, expected) in statuses {
            let outcome = api.outcome(of: Samples.reply("<html>", status), token: "t", now: Samples.now)
            #expect(Self.kind(outcome) == expected, "\(status)")
        }
        let reply = VendorReply(status: 201, location: "https://push.example/m/abc")
        #expect(api.outcome(of: reply, token: "t", now: 0) == .accepted(vendorID: "abc"))
        let foreign = [
            "{\"code\":401,\"errno\":109}", "{\"message\":\"VAPID public key mismatch\"}",
        ]
        for body in foreign {
            let outcome = api.outcome(of: Samples.reply(body, 401), token: "t", now: 0)
            #expect(outcome == .rejected(reason: "HTTP401:VapidKeyMismatch"))
        }
        let apple = Samples.reply("{\"reason\":\"BadJwtToken\"}", 403)
        #expect(Self.kind(api.outcome(of: apple, token: "t", now: 0)) == .credential)
    }

    @Test("an answer without a readable code is judged by its status", arguments: Vendor.allCases)
    func unreadable(vendor: Vendor) throws {
        let api = try Samples.api(vendor)
        let bodies = ["", "<html>502</html>", "[]", "null", "{}", "{\"code\":{}}", "{\"code\":", "\u{0}"]
        for body in bodies where vendor != .webPush {
            let outcome = api.outcome(of: Samples.reply(body), token: "token-1", now: Samples.now)
            #expect(Self.kind(outcome) == .unknown, "\(vendor) \(body): \(outcome)")
            #expect(Self.kind(api.outcome(of: Samples.reply(body, 502), token: "t", now: 0)) == .retry)
            #expect(Self.kind(api.outcome(of: Samples.reply(body, 429), token: "t", now: 0)) == .tooFast)
            #expect(Self.kind(api.outcome(of: Samples.reply(body, 302), token: "t", now: 0)) == .unknown)
            #expect(Self.kind(api.outcome(of: Samples.reply(body, 413), token: "t", now: 0)) == .rejected)
        }
    }

    @Test("Retry-After is seconds or a date, at most a day")
    func retryAfter() {
        func seconds(_ text: String) -> Int64? {
            ReplyReading.retryAfter(Samples.reply("", 429, retryAfter: text), now: 784_111_777 - 60)
        }
        #expect(seconds("120") == 120 && seconds("-5") == 0 && seconds("999999") == 86_400)
        #expect(seconds("Sun, 06 Nov 1994 08:49:37 GMT") == 60)
        #expect(seconds("soon") == nil && seconds("") == nil)
    }

    @Test("a day's quota ends at the next midnight in Beijing")
    func midnight() throws {
        // 2024-11-29 16:00:00 UTC is midnight in Beijing.
        let midnight: Int64 = 1_732_896_000
        #expect(Vendor.nextBeijingMidnight(after: midnight - 1) == midnight)
        #expect(Vendor.nextBeijingMidnight(after: midnight) == midnight + 86_400)
        #expect(Vendor.nextBeijingMidnight(after: 0) == 57_600)
        let seven = midnight + 7 * 3_600
        #expect(Vendor.nextBeijingHour(7, after: midnight - 3_600) == seven)
        #expect(Vendor.nextBeijingHour(7, after: seven - 1) == seven)
        #expect(Vendor.nextBeijingHour(7, after: seven) == seven + 86_400)
        #expect(Vendor.nextBeijingMidnight(after: .min) == 57_600)
        #expect(Vendor.nextBeijingMidnight(after: .max) > 0)
        let outcome = try Samples.api(.oppo).outcome(
            of: Samples.reply("{\"code\":33}"), token: "t", now: midnight - 1)
        #expect(outcome == .quotaUsedUp(until: midnight, reason: "33"))
    }
}
