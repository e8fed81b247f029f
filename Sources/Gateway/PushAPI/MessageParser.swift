// Parses the parameters of a push (Getui's common body) into a ParsedPush.

internal import Cryptography
internal import Delivery
internal import JSON
internal import TextForms
internal import Wire

/// Parses common bodies; scratch memory is reused between pushes.
struct MessageParser {
    let numbers = NumberTexts()
    private var vendorWriter = JSONWriter(capacity: 4_096)
    /// The payload, if it is rendered from an object.
    private var payloadWriter = JSONWriter(capacity: 1_024)

    private let memberParser = JSONParser(byteLimit: Limits.payloadByteCount)

    /// The notes for the answer to the current request.
    var notes = RequestNotes()

    /// The caller's clock minus gateway time, in milliseconds.
    var callerOffset: Int64 = 0

    mutating func begin() {
        notes = RequestNotes()
    }

    mutating func check(_ object: JSONValue?, _ table: FieldTable, of parser: JSONParser) throws(GetuiFault) {
        try notes.check(object, table, hasUnreadable: parser.hasUnreadable)
    }

    /// Parses the common body of a push to one device.
    ///
    /// `requestDigest` covers everything that a repeated request must not change. Request ids are separate per `endpoint`. The
    /// task id is derived from the request id.
    mutating func parse(
        _ body: JSONValue?, app: App, endpoint: StaticString, itemIndex: Int, requestDigest: UInt64, now: GatewayTime
    ) throws(GetuiFault) -> ParsedPush {
        let requestID = try requestID(body?["request_id"])
        let cid = try Self.target(body?["audience"])
        let settings = try PushSettings(
            body?["settings"], app: app, scope: .single, now: now, callerOffset: callerOffset)
        let bucket = app.bucket(of: cid)
        let key = PushAPI.requestKey(app: app.key, endpoint: endpoint, requestID: requestID)
        let task = TaskID(now: now, home: bucket, request: key)
        let content = try content(body, app: app, task: task, settings: settings, itemIndex: itemIndex)
        return ParsedPush(
            address: DeviceAddress(app: app.key, bucket: bucket, cid: cid), task: task, content: content,
            itemIndex: itemIndex, messageDigest: PushAPI.messageDigest(of: task, for: cid),
            requestKey: key, requestDigest: requestDigest)
    }

    /// Parses a message's content, independent of its audience; it is rendered once, with the task's id.
    ///
    /// `itemIndex` is the message's index in `msg_list`, for the notes.
    mutating func content(
        _ body: JSONValue?, app: App, task: TaskID, settings: PushSettings, itemIndex: Int = 0,
        isBroadcast: Bool = false
    ) throws(GetuiFault) -> MessageContent {
        let payload = try payload(body?["push_message"], app: app)
        let channel = try PushSettings.object(body?["push_channel"], "push_channel")
        let ios = channel?["ios"].flatMap { Self.isUntouched($0) ? nil : $0 }
        let content = try vendorContent(ios, payload, task: task, template: app.apnsTemplate)
        if content?.omission?.isIDsOnly == true { notes.idsOnly.append(itemIndex) }
        var others: [PlatformContent] = []
        var followUp: PlatformContent?
        if let channel, payload.revokes.isNone {
            let contents = PlatformContents(
                numbers: numbers, transmission: payload.bytes, notification: payload.notification)
            if let android = try contents.android(channel["android"]) { others.append(android) }
            if let harmony = try contents.harmony(channel["harmony"]) { others.append(harmony) }
            followUp = try contents.followUp(channel["custom"], settings)
            guard followUp == nil || !isBroadcast else {
                throw .parameter(
                    "push_channel.custom must be absent: a push to all devices or to tags has no follow-up")
            }
        }
        var settings = settings
        if others.isEmpty { settings.settleOnApple() }
        let alert = content.map { ($0.alertTitle, $0.alertBody) } ?? others.first.map { ($0.title, $0.text) }

        var lengths = MessageContent.Lengths()
        lengths.payload = payload.bytes?.count ?? payloadWriter.bytes.count
        lengths.collapseKey = settings.collapseKey.count
        lengths.alertTitle = alert?.0.count ?? 0
        lengths.alertBody = alert?.1.count ?? 0
        lengths.vendorBody = content == nil ? 0 : vendorWriter.bytes.count
        lengths.vendorCollapseID = content?.collapseID.count ?? 0
        var arena: [UInt8] = []
        arena.reserveCapacity(lengths.sum)
        if let bytes = payload.bytes {
            arena.append(contentsOf: bytes)
        } else {
            arena.append(contentsOf: payloadWriter.bytes)
        }
        arena.append(contentsOf: settings.collapseKey)
        if let alert {
            arena.append(contentsOf: alert.0)
            arena.append(contentsOf: alert.1)
        }
        if let content {
            arena.append(contentsOf: vendorWriter.bytes)
            arena.append(contentsOf: content.collapseID)
        }
        // A revoke uses only the live channel.
        let strategy = payload.revokes.isNone ? settings.strategy : .ofRevoke
        try VendorOmission.check(
            content?.omission, settings.vendorStrategies[.apns] ?? strategy, timeToLive: settings.timeToLive)
        var message = MessageContent(
            strategy: strategy, timeToLive: settings.timeToLive,
            vendor: content?.shape, revokes: payload.revokes, lengths: lengths, arena: arena)
        // A revoke is sent to every device, regardless of first acks.
        message.firstAckWins = settings.firstAckWins && payload.revokes.isNone
        for other in others {
            message.add(other.shape, body: other.body, collapseID: [])
            for (vendor, reason) in other.refusals { notes.note(vendor, reason, itemIndex: itemIndex) }
        }
        message.vendorStrategies = settings.vendorStrategies
        message.customCallback = settings.customCallback
        message.vendorCarriesAll = content.map { $0.omission == nil } ?? false
        if let followUp { message.add(followUp.shape, body: followUp.body, collapseID: []) }
        for other in others {
            let platform = other.shape.channel.platform
            if other.carriesAll {
                message.carryingPlatforms.insert(PlatformSet(platform))
            } else if settings.isVendorOnly(on: platform, strategy), notes.lostParts.last != itemIndex {
                // Getui accepts such a push, and its vendor shows the notification alone.
                notes.lostParts.append(itemIndex)
            }
        }
        return message
    }

