// One push's parameters, Getui's common body, become a ParsedPush.

internal import Cryptography
internal import Delivery
internal import Wire

/// Reads common bodies.
///
/// Its scratch memory is reused from push to push.
struct MessageParser {
    let random: RandomWords
    /// The APNs body of the push at hand.
    private var vendorWriter = JSONWriter(capacity: 4_096)
    /// The payload when it is rendered from an object.
    private var payloadWriter = JSONWriter(capacity: 1_024)

    init(random: RandomWords) { self.random = random }

    /// Reads one common body.
    ///
    /// `requestDigest` is of what a repetition of the request must equal; request ids are counted per `endpoint`. With
    /// `aimedAt` the audience is the caller's business, and the task id follows from the request id.
    mutating func parse(
        _ body: JSONValue?, app: App, endpoint: StaticString, itemIndex: Int, requestDigest: UInt64, now: GatewayTime,
        aimedAt given: DeviceID? = nil
    ) throws(GetuiFault) -> ParsedPush {
        let requestID = try Self.requestID(body?["request_id"])
        try Self.checkGroupName(body?["group_name"])
        let cid: DeviceID
        if let given { cid = given } else { cid = try Self.target(body?["audience"]) }
        let settings = try Self.settings(body?["settings"], app: app)
        let key = PushAPI.requestKey(app: app.key, endpoint: endpoint, requestID: requestID)
        let task =
            given == nil
            ? TaskID(kind: .single, now: now, random: random) : TaskID(kind: .single, now: now, request: key)

        let payload = try payload(body?["push_message"], app: app)
        let channel = try Self.optionalObject(body?["push_channel"], "push_channel")
        var content: APNsContent?
        if let ios = channel?["ios"] {
            content = try APNsRenderer.render(ios: ios, task: task, into: &vendorWriter)
        }

        var lengths = ParsedPush.Lengths()
        lengths.payload = payload?.count ?? payloadWriter.bytes.count
        lengths.collapseKey = settings.collapseKey.count
        lengths.alertTitle = content?.alertTitle.count ?? 0
        lengths.alertBody = content?.alertBody.count ?? 0
        lengths.vendorBody = content == nil ? 0 : vendorWriter.bytes.count
        lengths.vendorCollapseID = content?.collapseID.count ?? 0
        var arena: [UInt8] = []
        arena.reserveCapacity(
            lengths.payload + lengths.collapseKey + lengths.alertTitle + lengths.alertBody + lengths.vendorBody
                + lengths.vendorCollapseID)
        if let payload { arena.append(contentsOf: payload) } else { arena.append(contentsOf: payloadWriter.bytes) }
        arena.append(contentsOf: settings.collapseKey)
        if let content {
            arena.append(contentsOf: content.alertTitle)
            arena.append(contentsOf: content.alertBody)
            arena.append(contentsOf: vendorWriter.bytes)
            arena.append(contentsOf: content.collapseID)
        }
        let bucket = app.bucket(of: cid)
        return ParsedPush(
            address: DeviceAddress(app: app.key, bucket: bucket, cid: cid), task: task, strategy: settings.strategy,
            timeToLive: settings.timeToLive, itemIndex: itemIndex,
            messageDigest: PushAPI.messageDigest(of: task, for: cid),
            requestKey: key, requestDigest: requestDigest, vendor: content?.shape, lengths: lengths, arena: arena)
    }

    /// Getui: 10 to 32 characters.
    ///
    /// Nothing else is asked of them.
    private static func requestID(_ value: JSONValue?) throws(GetuiFault) -> UnsafeRawBufferPointer {
        guard let value else { throw .null("request_id") }
        guard let bytes = value.stringBytes else { throw .type("request_id") }
        guard bytes.count > 0 else { throw .empty("request_id") }
        guard let count = scalarCount(bytes), Limits.requestIDCharacterCount.contains(count) else {
            throw .invalid("request_id", "it has 10 to 32 characters")
        }
        return bytes
    }

