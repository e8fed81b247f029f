/// A vendor's documented API as data: addresses, places of the message's parts, rules about fields, and codes.
struct VendorPage {
    enum Fault: Hashable {
        case access, expired, app, field, tooLarge, tooFast, quota
        /// A device token of a removed app, one that was never issued, and one of another app.
        case unregistered, malformed, foreign
    }

    /// The path of token requests, or empty; `*` is a part that names the app or the device.
    var tokenPath = ""
    var sendPath: String
    /// The default lifetime of an access token, in seconds.
    var accessTokenSeconds: Int64 = 3_600
    var isForm = false
    /// The places of the device tokens, and of title, body and data; the first one present counts.
    var target: String
    var titles: [String]
    var texts: [String]
    var data: [String]
    /// The maximum size and the paths of the measured parts; without paths, the whole request without its device tokens.
    var limit: (byteCount: Int, path: [String])?
    var rules: [FieldRule]
    /// The HTTP status and the code of each fault.
    var codes: [Fault: (status: Int, code: String)]

    static let all: [FakeVendor: VendorPage] = [
        .fcm: fcm, .hms: hms, .harmony: harmony, .honor: honor, .xiaomi: xiaomi, .oppo: oppo, .vivo: vivo,
        .meizu: meizu, .webPush: webPush,
    ]

    /// The maximum of an integer field with 31 bits.
    private static let maximum = Int64(Int32.max)
    private static let categories =
        "IM VOIP MISS_CALL SUBSCRIPTION TRAVEL HEALTH WORK ACCOUNT EXPRESS FINANCE DEVICE_REMINDER MAIL PLAY_VOICE MARKETING"

    private static let fcm = {
        let bad = "INVALID_ARGUMENT"
        let (message, android) = ("message", "message/android")
        return VendorPage(
            tokenPath: "/token", sendPath: "/v1/projects/*/messages:send", target: "message/token",
            titles: ["message/android/notification/title", "message/notification/title"],
            texts: ["message/android/notification/body", "message/notification/body"], data: ["message/data"],
            limit: (4_096, ["message/notification", "message/data", "message/android/notification"]),
            rules: [
                FieldRule("", .object("validate_only message"), bad),
                FieldRule(
                    message,
                    .object("name data notification android webpush apns fcm_options token topic condition"),
                    bad, missing: bad),
                FieldRule(message, .anyOf("token topic condition"), bad),
                FieldRule("message/token", .text(1...4_096), bad),
                FieldRule("message/notification", .object("title body image"), bad),
                FieldRule("message/notification", .data, bad), FieldRule("message/data", .data, bad),
                FieldRule(
                    android,
                    .object(
                        "collapse_key priority ttl restricted_package_name data notification fcm_options direct_boot_ok"
                    ),
                    bad),
                FieldRule("\(android)/priority", .among("HIGH NORMAL high normal"), bad),
                FieldRule("\(android)/ttl", .seconds(0...2_419_200), bad),
                FieldRule("\(android)/collapse_key", .text(0...4_096), bad),
                FieldRule("\(android)/restricted_package_name", .text(0...255), bad),
                FieldRule(
                    "\(android)/notification",
                    .object(
                        "title body icon color sound tag click_action body_loc_key body_loc_args title_loc_key "
                            + "title_loc_args channel_id ticker sticky event_time local_only notification_priority "
                            + "default_sound default_vibrate_timings default_light_settings vibrate_timings visibility "
                            + "notification_count light_settings image"), bad),
                FieldRule("\(android)/notification/notification_count", .integer(0...maximum), bad),
            ],
            codes: [
                .access: (401, "UNAUTHENTICATED"), .expired: (401, "UNAUTHENTICATED"), .app: (403, "PERMISSION_DENIED"),
                .field: (400, bad), .tooLarge: (400, bad), .tooFast: (429, "QUOTA_EXCEEDED"),
                .quota: (429, "QUOTA_EXCEEDED"), .unregistered: (404, "UNREGISTERED"), .malformed: (400, bad),
                .foreign: (403, "SENDER_ID_MISMATCH"),
            ])
    }()

    /// The codes that Huawei's services share.
    ///
    /// Flow control is HTTP status 503.
    private static let huawei: [Fault: (status: Int, code: String)] = [
        .access: (200, "80200001"), .expired: (200, "80200003"), .app: (200, "80300002"), .field: (200, "80100003"),
        .tooLarge: (200, "80300008"), .tooFast: (503, ""), .quota: (503, ""), .unregistered: (200, "80300007"),
        .malformed: (200, "80300007"), .foreign: (200, "80300007"),
    ]

