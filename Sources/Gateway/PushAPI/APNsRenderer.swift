// Renders what APNs is to get, once per task: Getui's `push_channel.ios`, a bare title and body, or a wake-up becomes
// APNs's JSON body with two holes, the msgId's 32 digits and the badge's. The app's template fills in what the publisher
// leaves open.

internal import Delivery
internal import JSON
internal import TextForms
internal import Wire

/// A rendered notification; the body is in the writer that rendered it, the pointers live as the parsed document does.
struct APNsContent {
    var shape: MessageContent.Vendor
    var collapseID = UnsafeRawBufferPointer(start: nil, count: 0)
    /// The alert's texts as the live channel carries them, so that a foreground app can show them itself.
    var alertTitle = UnsafeRawBufferPointer(start: nil, count: 0)
    var alertBody = UnsafeRawBufferPointer(start: nil, count: 0)
    /// The part of the message that the body leaves out; `nil`: none.
    var omission: VendorOmission?
}

/// Renders one task's body.
struct APNsRenderer {
    let task: TaskID
    let template: APNsTemplate
    let numbers: NumberTexts
    /// The live channel's payload, which the body carries if the publisher gives it nothing else to carry; `nil`: a
    /// notification.
    let transmission: CarriedTransmission?

    /// Thirty-two characters that stand in for the msgId.
    private static let messageIDHole: StaticString = "00000000000000000000000000000000"

    /// What is read of `push_channel.ios`; Getui documents no other key.
    private static let keys: [StaticString] = [
        "type", "aps", "auto_badge", "payload", "multimedia", "apns-collapse-id", "laId",
    ]
    /// What the gateway itself writes beside `aps`; no publisher can.
    private static let reservedKeys: [StaticString] = ["aps", "_gmid_", "longwire_media"]

    /// Where a member of `push_channel.ios` goes.
    enum Place {
        /// It is read, or says nothing.
        case known
        /// Beside `aps`, as it is.
        case topLevel
        /// Nowhere: its key is the gateway's.
        case nowhere
    }

    static func place(of key: JSONValue, _ value: JSONValue) -> Place {
        if keys.contains(where: { key.equals($0) }) || !value.hasContent { return .known }
        return isReserved(key) ? .nowhere : .topLevel
    }

    static func isReserved(_ key: JSONValue) -> Bool { reservedKeys.contains { key.equals($0) } }

    /// Renders a `push_channel.ios` object into an emptied `writer`; `nil` when there is nothing in it to send.
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
            // APNs could neither show anything nor wake the app.
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
        // A Live Activity gets its state alone; the app does not see what stands beside it.
        let isActivity = content.shape.pushType == .liveActivity
        if isActivity {
            content.omission = .liveActivity
        } else if let payload, let transmission, !payload.elementsEqual(transmission.bytes) {
            content.omission = .ownPayload
        }
        try close(&content, beside: ios, carrying: payload == nil && !isActivity ? transmission : nil, &writer)
        return content
    }

    /// Writes the members that stand beside `aps`; of equal keys the first counts, as in a request.
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

    /// Renders what the template makes of a title and a body, not both of which are empty, into an emptied `writer`.
    ///
    /// Of `ios`, which says nothing to show, the keys travel that stand beside `aps`.
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

    /// Renders a silent push, which wakes the app to fetch its messages, into an emptied `writer`; `ios` as above.
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

    /// Ends the body with the transmission, where it fits, and with `_gmid_`, which Getui's client statistics read.
    ///
    /// - Throws: the body is larger than APNs takes, without the transmission.
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

    /// - Returns: where the badge's digits go, or −1.
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

    /// True for an `aps` with nothing in it but nulls, empty things and an alert that says nothing, as an SDK's untouched
    /// objects are: `{"alert":[]}`.
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

    /// `aps.alert` when it says something: a text, or an object with something in it.
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

    /// The token that a Live Activity's push goes to: its activity's own, or one that starts activities of its type.
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

    /// `"+1"`, `"-1"` change the stored badge, `"5"` or 5 sets it.
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
