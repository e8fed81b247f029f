import Cryptography
import Testing

@testable import Vendors

@Suite("Requests to vendors") struct RequestTests {
    private let gmid = JSONTree.string("\(Samples.taskID):\(Samples.messageID)")
    private let data = "{\"_gmid_\":\"\(Samples.taskID):\(Samples.messageID)\"}"

    private func body(_ vendor: Vendor, _ message: VendorMessage) throws -> JSONTree {
        try Samples.tree(Samples.request(message, vendor).body)
    }

    private func form(_ vendor: Vendor, _ message: VendorMessage) throws -> FormBody {
        try #require(FormBody(parsing: Samples.request(message, vendor).body))
    }

    private func notice(_ click: PushContent.Click) -> PushContent.Kind { .notification(Samples.notice(click)) }

    /// A notice with every optional field.
    private var full: PushContent.Kind {
        var notice = Samples.notice()
        (notice.notifyID, notice.channelID, notice.bigText) = (7, "chan", "Long text")
        (notice.bigImage, notice.category, notice.badgeIncrement) = ("https://i/x.png", "im", 2)
        notice.slotType = 1
        return .notification(notice)
    }

    @Test("addresses and headers are the documented ones")
    func addresses() throws {
        let expected: [Vendor: String] = [
            .fcm: "https://fcm.googleapis.com/v1/projects/demo-1/messages:send",
            .hms: "https://push-api.cloud.huawei.com/v1/100/messages:send",
            .harmony: "https://push-api.cloud.huawei.com/v3/388421841/messages:send",
            .honor: "https://push-api.cloud.honor.com/api/v1/200/sendMessage",
            .xiaomi: "https://api.xmpush.xiaomi.com/v3/message/regid",
            .oppo: "https://api.push.oppomobile.com/server/v1/message/notification/unicast",
            .vivo: "https://api-push.vivo.com.cn/message/send",
            .meizu: "https://server-api-push.meizu.com/garcia/api/server/push/varnished/pushByPushId",
            .webPush: "https://updates.push.services.mozilla.com/wpush/v2/abc",
        ]
        for vendor in Vendor.allCases {
            let request = try Samples.request(Samples.message(vendor), vendor)
            #expect(request.url == expected[vendor] && request.method == "POST")
        }
        func header(_ vendor: Vendor, _ name: String) throws -> String? {
            try Samples.request(Samples.message(vendor), vendor).header(name)
        }
        for vendor in [Vendor.fcm, .hms, .harmony, .honor] {
            #expect(try header(vendor, "Authorization") == "Bearer bearer-1")
        }
        #expect(try header(.xiaomi, "Authorization") == "key=s3cret")
        #expect(try header(.vivo, "authToken") == "bearer-1")
        #expect(try header(.honor, "timestamp") == "1732900000000")
        #expect(try header(.harmony, "push-type") == "0")
    }