    /// The rules that HMS and Honor share; `badge` has the names of its members for an increment, a number and a class.
    private static func clickRules(_ shown: String, _ click: String, _ badge: (String, String, String)) -> [FieldRule] {
        let bad = "80100003"
        return [
            FieldRule("\(shown)/title", .text(1...4_096), bad, missing: bad),
            FieldRule("\(shown)/body", .text(1...4_096), bad, missing: bad),
            FieldRule("\(shown)/" + click, .object("type intent url action"), bad, missing: bad),
            FieldRule("\(shown)/\(click)/type", .integer(1...3), bad, missing: bad),
            FieldRule("\(shown)/\(click)", .anyOf("intent action"), bad, when: ("\(shown)/\(click)/type", "1")),
            FieldRule(
                "\(shown)/\(click)/url", .url("https"), bad, missing: bad, when: ("\(shown)/\(click)/type", "2")),
            FieldRule("\(shown)/image", .url("https"), bad), FieldRule("\(shown)/style", .among("0 1 3"), bad),
            FieldRule("\(shown)/importance", .among("LOW NORMAL HIGH"), bad),
            FieldRule("\(shown)/badge", .object("\(badge.0) \(badge.1) \(badge.2)"), bad),
            FieldRule("\(shown)/badge/\(badge.0)", .integer(1...99), bad),
            FieldRule("\(shown)/badge/\(badge.1)", .integer(0...99), bad),
        ]
    }

    private static let hms = {
        let bad = "80100003"
        let (android, shown) = ("message/android", "message/android/notification")
        return VendorPage(
            tokenPath: "/oauth2/v3/token", sendPath: "/v1/*/messages:send", target: "message/token",
            titles: ["\(shown)/title"], texts: ["\(shown)/body"], data: ["message/android/data", "message/data"],
            limit: (4_096, []),
            rules: [
                FieldRule("", .object("validate_only message review"), bad),
                FieldRule(
                    "message", .object("data notification android apns webpush token topic condition"), bad,
                    missing: "80300010"),
                FieldRule("message/token", .tokens, "80300010", missing: "80300010"),
                FieldRule("message", .anyOf("data android"), bad), FieldRule("message/data", .text(1...65_536), bad),
                FieldRule(
                    android,
                    .object(
                        "collapse_key urgency category ttl bi_tag receipt_id fast_app_target data notification "
                            + "target_user_type extra_config"), bad),
                FieldRule("\(android)/collapse_key", .integer(-1...100), "80100013"),
                FieldRule("\(android)/ttl", .seconds(1...1_296_000), "80100004"),
                FieldRule("\(android)/urgency", .among("HIGH NORMAL"), bad),
                FieldRule("\(android)/category", .among(categories), bad),
                FieldRule("\(android)/target_user_type", .integer(0...1), bad),
                FieldRule("\(shown)/big_title", .text(1...4_096), bad, missing: bad, when: ("\(shown)/style", "1")),
                FieldRule("\(shown)/big_body", .text(1...4_096), bad, missing: bad, when: ("\(shown)/style", "1")),
                FieldRule("\(shown)/notify_id", .integer(0...maximum), bad),
                FieldRule("\(shown)/foreground_show", .flag, bad),
            ] + clickRules(shown, "click_action", ("add_num", "set_num", "class")), codes: huawei)
    }()