    private static func checkGroupName(_ value: JSONValue?) throws(GetuiFault) {
        guard let value, value.hasContent else { return }
        guard let bytes = value.stringBytes else { throw .type("group_name") }
        let isPlain = bytes.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
                true
            default: false
            }
        }
        guard isPlain, bytes.count <= 100 else { throw .invalid("group_name") }
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

    struct Settings {
        var timeToLive: Int64
        var strategy = Strategy.liveElseVendor
        var collapseKey = UnsafeRawBufferPointer(start: nil, count: 0)
    }

    private static func settings(_ value: JSONValue?, app: App) throws(GetuiFault) -> Settings {
        var settings = Settings(timeToLive: app.defaultTimeToLive)
        guard let value = try optionalObject(value, "settings") else { return settings }
        if let ttl = value["ttl"], !ttl.equals("") {
            guard [.integer, .double, .string].contains(ttl.kind) else { throw .type("ttl") }
            guard let milliseconds = ttl.lenientInteger, (-1...Limits.timeToLive).contains(milliseconds) else {
                throw .invalid("ttl", "milliseconds from 0 to \(Limits.timeToLive), or -1")
            }
            settings.timeToLive = milliseconds
        }
        if let strategy = try optionalObject(value["strategy"], "strategy") {
            // For an iOS device its own entry is the one that counts.
            if let chosen = strategy["ios"] ?? strategy["default"] { settings.strategy = try Self.strategy(chosen) }
        }
        if let key = value["collapse_key"], key.hasContent {
            guard let bytes = key.stringBytes else { throw .type("collapse_key") }
            guard scalarCount(bytes) != nil else { throw .invalid("collapse_key", "not valid Unicode") }
            guard bytes.count <= Limits.collapseKeyByteCount else {
                throw .size("collapse_key", "at most \(Limits.collapseKeyByteCount) bytes")
            }
            settings.collapseKey = bytes
        }
        return settings
    }

    private static func strategy(_ value: JSONValue) throws(GetuiFault) -> Strategy {
        guard [.integer, .double, .string].contains(value.kind) else { throw .type("strategy") }
        switch value.lenientInteger {
        case 1, 6: return .liveElseVendor  // 6 is Getui's quota choice among Android vendors
        case 2: return .vendorOnly
        case 3: return .liveOnly
        case 4: return .vendorElseLive
        default: throw .invalid("strategy", "1 to 4, or 6")
        }
    }

    /// The live channel's bytes: a transmission as it is; `nil` for a notification, whose JSON is in `payloadWriter`.
    private mutating func payload(_ message: JSONValue?, app: App) throws(GetuiFault) -> UnsafeRawBufferPointer? {
        guard let message else { throw .null("push_message") }
        guard message.hasContent else { throw .empty("push_message") }
        guard message.kind == .object else { throw .type("push_message") }
        let notification = message["notification"].flatMap { $0.hasContent ? $0 : nil }
        let transmission = message["transmission"].flatMap { $0.hasContent ? $0 : nil }
        let revoke = message["revoke"].flatMap { $0.hasContent ? $0 : nil }
        let given = [notification, transmission, revoke].count { $0 != nil }
        guard given == 1 else {
            throw .parameter("push_message must have exactly one of notification, transmission and revoke")
        }
        if revoke != nil { throw .invalid("revoke", "a single push cannot revoke") }
        if let transmission { return try Self.transmission(transmission, app: app) }
        try self.notification(notification)
        return nil
    }

    private static func transmission(_ value: JSONValue, app: App) throws(GetuiFault) -> UnsafeRawBufferPointer {
        guard let bytes = value.stringBytes else { throw .type("transmission") }
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

    private static func optionalObject(_ value: JSONValue?, _ name: String) throws(GetuiFault) -> JSONValue? {
        guard let value, value.hasContent else { return nil }
        guard value.kind == .object else { throw .type(name) }
        return value
    }
}