    @Test("FCM gets the notification, the data and the lifetime")
    func fcm() throws {
        let plain = try body(.fcm, Samples.message(.fcm))
        #expect(
            plain == [
                "message": [
                    "token": "token-1", "notification": ["title": "Title", "body": "Body"], "data": ["_gmid_": gmid],
                    "android": [
                        "priority": "HIGH", "ttl": "3600s", "restricted_package_name": "com.example.app",
                        "notification": [:],
                    ],
                ]
            ])
        let all = try body(.fcm, Samples.message(.fcm, full, collapseID: "news"))
        #expect(all.at("message/android/collapse_key") == "news")
        #expect(
            all.at("message/android/notification") == ["channel_id": "chan", "tag": "news", "notification_count": 2])
        #expect(all.at("message/notification/image") == "https://i/x.png")
        let intent = "intent://x#Intent;action=com.a.OPEN;end"
        let tapped = try body(.fcm, Samples.message(.fcm, notice(.intent(intent))))
        #expect(tapped.at("message/android/notification/click_action") == "com.a.OPEN")
        #expect(tapped.at("message/data/intent")?.string == intent)
        let url = try body(.fcm, Samples.message(.fcm, notice(.url("https://a/b"))))
        #expect(url.at("message/data/url") == "https://a/b")
        let data = try body(.fcm, Samples.message(.fcm, .transmission("text"), seconds: 0))
        #expect(data.at("message/data") == ["_gmid_": gmid, "payload": "text"])
        #expect(data.at("message/notification") == nil && data.at("message/android/ttl") == "0s")
    }

    @Test("reserved names and values that are no texts are refused in FCM's data")
    func fcmData() throws {
        for (pointer, value) in [
            ("/message/data/from", JSONTree.string("x")), ("/message/data/google.x", "x"), ("/message/data/n", 5),
            ("/message/data", "x"),
        ] {
            let message = Samples.message(.fcm, options: [try Samples.option(pointer, value)])
            let refusal = #expect(throws: VendorRefusal.self) { try Samples.request(message, .fcm) }
            #expect(refusal?.reason == "BadData")
        }
    }

    @Test("HMS gets the click action, the category and the receipt's tag")
    func hms() throws {
        let plain = try body(.hms, Samples.message(.hms))
        #expect(plain.at("message/data")?.string == data && plain.at("message/token") == ["token-1"])
        #expect(plain.at("message/android/bi_tag")?.string == Samples.messageID)
        #expect(plain.at("message/android/notification/click_action") == ["type": 3])
        let all = try body(.hms, Samples.message(.hms, full, collapseID: "news"))
        #expect(all.at("message/android/category") == "IM" && all.at("message/android/notification/style") == 1)
        #expect(all.at("message/android/notification/big_body") == "Long text")
        #expect(all.at("message/android/notification/badge") == ["add_num": 2])
        #expect(all.at("message/android/notification/tag") == "news")
        let uri = try body(.hms, Samples.message(.hms, notice(.intent("intent://a#Intent;end"))))
        #expect(
            uri.at("message/android/notification/click_action") == ["type": 1, "intent": "intent://a#Intent;end"])
        let action = try body(.hms, Samples.message(.hms, notice(.intent("com.a.OPEN"))))
        #expect(action.at("message/android/notification/click_action") == ["type": 1, "action": "com.a.OPEN"])
        let url = try body(.hms, Samples.message(.hms, notice(.url("https://a/b"))))
        #expect(url.at("message/android/notification/click_action") == ["type": 2, "url": "https://a/b"])
        let passed = try body(.hms, Samples.message(.hms, .transmission("text"), seconds: 0))
        #expect(passed.at("message/android/notification") == nil && passed.at("message/android/ttl") == "1s")
        #expect(plain.at("message/android/urgency") == "HIGH" && passed.at("message/android/urgency") == "NORMAL")
        #expect(passed.at("message/data")?.string == data.dropLast() + ",\"payload\":\"text\"}")
    }

    @Test("HarmonyOS gets the push type of its content, and a want as click action")
    func harmony() throws {
        let all = try body(.harmony, Samples.message(.harmony, full))
        #expect(all.at("payload/notification/category") == "IM" && all.at("payload/notification/slotType") == 1)
        #expect(all.at("payload/notification/clickAction") == ["actionType": 0, "data": ["_gmid_": gmid]])
        #expect(all.at("target/token") == ["token-1"] && all.at("pushOptions/ttl") == 3_600)
        let want = "{\"action\":\"a.view\",\"uri\":\"u\",\"parameters\":{\"x\":1,\"_gmid_\":\"forged\"}}"
        let wanted = try body(.harmony, Samples.message(.harmony, notice(.intent(want))))
        #expect(
            wanted.at("payload/notification/clickAction") == [
                "actionType": 1, "action": "a.view", "uri": "u", "data": ["_gmid_": gmid, "x": 1],
            ])
        for (type, code) in [("form_update", "1"), ("live_view", "7"), ("voip_call", "10"), ("subscribe", "0")] {
            let message = Samples.message(.harmony, .custom(type: type, data: ["extraData": "e"]))
            let request = try Samples.request(message, .harmony)
            #expect(request.header("push-type") == code)
            #expect(try Samples.tree(request.body).at("payload") == ["extraData": "e"])
        }
        let text = try Samples.request(Samples.message(.harmony, .transmission("t")), .harmony)
        #expect(text.header("push-type") == "6")
        #expect(throws: VendorRefusal.self) {
            try Samples.request(Samples.message(.harmony, .custom(type: "x", data: [:])), .harmony)
        }
    }

    @Test("Honor gets Huawei's fields in camel case without the level message")
    func honor() throws {
        let all = try body(.honor, Samples.message(.honor, full, collapseID: "news"))
        #expect(all.at("token") == ["token-1"] && all.at("data")?.string == data)
        #expect(
            all.at("android/notification") == [
                "title": "Title", "body": "Body", "clickAction": ["type": 3], "channelId": "chan", "notifyId": 7,
                "tag": "news", "image": "https://i/x.png", "style": 1, "bigTitle": "Title", "bigBody": "Long text",
                "badge": ["addNum": 2],
            ])
        let passed = try body(.honor, Samples.message(.honor, .transmission("t")))
        #expect(passed.at("android") == ["ttl": "3600s", "biTag": .string(Samples.messageID)])
    }

    @Test("Xiaomi gets a form with a payload that is encoded twice")
    func xiaomi() throws {
        let plain = try form(.xiaomi, Samples.message(.xiaomi))
        #expect(plain["registration_id"] == "token-1" && plain["restricted_package_name"] == "com.example.app")
        #expect(plain["pass_through"] == "0" && plain["time_to_live"] == "3600000")
        #expect(plain["payload"] == FormBody.encoded(data) && plain["extra.notify_effect"] == "1")
        #expect(plain["extra.callback"] == "https://cb.example/x" && plain["extra.callback.type"] == "19")
        #expect(plain["extra.callback.param"] == Samples.messageID)
        let id = try #require(plain["notify_id"].flatMap(Int64.init))
        #expect((0...Int64(Int32.max)).contains(id))
        #expect(try form(.xiaomi, Samples.message(.xiaomi, full))["notify_id"] == "7")
        let intent = try form(.xiaomi, Samples.message(.xiaomi, notice(.intent("intent:#Intent;end"))))
        #expect(intent["extra.notify_effect"] == "2" && intent["extra.intent_uri"] == "intent:#Intent;end")
        let url = try form(.xiaomi, Samples.message(.xiaomi, notice(.url("https://a/b?c=d&e=f"))))
        #expect(url["extra.notify_effect"] == "3" && url["extra.web_uri"] == "https://a/b?c=d&e=f")
        let passed = try form(.xiaomi, Samples.message(.xiaomi, .transmission("t")))
        #expect(passed["pass_through"] == "1" && passed["title"] == nil && passed["extra.only_send_once"] == nil)
        let unstored = try form(.xiaomi, Samples.message(.xiaomi, seconds: 0))
        #expect(unstored["time_to_live"] == "1000" && unstored["extra.only_send_once"] == "1")
    }

    @Test("OPPO gets one message as JSON in a form, with its own id against duplicates")
    func oppo() throws {
        func notification(_ message: VendorMessage) throws -> JSONTree {
            let form = try form(.oppo, message)
            #expect(form["auth_token"] == "bearer-1")
            let body = try Samples.tree(try #require(form["message"]))
            #expect(body.at("target_type") == 2 && body.at("target_value") == "token-1")
            return try #require(body["notification"])
        }
        let plain = try notification(Samples.message(.oppo))
        #expect(plain.at("app_message_id")?.string == Samples.messageID && plain.at("style") == 1)
        #expect(plain.at("action_parameters")?.string == data && plain.at("click_action_type") == 0)
        #expect(plain.at("off_line") == true && plain.at("off_line_ttl") == 3_600)
        #expect(plain.at("call_back_parameter")?.string == Samples.messageID)
        let unstored = try notification(Samples.message(.oppo, seconds: 0))
        #expect(unstored.at("off_line") == false && unstored.at("off_line_ttl") == nil)
        let long = try notification(Samples.message(.oppo, full))
        #expect(long.at("style") == 2 && long.at("content") == "Long text" && long.at("channel_id") == "chan")
        let clicks: [(PushContent.Click, Int64, String)] = [
            (.url("https://a/b"), 2, "click_action_url"), (.intent("intent://a#Intent;end"), 5, "click_action_url"),
            (.intent("com.a.OPEN"), 1, "click_action_activity"),
            (.intent("com.a.MainActivity"), 4, "click_action_activity"),
        ]
        for (click, type, field) in clicks {
            let tree = try notification(Samples.message(.oppo, notice(click)))
            #expect(tree.at("click_action_type") == .integer(type) && tree.at(field) != nil)
        }
        let option = try notification(Samples.message(.oppo, options: [Samples.option("/category", "ORDER")]))
        #expect(option.at("category") == "ORDER")
    }

    @Test("vivo gets the class of its category, and online devices only if nothing is stored")
    func vivo() throws {
        let plain = try body(.vivo, Samples.message(.vivo))
        #expect(plain.at("appId") == 300 && plain.at("regId") == "token-1" && plain.at("skipType") == 1)
        #expect(plain.at("clientCustomMap") == ["_gmid_": gmid] && plain.at("timeToLive") == 3_600)
        #expect(plain.at("extra/callback.param")?.string == Samples.messageID)
        #expect(plain.at("requestId")?.string == Samples.messageID && plain.at("classification") == nil)
        let all = try body(.vivo, Samples.message(.vivo, full, seconds: 0))
        #expect(all.at("category") == "IM" && all.at("classification") == 1 && all.at("notifyId") == 7)
        #expect(all.at("sendOnline") == true && all.at("timeToLive") == 60)
        let url = try body(.vivo, Samples.message(.vivo, notice(.url("https://a/b"))))
        #expect(url.at("skipType") == 2 && url.at("skipContent") == "https://a/b")
        let intent = try body(.vivo, Samples.message(.vivo, notice(.intent("intent://a#Intent;end"))))
        #expect(intent.at("skipType") == 4)
        let payload = try body(.vivo, Samples.message(.vivo, notice(.payload("p"))))
        #expect(payload.at("clientCustomMap") == ["_gmid_": gmid, "payload": "p"])
    }

    @Test("Meizu gets a form that is signed over its sorted fields")
    func meizu() throws {
        let form = try form(.meizu, Samples.message(.meizu, full))
        let json = try #require(form["messageJson"])
        let signed = "appId=400messageJson=\(json)pushIds=token-1s3cret"
        #expect(form["sign"] == MD5.hex(Array(signed.utf8)))
        let tree = try Samples.tree(json)
        #expect(tree.at("noticeBarInfo") == ["title": "Title", "content": "Body"])
        #expect(tree.at("pushTimeInfo") == ["offLine": 1, "validTime": 1])
        #expect(tree.at("clickTypeInfo") == ["clickType": 0, "parameters": ["_gmid_": gmid]])
        #expect(tree.at("noticeExpandInfo/noticeExpandContent") == "Long text")
        let intent = "intent:#Intent;component=com.a/.Main;end"
        let tapped = try self.form(.meizu, Samples.message(.meizu, notice(.intent(intent))))
        #expect(try Samples.tree(tapped["messageJson"] ?? "").at("clickTypeInfo/activity") == "com.a.Main")
    }

    @Test("a publisher's collapse id replaces an earlier notification; the message's own id never does")
    func collapsing() throws {
        func id(_ vendor: Vendor, _ path: String, _ collapseID: String) throws -> JSONTree? {
            let message = Samples.message(vendor, collapseID: collapseID)
            if vendor != .oppo { return try body(vendor, message).at(path) }
            return try Samples.tree(form(vendor, message)["message"] ?? "").at(path)
        }
        for (vendor, path) in [
            (Vendor.oppo, "notification/notify_id"), (.vivo, "notifyId"), (.harmony, "payload/notification/notifyId"),
            (.hms, "message/android/notification/tag"), (.honor, "android/notification/tag"),
            (.fcm, "message/android/collapse_key"),
        ] {
            let first = try id(vendor, path, "news")
            #expect(try first != nil && first == id(vendor, path, "news") && first != id(vendor, path, "other"))
            #expect(try id(vendor, path, "") == nil)
        }
        let plain = try form(.xiaomi, Samples.message(.xiaomi))["notify_id"]
        var other = Samples.message(.xiaomi)
        other.messageID = "ffffffffffffffffffffffffffffffff"
        other.collapseID = other.messageID
        #expect(try plain != form(.xiaomi, other)["notify_id"])
    }

    @Test("options change the rendered request but never its target")
    func options() throws {
        let urgency = try body(
            .hms, Samples.message(.hms, options: [Samples.option("/message/android/urgency", "NORMAL")]))
        #expect(urgency.at("message/android/urgency") == "NORMAL")
        let nested = try body(.vivo, Samples.message(.vivo, options: [Samples.option("/a/b~1c", 5)]))
        #expect(nested.at("a")?["b/c"] == 5)
        let channel = try form(.xiaomi, Samples.message(.xiaomi, options: [Samples.option("/extra.channel_id", 9)]))
        #expect(channel["extra.channel_id"] == "9")
        let protected: [(Vendor, String)] = [
            (.fcm, "/message/token"), (.fcm, "/message"), (.fcm, "/validate_only"), (.hms, "/message/token/0"),
            (.harmony, "/target/token"), (.honor, "/token"), (.xiaomi, "/registration_id"),
            (.xiaomi, "/extra.callback.param"), (.oppo, "/target_value"), (.oppo, "/notification"),
            (.oppo, "/app_message_id"), (.vivo, "/regId"), (.vivo, "/extra"), (.meizu, "/pushIds"),
            (.webPush, "/_gmid_"), (.hms, "/message/android/bi_tag"), (.hms, "/message/android/receipt_id"),
            (.harmony, "/pushOptions/biTag"), (.honor, "/android/biTag"),
        ]
        for (vendor, pointer) in protected {
            let message = Samples.message(vendor, options: [try Samples.option(pointer, "x")])
            let refusal = #expect(throws: VendorRefusal.self) { try Samples.request(message, vendor) }
            #expect(refusal?.reason == "ProtectedOption" && refusal?.isTokenFault == false, "\(vendor) \(pointer)")
        }
        for (vendor, pointer) in [(Vendor.hms, "/message/data/x"), (.xiaomi, "/a/b"), (.xiaomi, "/a&b")] {
            let message = Samples.message(vendor, options: [try Samples.option(pointer, "x")])
            let refusal = #expect(throws: VendorRefusal.self) { try Samples.request(message, vendor) }
            #expect(refusal?.reason == "BadOption")
        }
    }
}