    private static let harmony = {
        let bad = "80100003"
        let shown = "payload/notification"
        return VendorPage(
            sendPath: "/v3/*/messages:send", target: "target/token", titles: ["\(shown)/title"],
            texts: ["\(shown)/body"], data: ["\(shown)/clickAction/data", "payload/extraData"], limit: (4_096, []),
            rules: [
                FieldRule("", .object("payload target pushOptions"), bad),
                FieldRule("target", .object("token"), bad, missing: bad),
                FieldRule("target/token", .tokens, "80300010", missing: "80300010"),
                FieldRule("payload", .object(""), bad, missing: bad),
                FieldRule(
                    "payload", .anyOf("notification extraData formData activityId"), bad),
                FieldRule(
                    "pushOptions", .object("testMessage ttl biTag receiptId collapseKey backgroundMode"), bad),
                FieldRule("pushOptions/testMessage", .flag, bad),
                FieldRule("pushOptions/ttl", .integer(1...1_296_000), "80100004"),
                FieldRule("pushOptions/biTag", .text(0...64), bad),
                FieldRule("pushOptions/collapseKey", .integer(-1...100), "80100013"),
                FieldRule(
                    shown,
                    .object(
                        "category title body image style notifyId appMessageId profileId inboxContent clickAction badge "
                            + "sound soundDuration foregroundShow notifySlotType slotType multiLangKey titleLocKey "
                            + "titleLocArgs bodyLocKey bodyLocArgs"), bad),
                FieldRule("\(shown)/category", .among(categories), bad, missing: bad),
                FieldRule("\(shown)/title", .text(1...4_096), bad, missing: bad),
                FieldRule("\(shown)/body", .text(1...4_096), bad, missing: bad),
                FieldRule("\(shown)/clickAction", .object("actionType action uri data"), bad, missing: bad),
                FieldRule("\(shown)/clickAction/actionType", .integer(0...1), bad, missing: bad),
                FieldRule(
                    "\(shown)/clickAction", .anyOf("action uri"), bad, when: ("\(shown)/clickAction/actionType", "1")),
                FieldRule("\(shown)/clickAction/data", .object(""), bad),
                FieldRule("\(shown)/badge/addNum", .integer(1...99), bad),
                FieldRule("\(shown)/badge/setNum", .integer(0...99), bad),
                FieldRule("\(shown)/notifyId", .integer(0...maximum), bad),
                FieldRule("\(shown)/foregroundShow", .flag, bad), FieldRule("\(shown)/image", .url("https"), bad),
                FieldRule("\(shown)/appMessageId", .text(1...64), bad),
            ],
            codes: huawei.merging([
                .access: (401, "80200001"), .expired: (401, "80200005"), .app: (401, "80200001"),
                .field: (400, bad), .tooLarge: (400, "80300008"), .unregistered: (400, "80300007"),
                .malformed: (400, "80300007"), .foreign: (400, "80300007"),
            ]) { $1 })
    }()

    private static let honor = {
        let bad = "80100003"
        let shown = "android/notification"
        return VendorPage(
            tokenPath: "/auth/token", sendPath: "/api/v1/*/sendMessage", target: "token", titles: ["\(shown)/title"],
            texts: ["\(shown)/body"], data: ["android/data", "data"], limit: (4_096, []),
            rules: [
                FieldRule("", .object("token data notification android"), bad),
                FieldRule("token", .tokens, "80300010", missing: "80300010"),
                FieldRule("", .anyOf("data android"), bad),
                FieldRule("android", .object("ttl biTag targetUserType data notification"), bad),
                FieldRule("android/ttl", .seconds(1...1_296_000), "80100004"),
                FieldRule("android/targetUserType", .integer(0...1), bad),
                FieldRule(
                    shown,
                    .object(
                        "title body clickAction importance style bigTitle bigBody image badge notifyId tag group when "
                            + "buttons color icon channelId"), bad),
                FieldRule("\(shown)/bigTitle", .text(1...4_096), bad, missing: bad, when: ("\(shown)/style", "1")),
                FieldRule("\(shown)/bigBody", .text(1...4_096), bad, missing: bad, when: ("\(shown)/style", "1")),
                FieldRule("\(shown)/notifyId", .integer(0...maximum), bad),
            ] + clickRules(shown, "clickAction", ("addNum", "setNum", "badgeClass")),
            codes: huawei.merging([.tooFast: (200, "429"), .quota: (200, "429")]) { $1 })
    }()

    private static let xiaomi = {
        let (absent, bad, notice) = ("10016", "10017", ("pass_through", "0"))
        return VendorPage(
            sendPath: "/v3/message/regid", isForm: true, target: "registration_id", titles: ["title"],
            texts: ["description"], data: ["payload"], limit: (4_096, ["payload"]),
            rules: [
                FieldRule("registration_id", .text(1...512_000), absent, missing: absent),
                FieldRule("pass_through", .among("0 1"), bad),
                FieldRule("payload", .text(1...16_384), absent, missing: absent, when: ("pass_through", "1")),
                FieldRule("title", .text(1...49), "65009", missing: absent, when: notice),
                FieldRule("description", .text(1...127), "65009", missing: absent, when: notice),
                FieldRule("extra.channel_id", .text(1...128), "27001", missing: absent, when: notice),
                FieldRule("notify_type", .digits(-1...7), bad), FieldRule("notify_id", .digits(0...maximum), bad),
                FieldRule("time_to_live", .digits(0...1_209_600_000), bad),
                FieldRule("extra.notify_effect", .among("1 2 3"), bad),
                FieldRule(
                    "extra.intent_uri", .text(1...1_024), absent, missing: absent, when: ("extra.notify_effect", "2")),
                FieldRule(
                    "extra.web_uri", .url("http https"), bad, missing: absent, when: ("extra.notify_effect", "3")),
                FieldRule("extra.notify_foreground", .among("0 1"), bad),
                FieldRule("extra.callback.param", .text(0...64), bad),
                FieldRule("extra.callback.type", .digits(1...255), bad),
            ],
            codes: [
                .access: (200, "21301"), .app: (200, "22022"), .field: (200, bad), .tooLarge: (200, "65009"),
                .tooFast: (200, "10027"), .quota: (200, "10034"), .unregistered: (200, "20301"),
                .malformed: (200, "65003"), .foreign: (200, "10029"),
            ])
    }()

