import Wire

/// Writes protobuf's text format exactly as `protoc --decode` prints it, with the schema's names.
///
/// It is independent of the codec's field tables, so that the codec is compared with a second implementation.
struct TextFormat {
    private(set) var text = ""
    private var indentation = ""

    private mutating func line(_ content: String) { text += "\(indentation)\(content)\n" }

    mutating func number<Number: FixedWidthInteger>(_ name: String, _ value: Number) {
        if value != 0 { line("\(name): \(value)") }
    }

    mutating func flag(_ name: String, _ value: Bool) {
        if value { line("\(name): true") }
    }

    /// Writes an `optional` field whenever it is present.
    mutating func present(_ name: String, _ value: (some CustomStringConvertible)?) {
        if let value { line("\(name): \(value)") }
    }

    /// Writes an enum's value by its schema name; the first name is the default.
    mutating func name(_ field: String, _ value: UInt8, of names: [String]) {
        if value != 0 { line("\(field): \(names[Int(value)])") }
    }

    mutating func bytes(_ name: String, _ value: some Collection<UInt8>) {
        if !value.isEmpty { element(name, value) }
    }

    mutating func text(_ name: String, _ value: String) { bytes(name, Array(value.utf8)) }

    mutating func identifier(_ name: String, _ value: some WideIdentifier) {
        if !value.isNone { element(name, value.bytes) }
    }

    mutating func element(_ name: String, _ value: some Collection<UInt8>) {
        var escaped = ""
        for byte in value {
            switch byte {
            case UInt8(ascii: "\n"): escaped += "\\n"
            case UInt8(ascii: "\r"): escaped += "\\r"
            case UInt8(ascii: "\t"): escaped += "\\t"
            case UInt8(ascii: "\""): escaped += "\\\""
            case UInt8(ascii: "'"): escaped += "\\'"
            case UInt8(ascii: "\\"): escaped += "\\\\"
            case 0x20..<0x7F: escaped.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                let digits = String(byte, radix: 8)
                escaped += "\\" + String(repeating: "0", count: 3 - digits.count) + digits
            }
        }
        line("\(name): \"\(escaped)\"")
    }

    mutating func message(_ name: String, _ value: (some TextFormatted)?) {
        guard let value else { return }
        line("\(name) {")
        indentation += "  "
        value.write(to: &self)
        indentation.removeLast(2)
        line("}")
    }

    mutating func messages(_ name: String, _ values: [some TextFormatted]) {
        for value in values { message(name, value) }
    }
}

protocol TextFormatted {
    func write(to text: inout TextFormat)
}

private let states = ["FOREGROUND", "BACKGROUND", "TERMINATED"]

extension VendorToken: TextFormatted {
    func write(to text: inout TextFormat) {
        text.name("kind", kind.rawValue, of: ["ALERT", "VOIP", "LIVE_ACTIVITY", "LIVE_ACTIVITY_START"])
        text.name("environment", environment.rawValue, of: ["PRODUCTION", "SANDBOX"])
        text.text("topic", topic)
        text.text("token", token)
        text.name(
            "channel", channel.rawValue,
            of: ["APNS", "FCM", "HMS", "HARMONY", "HONOR", "XIAOMI", "OPPO", "VIVO", "MEIZU", "WEB_PUSH"])
        text.text("activity", activity)
    }
}

extension SequenceRange: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("first", first)
        text.number("last", last)
    }
}

extension StreamPosition: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("stream", stream)
        text.number("sequence", sequence)
        text.messages("ranges", ranges)
    }
}

extension Hello: TextFormatted {
    func write(to text: inout TextFormat) {
        text.text("app_id", appID)
        text.name("role", role.rawValue, of: ["ROLE_DEVICE", "ROLE_SENDER"])
        text.identifier("cid", cid)
        text.flag("registration", registration)
        text.number("timestamp", timestamp)
        text.bytes("proof", proof)
        text.number("queue_epoch", queueEpoch)
        text.messages("positions", positions)
        text.name("application_state", applicationState.rawValue, of: states)
        text.flag("keeps_running", keepsRunning)
        text.number("heartbeat_seconds", heartbeatSeconds)
        text.present("badge", badge)
        text.messages("tokens", tokens)
        for id in opened { text.element("opened", id.isNone ? [] : id.bytes) }
        text.flag("replay_opened", replayOpened)
        text.text("client", client)
        text.number("window", window)
        text.bytes("nonce", nonce)
        text.text("registration_token", registrationToken)
        text.message("attributes", attributes)
    }
}

extension DeviceAttributes: TextFormatted {
    func write(to text: inout TextFormat) {
        text.name(
            "platform", platform.rawValue,
            of: ["PLATFORM_UNKNOWN", "ANDROID", "IOS", "HARMONY", "WEB", "MINI_PROGRAM", "OTHER"])
        text.text("brand", brand)
        text.text("model", model)
        text.text("system_version", systemVersion)
        text.text("app_version", appVersion)
        text.text("locale", locale)
        text.text("time_zone", timeZone)
        text.name(
            "notification_permission", notificationPermission.rawValue, of: ["PERMISSION_UNKNOWN", "ALLOWED", "DENIED"])
    }
}

