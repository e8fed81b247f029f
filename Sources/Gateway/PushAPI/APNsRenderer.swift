// Renders the body for APNs once per task, from Getui's `push_channel.ios`, from a title and body, or as a silent push. The JSON
// has two placeholders: for the msgId's 32 digits and for the badge. The app's template supplies values that the publisher omits.

internal import Delivery
internal import JSON
internal import TextForms
internal import Wire

/// A rendered notification.
///
/// The body is in the writer; the pointers are valid as long as the parsed document.
struct APNsContent {
    var shape: MessageContent.Vendor
    var collapseID = UnsafeRawBufferPointer(start: nil, count: 0)
    /// The alert's texts for the live channel, so that a foreground app can show the alert.
    var alertTitle = UnsafeRawBufferPointer(start: nil, count: 0)
    var alertBody = UnsafeRawBufferPointer(start: nil, count: 0)
    /// The part of the message that the body omits; `nil` if the body is complete.
    var omission: VendorOmission?
}

struct APNsRenderer {
    let task: TaskID
    let template: APNsTemplate
    let numbers: NumberTexts
    /// The live channel's payload, which the body carries if the publisher gives no `payload`; `nil` for a notification.
    let transmission: CarriedTransmission?

    private static let messageIDHole: StaticString = "00000000000000000000000000000000"

    /// The keys of `push_channel.ios` that Getui documents.
    private static let keys: [StaticString] = [
        "type", "aps", "auto_badge", "payload", "multimedia", "apns-collapse-id", "laId",
    ]
    /// The top-level keys that a publisher's members must not replace.
    private static let reservedKeys: [StaticString] = ["aps", "_gmid_", "longwire_media"]

    /// The destination of a member of `push_channel.ios`.
    enum Place {
        /// The key is documented, or its value is empty.
        case known
        /// The member is copied beside `aps` unchanged.
        case topLevel
        /// The member is dropped, because its key is reserved.
        case nowhere
    }

    static func place(of key: JSONValue, _ value: JSONValue) -> Place {
        if keys.contains(where: { key.equals($0) }) || !value.hasContent { return .known }
        return isReserved(key) ? .nowhere : .topLevel
    }

    static func isReserved(_ key: JSONValue) -> Bool { reservedKeys.contains { key.equals($0) } }

    /// Renders a `push_channel.ios` object into the emptied `writer`; `nil` if it contains nothing to send.
    func render(ios: JSONValue, into writer: inout JSONWriter) throws(GetuiFault) -> APNsContent? {
        writer.removeAll()
        guard ios.hasContent else { return nil }
        guard ios.kind == .object else { throw .type("ios") }
        let kind = try Self.tokenKind(ios)
        let given = try Self.object(ios["aps"], "aps")
        let alert = try Self.alert(given)
        let aps = alert == nil && Self.saysNothing(given) ? nil : given
        let payload = try string(ios["payload"], "payload")
        let media = try Self.multimedia(ios["multimedia"])
        let badge = kind == .alert ? try Self.autoBadge(ios["auto_badge"]) : .none
        guard aps != nil || payload != nil || media != nil || badge != .none || kind == .liveActivity else {
            return nil
        }

        var content = Self.content(kind, badge)
        switch kind {
        case .alert: if let alert { (content.alertTitle, content.alertBody) = texts(of: alert) }
        case .voip: content.shape.pushType = .voip
        case .liveActivity, .liveActivityStart:
            content.shape.pushType = .liveActivity
            (content.shape.tokenKind, content.shape.activity) = try liveActivity(ios, aps)
        }
        content.collapseID = try collapseID(ios["apns-collapse-id"])

        writer.beginObject()
        var written = APSWriter(
            isActivity: kind == .liveActivity, hasBadge: badge != .none, hasMedia: media != nil)
        if aps != nil || badge != .none || media != nil {
            writer.key("aps")
            writer.beginObject()
            if let aps { try written.write(aps, hasAlert: alert != nil, to: &writer) }
            let isMutable = kind == .alert && alert != nil && template.alertsAreMutable && !written.namesMutable
            content.shape.badgeOffset = Self.endAPS(badge, isMutable: media != nil || isMutable, &writer)
        }
        if kind == .alert, !written.isNoticed {
            // Without `content-available`, the push would neither show anything nor wake the app.
            guard written.isContentAvailable else {
                throw .invalid("aps", "it needs an alert, a sound, a badge or content-available 1")
            }
            (content.shape.pushType, content.shape.priority) = (.background, 5)
        }
        try written.check(content.shape.pushType, content.shape.tokenKind)
        Self.writeTopLevel(of: ios, to: &writer)
        if let payload {
            writer.key("payload")
            writer.string(bytes: payload)
        }
        if let media {
            writer.key("longwire_media")
            writer.value(media)
        }
        // The body for a Live Activity carries no transmission, because the app cannot read keys beside `aps` in it.
        let isActivity = content.shape.pushType == .liveActivity
        if isActivity {
            content.omission = .liveActivity
        } else if let payload, let transmission, !payload.elementsEqual(transmission.bytes) {
            content.omission = .ownPayload
        }
        try close(&content, beside: ios, carrying: payload == nil && !isActivity ? transmission : nil, &writer)
        return content
    }

