internal import JSON

/// The response codes that HMS Push Kit, HarmonyOS Push Kit and Honor share.
///
/// Sources: https://developer.huawei.com/consumer/cn/doc/harmonyos-references/push-scenariozed-api-response and
/// https://developer.huawei.com/consumer/cn/doc/HMSCore-References/https-send-api-0000001050986197.
enum HuaweiCodes {
    /// - Returns: the outcome of a documented code, or `nil`.
    static func outcome(_ code: String, message: String, token: String) -> VendorOutcome? {
        let reason = PeerText.reason(code)
        switch code {
        case "80100000", "80300007": return outcome(ofTokens: code, message, token)
        case "80100001", "80100002", "80100003", "80100004", "80100013", "80100016", "80100018", "80100022",
            "80300008", "80300010", "80300011", "80300013", "80300030":
            return .rejected(reason: reason)
        case "80100017", "80600003", "81000001": return .retry(afterSeconds: nil, reason: reason)
        case "80200001", "80200003", "80200005": return .renewToken(reason: reason)
        case "80300029": return .tooFast(afterSeconds: ReplyReading.rateLimitSeconds, reason: reason)
        case "80300002":
            return .credentialRefused(
                reason: reason, advice: "enable Push Kit for this app, and check the app id or project id")
        case "80300036":
            return .credentialRefused(reason: reason, advice: "set this machine's clock: the token ends too late")
        case "80300037":
            return .credentialRefused(reason: reason, advice: "the app is blocked: resolve it in AppGallery Connect")
        default: return nil
        }
    }

    /// The words by which Huawei explains a refused token; only some of them concern the token itself.
    private static let tokenWords = ["tokenFormatError", "tokenPlatformNotSupport"]
    private static let appWords = ["disableSendHuaweiMsgBecauseOfPenalty", "appinfoError"]
    private static let messageWords = [
        "noPushTypeRight", "noRightToSendThisLiveNotificationEvent", "atomicUnableSendUnsubscribedMsg",
        "countryNotSupport", "differentImgVerifyPolicy", "notSupportPlayVoice",
        // A token of another project. A wrong project id in the settings must not void every token.
        "noRight",
    ]

    private static func outcome(ofTokens code: String, _ message: String, _ token: String) -> VendorOutcome {
        if let word = tokenWords.first(where: message.contains) {
            return .badToken(reason: PeerText.reason(code, word))
        }
        if let word = appWords.first(where: message.contains) {
            return .credentialRefused(
                reason: PeerText.reason(code, word), advice: "the app is blocked or missing in AppGallery Connect")
        }
        if let word = messageWords.first(where: message.contains) {
            return .rejected(reason: PeerText.reason(code, word))
        }
        if code == "80300007" { return .badToken(reason: PeerText.reason(code)) }
        // Partial success of a request with one token: `msg` counts the tokens and lists the refused ones.
        if !token.isEmpty, message.contains(token) { return .badToken(reason: PeerText.reason(code)) }
        let counts = JSONTree.parsing(Array(message.utf8), byteLimit: VendorReply.bodyByteCount) { value in
            value["failure"]?.lenientInteger
        }
        switch counts {
        case 0?: return .accepted(vendorID: "")
        case .some: return .badToken(reason: PeerText.reason(code))
        case nil: return .unknown(reason: PeerText.reason(code))
        }
    }

    /// Reads `{"code", "msg", "requestId"}` of HMS and HarmonyOS.
    static func outcome(of reply: VendorReply, vendor: Vendor, token: String, now: Int64) -> VendorOutcome {
        // HTTP 503 is flow control, whatever the body says.
        if reply.status == 503 { return flowControl(reply, now: now) }
        return ReplyReading.outcome(reply, vendor: vendor, now: now) { value in
            guard let code = value["code"]?.lenientText else { return nil }
            let id = PeerText.bounded(value["requestId"]?.lenientText ?? "")
            if code == "80000000" { return .accepted(vendorID: id) }
            let known = outcome(code, message: value["msg"]?.string ?? "", token: token)
            if case .accepted? = known { return .accepted(vendorID: id) }
            return known ?? ReplyReading.outcomeOfUnknownCode(code, reply, vendor: vendor, now: now)
        }
    }

    static func flowControl(_ reply: VendorReply, now: Int64) -> VendorOutcome {
        .tooFast(afterSeconds: ReplyReading.retryAfter(reply, now: now) ?? 5, reason: "HTTP503")
    }
}

/// The click action that HMS and Honor share.
enum HuaweiClick {
    static func rendered(_ click: PushContent.Click, _ checks: MessageChecks) throws(VendorRefusal) -> JSONTree {
        switch click {
        case .intent(let text):
            return IntentText(text).isURI
                ? ["type": 1, "intent": .string(text)] : ["type": 1, "action": .string(text)]
        case .url(let url):
            try checks.url(url)
            return ["type": 2, "url": .string(url)]
        // The services know no notification without an action.
        case .startApp, .payload, .none: return ["type": 3]
        }
    }
}