extension Dropped: TextFormatted {
    func write(to text: inout TextFormat) {
        text.text("reason", reason)
        text.number("count", count)
    }
}

extension Welcome: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("generation", generation)
        text.number("queue_epoch", queueEpoch)
        text.number("heartbeat_seconds", heartbeatSeconds)
        text.number("window", window)
        text.number("server_time", serverTime)
        text.number("backlog", backlog)
        text.messages("dropped", dropped)
        text.identifier("cid", cid)
        text.bytes("device_secret", deviceSecret)
    }
}

extension Close: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("code", code)
        text.text("reason", reason)
        text.number("retry_after_min_ms", retryAfterMinimum)
        text.number("retry_after_max_ms", retryAfterMaximum)
        text.text("alternate", alternate)
        text.number("server_time", serverTime)
    }
}

extension Ping: TextFormatted {
    func write(to text: inout TextFormat) { text.number("nonce", nonce) }
}

extension Pong: TextFormatted {
    func write(to text: inout TextFormat) { text.number("nonce", nonce) }
}

extension Alert: TextFormatted {
    func write(to text: inout TextFormat) {
        text.text("title", title)
        text.text("body", body)
    }
}

extension Deliver: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("stream", stream)
        text.number("sequence", sequence)
        text.identifier("msg_id", messageID)
        text.identifier("task_id", taskID)
        text.bytes("payload", payload)
        text.flag("offline", offline)
        text.number("accepted_at", acceptedAt)
        text.number("alerted_at", alertedAt)
        text.number("attempt", attempt)
        text.text("collapse_key", collapseKey)
        text.message("alert", alert)
        text.flag("carried_by_vendor", carriedByVendor)
    }
}

extension Rejected: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("stream", stream)
        text.number("sequence", sequence)
        text.text("reason", reason)
    }
}

extension Ack: TextFormatted {
    func write(to text: inout TextFormat) {
        text.messages("positions", positions)
        text.messages("rejected", rejected)
    }
}

extension DeviceUpdate: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("request", request)
        text.present("application_state", applicationState.map { states[Int($0.rawValue)] })
        text.present("keeps_running", keepsRunning)
        text.present("badge", badge)
        text.messages("tokens", tokens)
        text.present("push_mode_off", pushModeOff)
        text.number("heartbeat_seconds", heartbeatSeconds)
    }
}

extension UpdateResult: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("request", request)
        text.number("code", code)
        text.text("reason", reason)
        text.number("heartbeat_seconds", heartbeatSeconds)
    }
}

extension Feedback: TextFormatted {
    func write(to text: inout TextFormat) {
        text.name("kind", kind.rawValue, of: ["OPENED", "SHOWN", "ACTION"])
        text.identifier("msg_id", messageID)
        text.number("action", action)
    }
}

extension Revoke: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("sequence", sequence)
        text.identifier("msg_id", messageID)
        text.identifier("task_id", taskID)
        text.identifier("revoked_task_id", revokedTaskID)
    }
}

extension Upstream: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("request", request)
        text.bytes("payload", payload)
        text.identifier("task_id", taskID)
    }
}

extension UpstreamResult: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("request", request)
        text.number("code", code)
        text.text("reason", reason)
    }
}

extension DeviceNames: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("request", request)
        text.name(
            "operation", operation.rawValue,
            of: ["QUERY", "BIND_ALIAS", "UNBIND_ALIAS", "SET_TAGS", "ADD_TAGS", "REMOVE_TAGS"])
        text.text("alias", alias)
        text.text("alias_type", aliasType)
        for tag in tags { text.element("tags", tag.utf8) }
        text.text("token", token)
    }
}

extension DeviceNamesResult: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("request", request)
        text.number("code", code)
        text.text("reason", reason)
        text.text("alias", alias)
        for tag in tags { text.element("tags", tag.utf8) }
    }
}

extension Publish: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("request", request)
        text.identifier("cid", cid)
        text.bytes("payload", payload)
        text.present("ttl_ms", timeToLive)
        text.flag("has_ttl", hasTimeToLive)
        text.number("strategy", strategy)
        text.text("collapse_key", collapseKey)
        text.text("request_id", requestID)
        text.message("alert", alert)
        text.bytes("apns", apns)
    }
}

extension PublishResult: TextFormatted {
    func write(to text: inout TextFormat) {
        text.number("request", request)
        text.number("code", code)
        text.text("reason", reason)
        text.identifier("msg_id", messageID)
        text.identifier("task_id", taskID)
        text.flag("live", live)
        text.number("fallback", fallback)
        text.text("fallback_reason", fallbackReason)
        text.flag("fsync", fsync)
        text.flag("ids_only", idsOnly)
    }
}