    private static let oppo = {
        let (absent, bad, one) = ("40", "41", "notification")
        let click = "notification/click_action_type"
        return VendorPage(
            tokenPath: "/server/v1/auth", sendPath: "/server/v1/message/notification/unicast",
            accessTokenSeconds: 86_400, isForm: true, target: "target_value", titles: ["\(one)/title"],
            texts: ["\(one)/content"], data: ["\(one)/action_parameters"],
            rules: [
                FieldRule("", .object("target_type target_value notification verify_registration_id"), bad),
                FieldRule("target_type", .integer(2...2), bad, missing: absent),
                FieldRule("target_value", .text(1...512), bad, missing: absent),
                FieldRule(
                    one,
                    .object(
                        "app_message_id style big_picture_id small_picture_id title sub_title content click_action_type "
                            + "click_action_activity click_action_url action_parameters show_time_type show_start_time "
                            + "show_end_time off_line off_line_ttl push_time_type push_start_time time_zone fix_speed "
                            + "fix_speed_rate network_type call_back_url call_back_parameter channel_id show_ttl "
                            + "notify_id auditResponse category notify_level private_msg_template_id "
                            + "private_title_parameters private_content_parameters badge_operation_type "
                            + "badge_message_count"), bad, missing: absent),
                FieldRule("\(one)/style", .among("1 2"), bad),
                FieldRule("\(one)/title", .text(1...50), bad, missing: absent),
                FieldRule("\(one)/content", .text(1...128), bad, missing: absent),
                FieldRule("\(one)/content", .text(1...50), bad, when: ("\(one)/style", "1")),
                FieldRule(click, .among("0 1 2 4 5"), bad),
                FieldRule("\(one)/click_action_activity", .text(1...500), bad, missing: absent, when: (click, "1")),
                FieldRule("\(one)/click_action_activity", .text(1...500), bad, missing: absent, when: (click, "4")),
                FieldRule("\(one)/click_action_url", .text(1...2_000), bad, missing: absent, when: (click, "2")),
                FieldRule("\(one)/click_action_url", .text(1...2_000), bad, missing: absent, when: (click, "5")),
                FieldRule("\(one)/action_parameters", .json, bad),
                FieldRule("\(one)/action_parameters", .text(0...4_000), bad),
                FieldRule("\(one)/off_line", .flag, bad),
                FieldRule("\(one)/off_line_ttl", .integer(0...864_000), bad),
                FieldRule("\(one)/notify_id", .integer(0...maximum), bad),
                FieldRule("\(one)/notify_level", .among("1 2 16"), bad),
                FieldRule("\(one)/call_back_url", .url("http https"), bad),
                FieldRule("\(one)/call_back_parameter", .text(0...100), bad),
            ],
            codes: [
                .access: (200, "11"), .expired: (200, "11"), .field: (200, bad), .tooLarge: (200, bad),
                .tooFast: (200, "13"), .quota: (200, "33"), .unregistered: (200, "10000"), .malformed: (200, "10000"),
                .foreign: (200, "10000"),
            ])
    }()