    /// Whether the SDK's caller left all of `ios` empty; zeros count as empty, except for a badge of 0.
    private static func isUntouched(_ ios: JSONValue) -> Bool {
        guard ios.kind == .object else { return ios.isAbsent }
        return ios.members.allSatisfy { key, value in
            if key.equals("aps"), value.kind == .object {
                return value.members.allSatisfy { $0.value.isHollow(zero: !$0.key.equals("badge")) }
            }
            return value.isHollow(zero: !key.equals("auto_badge"))
        }
    }

    /// Parses a request id; Getui: 10 to 32 characters, with no other restriction.
    func requestID(_ value: JSONValue?) throws(GetuiFault) -> UnsafeRawBufferPointer {
        guard let value else { throw .null("request_id") }
        guard let bytes = numbers.bytes(of: value) else { throw .type("request_id") }
        guard bytes.count > 0 else { throw .empty("request_id") }
        guard let count = scalarCount(bytes), Limits.requestIDCharacterCount.contains(count) else {
            throw .invalid("request_id", "it has 10 to 32 characters")
        }
        return bytes
    }

    static func groupName(_ value: JSONValue?) throws(GetuiFault) -> String {
        guard let value = value?.given else { return "" }
        guard let text = value.lenientText else { throw .type("group_name") }
        try checkGroupName(text)
        return text
    }

    /// Refuses a group name that is too long or has characters other than letters, digits, `_` and `-`.
    static func checkGroupName(_ text: String) throws(GetuiFault) {
        guard text.isPlain(with: "_-"), text.utf8.count <= Limits.groupNameByteCount else {
            throw .invalid("group_name")
        }
    }

    private static func target(_ audience: JSONValue?) throws(GetuiFault) -> DeviceID {
        guard let audience else { throw .null("audience") }
        guard audience.hasContent else { throw .empty("audience") }
        guard audience.kind == .object else { throw .type("audience") }
        guard let list = audience["cid"] else { throw .null("cid") }
        guard list.kind == .array else { throw .type("cid") }
        var elements = list.elements
        guard let first = elements.next() else { throw .empty("cid") }
        guard elements.next() == nil else { throw .size("cid", "a single push has one") }
        guard let text = first.stringBytes else { throw .type("cid") }
        guard let cid = DeviceID(hex: text) else { throw .targetUser }
        return cid
    }