    /// Writes the members beside `aps`; the first of several equal keys is used, as in a request.
    private static func writeTopLevel(of ios: JSONValue?, to writer: inout JSONWriter) {
        guard let ios, ios.kind == .object else { return }
        var taken: Set<[UInt8]> = []
        for (key, value) in ios.members where place(of: key, value) == .topLevel {
            let name = key.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0)
            guard taken.insert(Array(name)).inserted else { continue }
            writer.key(bytes: name)
            writer.value(value)
        }
    }

    /// Renders a notification by the template into the emptied `writer`; the title and the body must not both be empty.
    ///
    /// Only the collapse id of `ios` and the members that are copied beside `aps` are used.
    func render(
        alertTitle: UnsafeRawBufferPointer, alertBody: UnsafeRawBufferPointer, beside ios: JSONValue?,
        into writer: inout JSONWriter
    ) throws(GetuiFault) -> APNsContent {
        writer.removeAll()
        var content = Self.content(.alert, template.badge)
        content.collapseID = try collapseID(ios?["apns-collapse-id"])
        writer.beginObject()
        writer.key("aps")
        writer.beginObject()
        writer.key("alert")
        writer.beginObject()
        if alertTitle.count > 0 {
            writer.key("title")
            writer.string(bytes: alertTitle)
        }
        if alertBody.count > 0 {
            writer.key("body")
            writer.string(bytes: alertBody)
        }
        writer.endObject()
        let texts: [(StaticString, String)] = [
            ("sound", template.sound), ("category", template.category), ("thread-id", template.threadID),
            ("interruption-level", template.interruptionLevel?.rawValue ?? ""),
        ]
        for (key, text) in texts where !text.isEmpty {
            writer.key(key)
            writer.string(text)
        }
        content.shape.badgeOffset = Self.endAPS(template.badge, isMutable: template.alertsAreMutable, &writer)
        (content.alertTitle, content.alertBody) = (alertTitle, alertBody)
        Self.writeTopLevel(of: ios, to: &writer)
        try close(&content, beside: ios, carrying: transmission, &writer)
        return content
    }

    /// Renders a silent push, which makes the app fetch its messages, into the emptied `writer`.
    ///
    /// Of `ios`, the same members are used as for a notification.
    func renderWakeUp(beside ios: JSONValue?, into writer: inout JSONWriter) throws(GetuiFault) -> APNsContent {
        writer.removeAll()
        var content = Self.content(.alert, .none)
        content.collapseID = try collapseID(ios?["apns-collapse-id"])
        (content.shape.pushType, content.shape.priority) = (.background, 5)
        writer.beginObject()
        writer.key("aps")
        writer.raw(#"{"content-available":1}"#)
        Self.writeTopLevel(of: ios, to: &writer)
        try close(&content, beside: ios, carrying: transmission, &writer)
        return content
    }

    private static func content(_ kind: TokenKind, _ badge: VendorContent.Badge) -> APNsContent {
        APNsContent(
            shape: MessageContent.Vendor(
                channel: .apns, tokenKind: kind, pushType: .alert, priority: 10, badge: badge, messageIDOffset: -1,
                badgeOffset: -1))
    }

    /// Ends the body with the transmission, if it fits, and with `_gmid_`, which Getui's client statistics read.
    ///
    /// - Throws: An error if the body exceeds APNs's limit even without the transmission.
    private func close(
        _ content: inout APNsContent, beside ios: JSONValue?, carrying transmission: CarriedTransmission?,
        _ writer: inout JSONWriter
    ) throws(GetuiFault) {
        let limit = bodyByteLimit(content.shape.pushType)
        let digits = content.shape.badgeOffset >= 0 ? Limits.badgeDigitCount : 0
        if let transmission {
            let mark = writer.mark
            content.omission = transmission.write(beside: ios, to: &writer)
            if writer.mark != mark || content.omission == nil {
                end(&content, &writer)
                if writer.bytes.count + digits <= limit { return }
                content.omission = .tooLarge
                writer.rewind(to: mark)
            }
        }
        end(&content, &writer)
        let byteCount = writer.bytes.count + digits
        guard byteCount <= limit else {
            throw .size("ios", "the APNs body has \(byteCount) bytes with the ids, at most \(limit)")
        }
    }

    private func end(_ content: inout APNsContent, _ writer: inout JSONWriter) {
        writer.key("_gmid_")
        writer.string("\(task.text):\(Self.messageIDHole)")
        content.shape.messageIDOffset = Int32(writer.bytes.count - 1 - Self.messageIDHole.utf8CodeUnitCount)
        writer.endObject()
    }

    /// - Returns: The offset of the badge's digits, or −1.
    private static func endAPS(_ badge: VendorContent.Badge, isMutable: Bool, _ writer: inout JSONWriter) -> Int32 {
        if isMutable {
            writer.key("mutable-content")
            writer.integer(Int64(1))
        }
        var offset: Int32 = -1
        if badge != .none {
            writer.key("badge")
            writer.hole()
            offset = Int32(writer.bytes.count)
        }
        writer.endObject()
        return offset
    }

    /// Whether an `aps` has only nulls, empty values and an empty alert, as untouched SDK objects do: `{"alert":[]}`.
    private static func saysNothing(_ aps: JSONValue?) -> Bool {
        aps?.members.contains { !$0.value.isEmpty && !$0.key.equals("alert") } != true
    }

    private static func tokenKind(_ ios: JSONValue) throws(GetuiFault) -> TokenKind {
        guard let type = ios["type"], !type.equals("") else { return .alert }
        guard type.kind == .string else { throw .type("type") }
        if type.equals("notify") { return .alert }
        if type.equals("voip") { return .voip }
        if type.equals("liveactivity") { return .liveActivity }
        throw .invalid("type", "one of notify, voip, liveactivity")
    }

    private static func object(_ value: JSONValue?, _ name: String) throws(GetuiFault) -> JSONValue? {
        guard let value, value.hasContent else { return nil }
        guard value.kind == .object else { throw .type(name) }
        return value
    }

    private func string(_ value: JSONValue?, _ name: String) throws(GetuiFault) -> UnsafeRawBufferPointer? {
        guard let value, value.hasContent else { return nil }
        guard let bytes = numbers.bytes(of: value) else { throw .type(name) }
        guard scalarCount(bytes) != nil else { throw .invalid(name, "not valid Unicode") }
        return bytes.count > 0 ? bytes : nil
    }

    /// Returns `aps.alert` if it is a text or a non-empty object.
    private static func alert(_ aps: JSONValue?) throws(GetuiFault) -> JSONValue? {
        guard let alert = aps?["alert"], !alert.isEmpty else { return nil }
        switch alert.kind {
        case .string: return alert
        case .object: return alert.members.contains { !$0.value.isEmpty } ? alert : nil
        default: throw .type("alert")
        }
    }

    private func texts(of alert: JSONValue) -> (UnsafeRawBufferPointer, UnsafeRawBufferPointer) {
        let none = UnsafeRawBufferPointer(start: nil, count: 0)
        if let text = alert.stringBytes { return (none, text) }
        return (
            alert["title"].flatMap { numbers.bytes(of: $0) } ?? none,
            alert["body"].flatMap { numbers.bytes(of: $0) } ?? none
        )
    }

    /// Returns the token kind for a Live Activity: the activity's own token, or one that starts activities of its type.
    private func liveActivity(
        _ ios: JSONValue, _ aps: JSONValue?
    ) throws(GetuiFault) -> (kind: TokenKind, activity: UInt64) {
        guard let identifier = ios["laId"] else { throw .null("laId") }
        guard let bytes = identifier.stringBytes else { throw .type("laId") }
        guard bytes.count > 0 else { throw .empty("laId") }
        guard let aps else { throw .null("aps") }
        guard let event = aps["event"], event.stringBytes?.isEmpty == false else {
            throw .invalid("event", "start, update or end")
        }
        guard event.equals("start") else { return (.liveActivity, Activity.word(bytes)) }
        let type = aps["attributes-type"].flatMap { numbers.bytes(of: $0) }
        return (.liveActivityStart, type.map { Activity.word($0) } ?? 0)
    }

    /// Parses a badge: `"+1"` and `"-1"` change the stored badge, `"5"` or 5 sets it.
    static func autoBadge(_ value: JSONValue?) throws(GetuiFault) -> VendorContent.Badge {
        guard let value, value.hasContent else { return .none }
        if let number = value.integer {
            guard let number = Int32(exactly: number) else { throw .invalid("auto_badge") }
            return number < 0 ? .add(number) : .set(number)
        }
        guard let text = value.stringBytes else { throw .type("auto_badge") }
        guard let first = text.first else { return .none }
        guard text.count <= 11, let number = Int32(String(decoding: text, as: UTF8.self)) else {
            throw .invalid("auto_badge", "like +1, -1 or 5")
        }
        let isChange = first == UInt8(ascii: "+") || first == UInt8(ascii: "-")
        return isChange ? .add(number) : .set(number)
    }

    private func collapseID(_ value: JSONValue?) throws(GetuiFault) -> UnsafeRawBufferPointer {
        guard let text = try string(value, "apns-collapse-id") else {
            return UnsafeRawBufferPointer(start: nil, count: 0)
        }
        try checkCollapseID(text)
        return text
    }

    private static func multimedia(_ value: JSONValue?) throws(GetuiFault) -> JSONValue? {
        guard let value, !value.isHollow(zero: true) else { return nil }
        guard value.kind == .array else { throw .type("multimedia") }
        var count = 0
        for item in value.elements {
            count += 1
            guard count <= Limits.multimediaCount else {
                throw .size("multimedia", "at most \(Limits.multimediaCount)")
            }
            guard item.kind == .object else { throw .type("multimedia") }
            guard let url = item["url"] else { throw .null("multimedia.url") }
            guard url.stringBytes?.isEmpty == false else { throw .invalid("multimedia.url") }
            guard let type = item["type"]?.lenientInteger, (1...3).contains(type) else {
                throw .invalid("multimedia.type", "1 image, 2 audio, 3 video")
            }
            if let onlyWiFi = item["only_wifi"], onlyWiFi.lenientBool == nil { throw .type("multimedia.only_wifi") }
        }
        return value
    }
}
