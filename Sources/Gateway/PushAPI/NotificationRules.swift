// Getui's rules for `push_message.notification`. iOS does not show this object. It is validated as Getui validates it, and its
// JSON is the message's payload.

internal import JSON
internal import TextForms

enum NotificationRules {
    private static let textLimits: [(name: StaticString, count: Int)] = [
        ("title", 50), ("body", 256), ("big_text", 512), ("big_image", 1_024), ("logo", 64), ("logo_url", 256),
        ("channel_id", 64), ("channel_name", 64), ("intent", 4_096), ("url", 1_024), ("payload", 3_072),
    ]
    static let clickTypes: [StaticString] = ["intent", "url", "payload", "payload_custom", "startapp", "none"]

    static let harmonyClickTypes = clickTypes + ["want"]

    /// The changes of a badge that every vendor accepts.
    static let vendorBadges: ClosedRange<Int64> = 1...99

    static func check(
        _ notification: JSONValue, clickTypes: [StaticString] = NotificationRules.clickTypes,
        badges: ClosedRange<Int64> = 1...2_147_483_647
    ) throws(GetuiFault) {
        guard notification.kind == .object else { throw .type("notification") }
        for name in ["title", "body"] as [StaticString] {
            guard let text = notification[name] else { throw .null("\(name)") }
            if text.equals("") { throw .empty("\(name)") }
        }
        for (name, limit) in textLimits {
            guard let text = notification[name]?.given else { continue }
            if text.stringBytes == nil, text.lenientText.map({ $0.utf8.count <= limit }) == true { continue }
            guard let bytes = text.stringBytes else { throw .type("\(name)") }
            guard let count = scalarCount(bytes) else { throw .invalid("\(name)", "not valid Unicode") }
            guard count <= limit else { throw .size("\(name)", "at most \(limit) characters") }
        }
        if notification["big_text"]?.given != nil, notification["big_image"]?.given != nil {
            throw .parameter("choose one of big_text and big_image")
        }
        guard let clickType = notification["click_type"] else { throw .null("click_type") }
        guard clickTypes.contains(where: { clickType.equals($0) }) else {
            throw .invalid("click_type", "one of \(clickTypes.map { "\($0)" }.joined(separator: ", "))")
        }
        try check("channel_level", in: 0...4, notification["channel_level"])
        try check("notify_id", in: 0...2_147_483_647, notification["notify_id"])
        try check("badge_add_num", in: badges, notification["badge_add_num"])
    }

    /// Checks the members that the vendors' requests need beyond Getui's rules.
    static func checkForVendors(_ notification: JSONValue) throws(GetuiFault) {
        for (clickType, needed) in neededByClick where notification["click_type"]?.equals(clickType) == true {
            guard let text = notification[needed]?.given else { throw .null("\(needed)") }
            guard text.stringBytes != nil || text.lenientText != nil else { throw .type("\(needed)") }
        }
        if let want = notification["want"]?.given {
            guard let count = want.stringBytes?.count else { throw .type("want") }
            guard count <= 4_096 else { throw .size("want", "at most 4096 bytes") }
        }
        if let category = notification["category"]?.given {
            guard let text = category.lenientText else { throw .type("category") }
            guard text.unicodeScalars.count <= 64 else { throw .size("category", "at most 64 characters") }
        }
        if let slot = notification["slot_type"]?.given, !slotTypes.contains(where: { slot.equals($0) }) {
            guard let number = slot.lenientInteger, 0...65_535 ~= number else {
                let names = slotTypes.map { "\($0)" }.joined(separator: ", ")
                throw .invalid("slot_type", "0 to 65535, or one of \(names)")
            }
        }
    }

    /// HarmonyOS's names of `NotificationSlot` types; the sender has their numbers.
    private static let slotTypes: [StaticString] = [
        "UNKNOWN_TYPE", "SOCIAL_COMMUNICATION", "SERVICE_INFORMATION", "CONTENT_INFORMATION", "LIVE_VIEW",
        "CUSTOMER_SERVICE", "OTHER_TYPES",
    ]

    /// The member that a notification of each click type must have.
    private static let neededByClick: [(clickType: StaticString, member: StaticString)] = [
        ("intent", "intent"), ("url", "url"), ("payload", "payload"), ("payload_custom", "payload"), ("want", "want"),
    ]

    /// Whether a member must be a text; SDKs of untyped languages send numbers for some.
    static func isText(_ name: JSONValue) -> Bool {
        textLimits.contains { name.equals($0.name) } || name.equals("category")
    }

    /// The keys that an alert need not show: title and body are compared, and the others control an Android notification's
    /// appearance.
    private static let presentation: [StaticString] = [
        "title", "body", "click_type", "logo", "logo_url", "channel_id", "channel_name", "channel_level", "ring_name",
        "badge_add_num", "notify_id", "thread_id", "category", "redisplay_freq", "redisplay_duration", "want",
        "slot_type",
    ]

    /// Whether an alert with this title and body shows everything in a notification.
    static func isShown(
        _ notification: JSONValue, title: UnsafeRawBufferPointer, body: UnsafeRawBufferPointer, _ numbers: NumberTexts
    ) -> Bool {
        for (name, shown) in [("title", title), ("body", body)] as [(StaticString, UnsafeRawBufferPointer)] {
            guard let text = notification[name].flatMap({ numbers.bytes(of: $0) }), text.elementsEqual(shown) else {
                return false
            }
        }
        return notification.members.allSatisfy { key, value in
            !value.hasContent || value.equals("") || presentation.contains { key.equals($0) }
        }
    }

    private static func check(
        _ name: String, in range: ClosedRange<Int64>, _ value: JSONValue?
    ) throws(GetuiFault) {
        guard let value = range.contains(0) ? value?.given : value?.givenNonzero else { return }
        guard let number = value.lenientInteger, range.contains(number) else {
            throw .invalid(name, "\(range.lowerBound) to \(range.upperBound)")
        }
    }
}