    /// Renders the body for APNs into `vendorWriter`, from the publisher's values or from the app's template.
    private mutating func vendorContent(
        _ ios: JSONValue?, _ payload: Payload, task: TaskID, template: APNsTemplate
    ) throws(GetuiFault) -> APNsContent? {
        let carried = payload.bytes.map {
            CarriedTransmission(bytes: $0, form: template.transmission, parser: memberParser)
        }
        let renderer = APNsRenderer(task: task, template: template, numbers: numbers, transmission: carried)
        if let ios, var content = try renderer.render(ios: ios, into: &vendorWriter) {
            notes.note(ios, isCarried: true)
            if let notification = payload.notification, content.omission == nil {
                let (title, body) = (content.alertTitle, content.alertBody)
                let isShown = NotificationRules.isShown(notification, title: title, body: body, numbers)
                content.omission = isShown ? nil : .notification
            }
            return content
        }
        let hasBody =
            payload.revokes.isNone && (template.wakesApp || template.showsNotifications && payload.notification != nil)
        if let ios { notes.note(ios, isCarried: hasBody) }
        guard hasBody else { return nil }
        if template.showsNotifications, let notification = payload.notification {
            let none = UnsafeRawBufferPointer(start: nil, count: 0)
            let title = notification["title"].flatMap { numbers.bytes(of: $0) } ?? none
            let body = notification["body"].flatMap { numbers.bytes(of: $0) } ?? none
            var content = try renderer.render(alertTitle: title, alertBody: body, beside: ios, into: &vendorWriter)
            let isShown = NotificationRules.isShown(notification, title: title, body: body, numbers)
            content.omission = isShown ? nil : .notification
            return content
        }
        var content = try renderer.renderWakeUp(beside: ios, into: &vendorWriter)
        if payload.notification != nil { content.omission = .notification }
        return content
    }

    /// The live channel's bytes: a transmission or the revoked task's id verbatim; `bytes` is `nil` for a notification, whose
    /// JSON is in `payloadWriter`.
    private struct Payload {
        var bytes: UnsafeRawBufferPointer?
        var revokes = TaskID.none
        var notification: JSONValue?
    }

    private mutating func payload(_ message: JSONValue?, app: App) throws(GetuiFault) -> Payload {
        guard let message else { throw .null("push_message") }
        guard message.hasContent else { throw .empty("push_message") }
        guard message.kind == .object else { throw .type("push_message") }
        // Some clients send all three fields. Empty ones count only if no other field has a value.
        let named = [message["notification"], message["transmission"], message["revoke"]]
        var given = named.map { part in part.flatMap { $0.isHollow(zero: true) && $0.integer == nil ? nil : $0 } }
        if given.allSatisfy({ $0 == nil }) { given = named.map { part in part.flatMap { $0.hasContent ? $0 : nil } } }
        guard given.count(where: { $0 != nil }) == 1 else {
            throw .parameter("push_message must have exactly one of notification, transmission and revoke")
        }
        if let revoke = given[2] { return try self.revoke(revoke) }
        if let transmission = given[1] { return Payload(bytes: try self.transmission(transmission, app: app)) }
        try self.notification(given[0])
        return Payload(notification: given[0])
    }

    private mutating func revoke(_ value: JSONValue) throws(GetuiFault) -> Payload {
        guard value.kind == .object else { throw .type("revoke") }
        guard let text = value["old_task_id"] else { throw .null("old_task_id") }
        guard let bytes = text.stringBytes else { throw .type("old_task_id") }
        guard bytes.count > 0 else { throw .empty("old_task_id") }
        guard let task = TaskID(text: String(decoding: bytes, as: UTF8.self)) else { throw .invalid("old_task_id") }
        payloadWriter.removeAll()
        payloadWriter.raw(task.bytes)
        return Payload(bytes: nil, revokes: task)
    }

    private func transmission(_ value: JSONValue, app: App) throws(GetuiFault) -> UnsafeRawBufferPointer {
        guard let bytes = numbers.bytes(of: value) else { throw .type("transmission") }
        guard bytes.count > 0 else { throw .empty("transmission") }
        guard let count = scalarCount(bytes) else { throw .invalid("transmission", "not valid Unicode") }
        guard count <= app.transmissionCharacterCount else {
            throw .size("transmission", "at most \(app.transmissionCharacterCount) characters")
        }
        guard bytes.count <= Limits.payloadByteCount else {
            throw .size("transmission", "at most \(Limits.payloadByteCount) bytes")
        }
        return bytes
    }

    private mutating func notification(_ value: JSONValue?) throws(GetuiFault) {
        guard let value else { throw .null("notification") }
        try NotificationRules.check(value)
        payloadWriter.removeAll()
        payloadWriter.value(value)
        guard payloadWriter.bytes.count <= Limits.payloadByteCount else {
            throw .size("notification", "at most \(Limits.payloadByteCount) bytes")
        }
    }
}