    private static let vivo = {
        let bad = "10040"
        let (operations, systems) = (
            "NEWS CONTENT MARKETING SOCIAL", "IM ACCOUNT TODO DEVICE_REMINDER ORDER SUBSCRIPTION"
        )
        return VendorPage(
            tokenPath: "/message/auth", sendPath: "/message/send", accessTokenSeconds: 86_400, target: "regId",
            titles: ["title"], texts: ["content"], data: ["clientCustomMap"],
            rules: [
                FieldRule(
                    "",
                    .object(
                        "appId regId alias notifyType title content timeToLive skipType skipContent networkType "
                            + "classification category clientCustomMap extra requestId pushMode auditReview notifyId "
                            + "sendOnline foregroundShow profileId"), bad),
                FieldRule("regId", .text(1...512), "10302", missing: "10050"),
                FieldRule("notifyType", .integer(1...4), "10054", missing: "10054"),
                FieldRule("title", .text(1...40), "10056", missing: "10055"),
                FieldRule("content", .text(1...100), "10058", missing: "10057"),
                FieldRule("timeToLive", .integer(60...604_800), "10059"),
                FieldRule("skipType", .integer(1...4), "10060", missing: "10060"),
                FieldRule("skipContent", .text(1...1_000), "10062", missing: "10061", when: ("skipType", "2")),
                FieldRule("skipContent", .text(1...1_024), "10062", missing: "10061", when: ("skipType", "3")),
                FieldRule("skipContent", .text(1...1_024), "10062", missing: "10061", when: ("skipType", "4")),
                FieldRule("networkType", .among("-1 1"), "10063"),
                FieldRule("requestId", .text(1...64), "10064", missing: "10064"),
                FieldRule("classification", .integer(0...1), "10065"),
                FieldRule("category", .among("\(operations) \(systems)"), "10096"),
                FieldRule("category", .among(operations), "10097", when: ("classification", "0")),
                FieldRule("category", .among(systems), "10097", when: ("classification", "1")),
                FieldRule("clientCustomMap", .data, "10066"), FieldRule("extra/callback", .text(0...128), "10067"),
                FieldRule("extra/callback.param", .text(0...64), "10067"),
                FieldRule("pushMode", .integer(0...1), "10068"), FieldRule("notifyId", .integer(0...maximum), "10069"),
            ],
            codes: [
                .access: (200, "10000"), .expired: (200, "10000"), .app: (200, "10094"), .field: (200, bad),
                .tooLarge: (200, bad), .tooFast: (200, "10072"), .quota: (200, "10070"), .unregistered: (200, "0"),
                .malformed: (200, "10302"), .foreign: (200, "10302"),
            ])
    }()

    private static let meizu = {
        let (bad, click) = ("1005", "clickTypeInfo/clickType")
        return VendorPage(
            sendPath: "/garcia/api/server/push/varnished/pushByPushId", isForm: true, target: "",
            titles: ["noticeBarInfo/title"], texts: ["noticeBarInfo/content"], data: ["clickTypeInfo/parameters"],
            rules: [
                FieldRule(
                    "",
                    .object("noticeBarInfo noticeExpandInfo clickTypeInfo pushTimeInfo advanceInfo extra"), bad),
                FieldRule("noticeBarInfo", .object(""), bad, missing: bad),
                FieldRule("noticeBarInfo/title", .text(1...32), bad, missing: bad),
                FieldRule("noticeBarInfo/content", .text(1...100), bad, missing: bad),
                FieldRule("noticeExpandInfo/noticeExpandType", .among("0 1"), bad),
                FieldRule(click, .integer(0...3), bad),
                FieldRule("clickTypeInfo/activity", .text(1...1_000), bad, missing: bad, when: (click, "1")),
                FieldRule("clickTypeInfo/url", .text(1...1_000), bad, missing: bad, when: (click, "2")),
                FieldRule("clickTypeInfo/parameters", .object(""), bad),
                FieldRule("pushTimeInfo/offLine", .integer(0...1), bad),
                FieldRule("pushTimeInfo/validTime", .integer(1...72), bad),
            ],
            codes: [
                .access: (200, "1006"), .app: (200, "110000"), .field: (200, bad), .tooLarge: (200, bad),
                .tooFast: (200, "110010"), .quota: (200, "110010"), .unregistered: (200, "110002"),
                .malformed: (200, "110003"), .foreign: (200, "110003"),
            ])
    }()

    private static let webPush = VendorPage(
        sendPath: "/push/*", target: "", titles: ["notification/title"], texts: ["notification/body"], data: [""],
        rules: [],
        codes: [
            .access: (401, "401"), .expired: (401, "401"), .app: (403, "403"), .field: (400, "400"),
            .tooLarge: (413, "413"), .tooFast: (429, "429"), .quota: (429, "429"), .unregistered: (410, "410"),
            .malformed: (404, "404"), .foreign: (403, "403"),
        ])
}
